"""What an attacker holds: sums, each with the question that it answers and the vehicles whose rows are in it.

In a plain run every sum is of one vehicle. In a private run it is of a group; when a group shrinks, the difference of
two sums is of those who left. Attacks do not mind: they are given what is known of one set of vehicles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Task

Sums = Mapping[str, NDArray[np.int64]]

View = Sequence[tuple[Task, Sums]]
"""Questions, in the order in which they were asked, and the sums of one set of vehicles."""

Members = frozenset[str]


@dataclass(frozen=True)
class Opened:
    """A sum that left the vehicles.

    Attributes
    ----------
    task : Task
        The question.
    members : frozenset of str
        The vehicles whose rows are in the sum.
    sums : mapping of str to ndarray of int64
        ``Contribution.sums`` of a vehicle, or the sum of several vehicles' ones.
    """

    task: Task
    members: Members
    sums: Sums


def views(opened: Iterable[Opened]) -> dict[Members, View]:
    """Return what is known of each set of vehicles, in the order in which it became known."""
    result: dict[Members, list[tuple[Task, Sums]]] = {}
    for each in opened:
        result.setdefault(each.members, []).append((each.task, each.sums))
    return dict(result)


def total(opened: Iterable[Opened]) -> list[Opened]:
    """Return one sum for each question, over all vehicles that answered it: what masked sums of the fleet would tell.

    Vehicles are counted once where several sums hold them: the largest set is taken first.
    """
    by_task: dict[str, list[Opened]] = {}
    for each in opened:
        by_task.setdefault(each.task.digest, []).append(each)
    result = []
    for some in by_task.values():
        members: Members = frozenset()
        added: dict[str, NDArray[np.int64]] = {}
        for each in sorted(some, key=lambda one: -len(one.members)):
            if members.isdisjoint(each.members) and (not added or _alike(added, each.sums)):
                members |= each.members
                added = {name: added.get(name, 0) + array for name, array in each.sums.items()}
        result.append(Opened(some[0].task, members, added))
    return result


def differences(opened: Iterable[Opened]) -> list[Opened]:
    """Return the sums of those who left: of two answers to one question, from a set of vehicles and a part of it."""
    result = []
    by_task: dict[str, list[Opened]] = {}
    for each in opened:
        for other in by_task.setdefault(each.task.digest, []):
            large, small = (each, other) if other.members < each.members else (other, each)
            if small.members < large.members and _alike(large.sums, small.sums):
                left = {name: array - small.sums[name] for name, array in large.sums.items()}
                result.append(Opened(each.task, large.members - small.members, left))
        by_task[each.task.digest].append(each)
    return result


def _alike(first: Sums, second: Sums) -> bool:
    return first.keys() == second.keys() and all(first[name].shape == second[name].shape for name in first)
