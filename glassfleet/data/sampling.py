"""At most so many rows of a vehicle, chosen by a hash of each row: the same rows wherever they are chosen.

A run may state ``max_rows_each``, so that no vehicle weighs more than its share. Whoever learns the run again (a
central reference, an audit) draws the same rows from the same vehicle, and so gets the same sums and the same model.

The hash is of the run's columns alone, in their order, so that other columns of a vehicle change nothing. It has no
salt: two runs with the same columns and limit are answered from the same rows, and tell no more together than one.
It is not a secret either: it decides which rows count, and no hash leaves the vehicle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.mixing import bits_of, mixed_in


def draw(data: Dataset, columns: Sequence[str], most: int) -> Dataset:
    """Return the `most` rows of `data` with the lowest hashes, in their order; `data` itself when it has no more.

    Parameters
    ----------
    data : Dataset
        Rows of one vehicle.
    columns : sequence of str
        The run's inputs, in the order of its domain.
    most : int
        At least 1; 0: no limit.

    Raises
    ------
    KeyError
        A column is missing.

    Examples
    --------
    >>> rows = Dataset(("a",), "y", np.arange(5.0)[:, None], np.zeros(5))
    >>> draw(rows, ["a"], 2).X[:, 0]
    array([1., 4.])
    """
    if not most or data.rows <= most:
        return data
    key = ("drawn", tuple(columns), most)
    drawn: Dataset | None = data.memo.get(key)
    if drawn is None:
        # Equal rows have equal hashes: whichever of them is kept, the same values are.
        kept = np.sort(np.argsort(_hashes(data.select(columns)), kind="stable")[:most])
        drawn = Dataset(
            data.features, data.target, data.X[kept], data.y[kept], categories=data.categories, key=data.key
        )
        data.memo[key] = drawn
    return drawn


def _hashes(data: Dataset) -> NDArray[np.uint64]:
    """Return a hash of each row, shape (n,): its values, mixed in one by one."""
    mixed = np.zeros(data.rows, dtype=np.uint64)
    for index, name in enumerate(data.features):
        column, own = data.X[:, index], data.categories.get(name)
        mixed = mixed_in(mixed, bits_of(column) if own is None else _of_texts(own)[column.astype(np.intp)])
    if data.y.dtype.kind == "f":
        return mixed_in(mixed, bits_of(data.y))
    texts, places = np.unique(data.y.astype(np.str_), return_inverse=True)
    return mixed_in(mixed, _of_texts(texts)[places.reshape(-1)])


def _of_texts(texts: Sequence[str] | NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of each text: positions among categories differ from vehicle to vehicle, texts do not."""
    return np.array(
        [int.from_bytes(hashlib.sha256(str(text).encode()).digest()[:8], "little") for text in texts], dtype=np.uint64
    )
