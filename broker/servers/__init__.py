"""Brokers that Glassfleet starts and configures: embedded, Mosquitto; access rules, passwords."""
