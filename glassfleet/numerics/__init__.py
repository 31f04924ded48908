"""Exact sums, solvers that give the same bits everywhere, and grids; nothing here knows of schemes."""
