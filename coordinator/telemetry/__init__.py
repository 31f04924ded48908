"""Logs and metrics of a coordinator."""
