"""Commands that start and maintain services: broker, coordinator, authority, journal, message tap."""
