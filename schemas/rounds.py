"""What became of the answers to a round, as a run's document tells it: each vehicle once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LATE = "too late"
"""Why a vehicle does not count that answered after the end of a round."""


def missed(row: Mapping[str, Any]) -> dict[str, str]:
    """Return who does not count in a round, and why: who was dropped and answered later is late, and that alone.

    >>> missed({"dropped_agents": {"a": "deadline", "b": "deadline"}, "late_agents": ["b"]})
    {'a': 'deadline', 'b': 'too late'}
    """
    return {**(row.get("dropped_agents") or {}), **dict.fromkeys(row.get("late_agents") or (), LATE)}


def count(row: Mapping[str, Any], name: str) -> int:
    """Return how many answers had an outcome (a field of the round), each vehicle's once, see `missed`."""
    both = {*(row.get("dropped_agents") or ())} & {*(row.get("late_agents") or ())} if name == "dropped" else ()
    return int(row.get(name, 0)) - len(both)
