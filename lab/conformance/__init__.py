"""`glassfleet conformance`: does an agent, in whatever language, do what the protocol says? And the test vectors."""
