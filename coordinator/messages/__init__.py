"""Between the broker and the engine: what arrives as events, what is sent as messages."""
