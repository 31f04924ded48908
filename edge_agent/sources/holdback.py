"""Rows that a vehicle holds back to score models with, where no column ``split`` says which.

The newest drives, or the newest block of time: never rows beside those that train, which would tell the same again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.messages import HeldBack

SHARE: Final = 0.2
FEWEST: Final = 20
"""Rows, below which a table is too small to hold any back."""

_GAP: Final = 0.01
"""Share of rows between those that train and those that test, which do neither."""

Mask = NDArray[np.bool_]


def held_back(rows: int, drives: NDArray[Any] | None) -> tuple[Mask, Mask, HeldBack, str]:
    """Return which rows train, which test, and how they were chosen, also in words; empty: all train.

    Parameters
    ----------
    rows : int
        In the order of time.
    drives : ndarray, shape (rows,), or None
        Which drive each row is of.
    """
    train, test = np.ones(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_)
    if rows < FEWEST:
        return train, test, "", ""
    begins = _begins(drives) if drives is not None else []
    newest = [begin for begin in begins if SHARE / 2 * rows <= rows - begin <= 0.5 * rows]
    if newest:
        begin = min(newest, key=lambda each: abs(rows - each - SHARE * rows))
        test[begin:], train[begin:] = True, False
        count = sum(each >= begin for each in begins)
        which = "the newest drive" if count == 1 else f"the newest {count} drives"
        return train, test, "drives", f"{which} of {len(begins) + 1} ({rows - begin} of {rows} rows)"
    begin = rows - max(2, round(SHARE * rows))
    gap = max(1, round(_GAP * rows))
    test[begin:], train[begin - gap :] = True, False
    return train, test, "rows", f"the last {rows - begin} of {rows} rows, {gap} before them left out"


def _begins(drives: NDArray[Any]) -> list[int]:
    """Return where drives begin, but the first one; none where a drive goes on after another one."""
    changes = [int(place) + 1 for place in np.flatnonzero(drives[1:] != drives[:-1])]
    return changes if len(changes) + 1 == len(np.unique(drives)) else []
