"""Parts of tree's questions, read without trust."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.tasks import check_array
from glassfleet.errors import TaskError
from glassfleet.schemes.tree.tree import LEAST_RAMP, Ramp, Tree, check_ramp, overlapping

Array = NDArray[np.float64]

MAX_CANDIDATES = 4096
"""Most ramps that one question compares."""


def read_way(value: object, ways: int) -> int:
    """Return which of so many ways to grow a question is a step of; raises TaskError."""
    if type(value) is not int or not 0 <= value < ways:
        raise TaskError(f"a step is of one of {ways} ways to grow")
    return value


def read_edges(value: object, shape: tuple[int, int]) -> Array:
    """Return edges of bins, shape `shape`; raises TaskError."""
    edges = check_array("edges", value, np.float64, shape)
    if (edges[:, 0] != 0.0).any() or (edges[:, -1] != 1.0).any() or not (np.diff(edges) > LEAST_RAMP).all():
        raise TaskError("the edges of an input's bins do not increase from 0 to 1")
    return edges


def read_closed(value: object, tree: Tree, layers: int) -> tuple[tuple[int, int, int], ...]:
    """Return pairs of leaves that no row may share, each to a layer; raises TaskError."""
    closed = [(i, j, layer) for i, j, layer in check_array("closed", value, np.int32, (None, 3)).tolist()]
    if len(set(closed)) < len(closed) or not {(i, j) for i, j, _ in closed} <= set(tree.overlaps):
        raise TaskError("a closed pair of leaves is closed twice, or shares no rows")
    if not all(0 <= layer < layers for *_, layer in closed):
        raise TaskError(f"a pair is closed to one of {layers} layers of rows")
    return tuple(closed)


def read_candidates(places: object, ramps: object, tree: Tree, n_inputs: int) -> tuple[tuple[int, Ramp], ...]:
    """Return ramps of leaves; raises TaskError."""
    places = check_array("places", places, np.int32, (None, 2))
    if not 1 <= len(places) <= MAX_CANDIDATES:
        raise TaskError(f"between 1 and {MAX_CANDIDATES} ramps can be asked about")
    limits = check_array("ramps", ramps, np.float64, (len(places), 2)).tolist()
    candidates = []
    for (leaf, feature), (low, high) in zip(places.tolist(), limits, strict=True):
        if not 0 <= leaf < tree.size or leaf in tree.split_of or not 0 <= feature < n_inputs:
            raise TaskError("a ramp is of no leaf, or on an input that the domain lacks")
        check_ramp((feature, low, high))
        if overlapping(frozenset(split.ramp for split, _ in tree.path(leaf)), (feature, low, high)):
            raise TaskError("a ramp overlaps one above it")
        candidates.append((leaf, (feature, low, high)))
    return tuple(candidates)
