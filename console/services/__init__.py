"""Commands about the services themselves."""
