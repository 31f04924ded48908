"""Commands on a vehicle."""
