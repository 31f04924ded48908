"""Runs around the engine: started, performed, resumed, shown."""
