"""What travels and what is kept: topics, envelope, messages, model documents, codec, limits, errors."""
