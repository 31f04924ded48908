"""Measurements, run with ``python -m benchmarks``; the results are in docs/reference/benchmarks.md."""
