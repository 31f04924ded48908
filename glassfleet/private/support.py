"""On how many rows it rests what a private run opens: nothing that could be had by adding and subtracting on too few.

Before statistics are asked, vehicles are asked on how many of their rows each would rest. A statistic is asked only
where that is none or enough rows in every *atom*. Atoms are each group's sum by itself, since these are opened one by
one, and the difference of any two editions of a group that were asked.

Who has enough rows tells no more than that: a vehicle's number is cut off at what is enough, and a sum of such numbers
is enough where the sum of all rows is.

What was decided depends on who is in which group, so it is recorded: the central model of the run is the one that
decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from schemas.codec import Value
from schemas.errors import UsageError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Place(NamedTuple):
    """What a line of counts is about.

    Attributes
    ----------
    about : object
        In a form that means the same in every task.
    layer : object
        Which of these rows are counted: :data:`ALL`, or those alone that have another value than a common one.
    """

    about: Any
    layer: Any


ALL: Final = "all"


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
        about the same place. It is 0 where that was not asked, and -1, not enough, where all rows alone were asked.

    Notes
    -----
    Lines of several tasks may differ in length: they end with zeros.
    """
    here = {place: line for line, place in enumerate(places(task))}
    present = contribution.sums["rows"]
    later, groups = _flat(present).copy(), [present]
    for asked, former in reversed([one for one in contribution.former if one[0].kind == task.kind]):
        difference, before = np.zeros_like(later), _flat(former.sums["rows"])
        known = {place: line for line, place in enumerate(places(asked))}
        width = min(before.shape[1], later.shape[1])
        for place, line in here.items():
            if (there := known.get(place)) is not None:
                difference[line, :width] = before[there, :width] - later[line, :width]
                later[line, :width] = before[there, :width]
            elif isinstance(place, Place) and place._replace(layer=ALL) in known:
                difference[line] = -1
        groups.append(difference.reshape(present.shape))
    return groups


def _flat(rows: Ints) -> Ints:
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def decided(
    contributions: Sequence[Contribution],
    places: Callable[[Task], Sequence[Any]],
    task: Task,
    decide: Callable[[list[Ints]], Bools],
) -> Bools:
    """Return what `decide` makes of the atoms of all groups; or what stands in the record that the answers carry.

    Parameters
    ----------
    contributions : sequence of Contribution
        The groups' answers to `task`.
    places, task
        As for :func:`atoms`.
    decide : callable
        From the rows of all atoms to an array of bool of any shape, a function of `task` and of the rows alone.

    Raises
    ------
    UsageError
        The record is of another run.
    """
    now = decide([part for given in contributions for part in atoms(given, places, task)])
    before = contributions[0].decided
    if before is not None and before.shape != now.shape:
        raise UsageError("the record of what was withheld is of another run: it does not fit what this one asks")
    return now if before is None else before


def joined(
    cuts: Sequence[tuple[int, int]], cells: int, allowed: Sequence[bool] | Bools, is_enough: Callable[[int, int], bool]
) -> list[int]:
    """Return the places of cuts of a line of cells that leave no small band between them.

    A band is joined to the next one until it is enough; what is left at the end is joined to the last one.

    Parameters
    ----------
    cuts : sequence of (int, int)
        Ascending: before which cell the band below a cut ends, and with which the one above it begins.
    cells : int
    allowed : sequence of bool
        Which cuts may stay.
    is_enough : callable
        Whether a band from its first cell to before another one may be asked about.
    """
    kept: list[int] = []

    def begin() -> int:
        return cuts[kept[-1]][1] if kept else 0

    for place, (end, _) in enumerate(cuts):
        if allowed[place] and is_enough(begin(), end):
            kept.append(place)
    while kept and not is_enough(begin(), cells):
        kept.pop()
    return kept


def holds(parts: Sequence[Ints], least: int | Ints) -> Bools:
    """Return where every one of `parts`, equal in shape, is 0 or at least `least` (a number, or one by last place)."""
    enough = np.ones(parts[0].shape, dtype=bool)
    for part in parts:
        enough &= (part == 0) | (part >= least)
    return enough


def noted(decision: Bools) -> dict[str, Value]:
    """Return what was decided from the answers to one question as it stands in a run's record."""
    return {"shape": list(decision.shape), "bits": np.packbits(decision).tobytes().hex()}


def read_noted(value: Mapping[str, Any]) -> Bools:
    """Undo :func:`noted`."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(value["bits"]), dtype=np.uint8), count=math.prod(value["shape"]))
    return bits.astype(bool).reshape(value["shape"])
