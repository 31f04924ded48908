"""Brokers that Glassfleet starts and configures: embedded, Mosquitto, RabbitMQ; access rules, passwords."""
