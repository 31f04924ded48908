"""``glassfleet demo``: real processes learn over a real broker while vehicles are killed or slow."""
