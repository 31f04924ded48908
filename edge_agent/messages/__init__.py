"""Between the broker and the session: incoming messages are checked, outgoing ones are built and published."""
