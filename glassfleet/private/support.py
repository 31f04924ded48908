"""On how many rows it rests what a private run opens: nothing that could be had by adding and subtracting on too few.

Before statistics are asked, vehicles are asked on how many of their rows each would rest. A statistic is asked only
where that is none or enough rows in every *atom*: in each group's sum by itself, since these are opened one by one, and
in the difference of any two editions of a group that were asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.scheme import Contribution, Task
from schemas.codec import Value

Ints = NDArray[np.int64]


def atoms(contribution: Contribution, places: Callable[[Task], Sequence[Any]], task: Task) -> list[Ints]:
    """Return the rows of each atom of one group, as its present edition and those before were asked.

    Parameters
    ----------
    contribution : Contribution
        An answer to `task` with the sum ``rows``, shape (m, ...), and what earlier editions answered.
    places : callable
        What each of the m lines of a task is about, in a form that means the same in every task.
    task : Task

    Returns
    -------
    list of ndarray of int64, each of shape (m, ...)
        The present edition's rows; for each earlier edition, how many more it had than the next one that was asked
        about the same place: 0 where it was not asked.
    """
    here = {place: line for line, place in enumerate(places(task))}
    present = contribution.sums["rows"]
    later, found = present.copy(), [present]
    for asked, former in reversed(contribution.former):
        difference = np.zeros_like(present)
        for there, place in enumerate(places(asked)):
            if (line := here.get(place)) is not None:
                difference[line] = former.sums["rows"][there] - later[line]
                later[line] = former.sums["rows"][there]
        found.append(difference)
    return found


def noted(rows: Ints) -> dict[str, Value]:
    """Return the answers to one question, shape (m, ...), as they stand in a run's record: few different numbers."""
    known, code = np.unique(rows, return_inverse=True)
    return {"shape": list(rows.shape), "rows": known.tolist(), "cells": code.astype(np.uint8).tobytes().hex()}


def read_noted(value: Mapping[str, Any]) -> Ints:
    """Undo :func:`noted`."""
    code = np.frombuffer(bytes.fromhex(value["cells"]), dtype=np.uint8)
    rows: Ints = np.array(value["rows"], dtype=np.int64)[code].reshape(value["shape"])
    return rows


def holds(parts: Sequence[Ints], least: int) -> NDArray[np.bool_]:
    """Return where every one of `parts`, equal in shape, is 0 or at least `least`."""
    enough = np.ones(parts[0].shape, dtype=bool)
    for part in parts:
        enough &= (part == 0) | (part >= least)
    return enough
