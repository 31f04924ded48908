"""``glassfleet lab experiment``: a protocol on a file, in worker processes."""
