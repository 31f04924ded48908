"""Exact sums, element-wise solvers and grids: nothing here knows of schemes."""
