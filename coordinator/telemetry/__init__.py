"""Logs, metrics and traces of a coordinator."""
