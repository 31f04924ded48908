"""What became of the answers to a round, each vehicle once, and what rounds cost one; as a run's document tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def bytes_each(rows: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many bytes of requests a vehicle got in some rounds, and of answers it sent if it answered all.

    As they are encoded, before they are sealed or packed; without receipts, some 250 bytes each, and the model.

    >>> bytes_each([{"request_bytes": 900, "bytes": 3000, "accepted": 2}, {"request_bytes": 90, "bytes": 0}])
    (990, 1500)
    """
    rows = list(rows)
    sent = sum(float(row.get("bytes", 0)) / max(1, int(row.get("accepted", 0))) for row in rows)
    return sum(int(row.get("request_bytes", 0)) for row in rows), round(sent)
