"""What travels: topics, envelope, messages, model documents, codec, limits and errors."""
