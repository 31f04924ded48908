"""Brokers that are started and configured here."""
