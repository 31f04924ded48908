"""Runs around the engine: decided and journalled in transactions, performed, resumed, shown."""
