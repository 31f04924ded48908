"""A union as a sum: which items a fleet has, and how often, without anybody telling its own.

An invertible Bloom look-up table (Goodrich and Mitzenmacher, "Invertible Bloom lookup tables", Allerton 2011) whose
cells are plain sums, so that masked tables add up to the table of the union. An item is a key of some limbs, found n
times. It is added to three cells, one of each third of the table: n, n times a hash of the key, n times each limb. A
cell that holds one item alone gives it by a division; the hash says that it is one. It is taken out of its other
cells, where others become alone. What comes out is every item with the number of times it was found in the whole fleet.

Peeling ends with all items when there are about 1.3 cells for each of many items, 2 for each of few. If it does not,
the next larger table of :data:`SIZES` is asked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.sampling import mixed_in

Ints = NDArray[np.int64]

SIZES = tuple(3 << power for power in (9, 11, 13, 15, 17))
"""Cells of a table: the smallest is asked first."""

LIMB_BITS = 30
"""A limb is at least 0 and below 2^30: up to 2^31 finds of it, times a limb, stay below 2^61."""

_COPIES = 3
_FIRST = 2  # of the limbs in a cell; before them are the number and the hash


def table_shape(cells: int, limbs: int) -> tuple[int, int]:
    """Return the shape of a table of `cells` (of :data:`SIZES`) for keys of so many limbs."""
    return cells, limbs + _FIRST


def fill(keys: Ints, times: Ints, cells: int) -> Ints:
    """Return the table of some items.

    Parameters
    ----------
    keys : ndarray of int64, shape (n, limbs)
        Different keys; limbs in [0, 2^30).
    times : ndarray of int64, shape (n,)
        How often each was found, > 0; at most 2^31 in all vehicles together.
    cells : int
        One of :data:`SIZES`.
    """
    places, check = _places(keys, cells)
    lines = np.column_stack([np.ones_like(times), check, keys]) * times[:, None]
    table = np.zeros(table_shape(cells, keys.shape[1]), dtype=np.int64)
    for copy in range(_COPIES):
        np.add.at(table, places[copy], lines)
    return table


def peel(table: Ints) -> tuple[Ints, Ints] | None:
    """Return keys, shape (n, limbs), and how often each was found, of a sum of tables; None if not all come out.

    Keys are in no order that means anything. What is no sum of tables gives None, too.
    """
    left, cells = table.copy(), len(table)
    keys: list[Ints] = [left[:0, _FIRST:]]
    times: list[Ints] = [left[:0, 0]]
    while True:
        at = np.flatnonzero(left[:, 0] > 0)
        count = left[at, 0]
        at = at[(left[at] % count[:, None] == 0).all(axis=1)]
        count, lines = left[at, 0], left[at]
        candidates = lines[:, _FIRST:] // count[:, None]
        places, check = _places(candidates, cells)
        alone = (check == lines[:, 1] // count) & (places == at).any(axis=0)
        alone &= ((candidates >= 0) & (candidates < 1 << LIMB_BITS)).all(axis=1)
        if not alone.any():
            break
        _, first = np.unique(candidates[alone], axis=0, return_index=True)
        chosen = np.flatnonzero(alone)[first]
        for copy in range(_COPIES):
            np.subtract.at(left, places[copy][chosen], lines[chosen])
        keys.append(candidates[chosen])
        times.append(count[chosen])
        if sum(map(len, keys)) > cells:
            return None
    return None if left.any() else (np.concatenate(keys), np.concatenate(times))


def _places(keys: Ints, cells: int) -> tuple[Ints, Ints]:
    """Return the three cells of each key, shape (3, n), and its hash below 2^30, shape (n,)."""
    part = cells // _COPIES
    hashes = [_mixed(keys, salt) for salt in range(_COPIES + 1)]
    places = [(hashes[copy] % np.uint64(part)).astype(np.int64) + copy * part for copy in range(_COPIES)]
    return np.stack(places), (hashes[_COPIES] >> np.uint64(64 - LIMB_BITS)).astype(np.int64)


def _mixed(keys: Ints, salt: int) -> NDArray[np.uint64]:
    """Return a hash of each key (limb by limb); spread is all that is asked of it."""
    state = np.full(len(keys), salt, dtype=np.uint64)
    for limb in keys.T:
        state = mixed_in(state, limb.astype(np.uint64))
    return state
