"""Measurements, run with ``python -m lab.benchmarks``; the results are in docs/reference/benchmarks.md."""
