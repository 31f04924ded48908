"""`glassfleet lab conformance`: does an agent, in any language, do what the protocol says? And the test vectors."""
