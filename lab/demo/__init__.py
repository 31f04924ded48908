"""The demonstration: a fleet of real processes learns over a real broker while vehicles vanish, lag and come back."""
