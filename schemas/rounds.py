"""Rounds: what became of the answers, each vehicle once; what they cost one; which of its rows count; who is asked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

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


# --- which rows of a vehicle count in a run: its last ones. Part of what is asked, of every request, and of the record


DAY = 86_400.0


class Window(BaseModel):
    """The last rows of each vehicle, or those of the last days; one of the two.

    Attributes
    ----------
    rows : int or None
        At most so many of its training rows count, the last in their order.
    days : float or None
        Those count whose time is after `until` less so many days, and not after `until`.
    time : str
        With `days`: the column that tells when a row was, in seconds since 1970. Empty: each vehicle's only column that
        is called so; a window of ``data collect`` has ``at``.
    until : float or None
        Seconds since 1970. The coordinator sets it when a run of `days` starts; what is given is replaced.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rows: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    days: Annotated[float, Field(gt=0, le=36_525)] | None = None
    time: Annotated[str, Field(max_length=200)] = ""
    until: Annotated[float, Field(ge=0, lt=1e12)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.rows is None) == (self.days is None):
            raise ValueError("give rows or days, one of the two")
        if self.rows is not None and (self.time or self.until is not None):
            raise ValueError("time and until go with days: the last rows are those at the end of the table")
        return self

    @property
    def since(self) -> float:
        """With `days`, once `until` is set: rows after this time count; seconds since 1970."""
        assert self.days is not None
        assert self.until is not None
        return self.until - self.days * DAY

    def started(self, now: float) -> Window:
        """Return the window of a run that starts now."""
        return self if self.days is None else self.model_copy(update={"until": float(int(now))})


# --- which vehicles take part where some do: a seeded hash of the agent's id, so that a share of any fleet is short ---


ALL = 2**32
"""The threshold below which every agent lies."""


def place(salt: str, agent: str) -> int:
    """Return an agent's place in a rollout, 0 to 2^32 - 1: the first 32 bits of SHA-256 over salt, NUL, agent id."""
    return int.from_bytes(hashlib.sha256(salt.encode() + b"\x00" + agent.encode()).digest()[:4], "big")


def place_in_sample(salt: str, agent: str) -> str:
    """Return an agent's place in the sample of a round: SHA-256 (hex) over salt, slash, agent id."""
    return hashlib.sha256(f"{salt}/{agent}".encode()).hexdigest()


def threshold(salt: str, agents: Collection[str], share: float) -> int:
    """Return the place below which a share of these agents lies, at least one of them.

    Parameters
    ----------
    agents : collection of str
        The agents that are there; empty: the share of all ids.
    share : float
        In (0, 1]; 1 is everyone, whoever comes later too.
    """
    if share >= 1:
        return ALL
    if not agents:
        return max(1, int(share * ALL))
    places = sorted(place(salt, agent) for agent in agents)
    # A share is a decimal number; 0.2 of 15 is 3, though the product of the floats is above it.
    within = max(1, math.ceil(share * len(places) - 1e-9))
    return places[min(within, len(places)) - 1] + 1
