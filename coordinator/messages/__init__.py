"""Between broker and engine: incoming messages become events, outgoing ones are built and published."""
