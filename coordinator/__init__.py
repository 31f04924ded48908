"""The cloud service: pure round engine, journal, registry, HTTP API."""
