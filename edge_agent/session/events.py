"""What the session sees (events) and what the shell has to do about it (effects): plain frozen data.

What is read and what is sent stands in it as the wire has it: a body of `schemas.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from glassfleet.contract.messages import Task
from schemas.messages import Receipt, Refusal, Request

# Events


@dataclass(frozen=True)
class RequestSeen:
    """The open round of a run was read; `task` is the request's, read once, and `sent` the envelope's time."""

    run: str
    request: Request
    task: Task
    sent: float = 0.0
    round: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class RequestCleared:
    """The run ended: its retained request was cleared."""

    run: str


@dataclass(frozen=True)
class Computed:
    """The answer is in the outbox, safe from a crash."""

    run: str
    task_digest: str


@dataclass(frozen=True)
class ComputeFailed:
    """The task cannot be answered with what this vehicle has."""

    run: str
    task_digest: str
    reason: str


@dataclass(frozen=True)
class Connected:
    """A connection to the broker stands."""


@dataclass(frozen=True)
class Disconnected:
    """The connection was lost."""


@dataclass(frozen=True)
class Tick:
    """It is `at` seconds now (any steady origin)."""

    at: float


@dataclass(frozen=True)
class Restarted:
    """What the outbox remembers of a former life: (run, task digest) pairs."""

    pending: Sequence[tuple[str, str]] = ()
    parked: Sequence[tuple[str, str]] = ()
    ended: Sequence[tuple[str, str]] = ()


Event: TypeAlias = (
    RequestSeen | RequestCleared | Receipt | Computed | ComputeFailed | Connected | Disconnected | Tick | Restarted
)

# Effects


@dataclass(frozen=True)
class Compute:
    """Answer the task (from the outbox, if it is there), store it, then report `Computed` or `ComputeFailed`."""

    asked: RequestSeen


@dataclass(frozen=True)
class Send:
    """Publish the stored answer. `tries` counts from 1."""

    run: str
    task_digest: str
    tries: int


@dataclass(frozen=True)
class Refuse:
    """Tell the coordinator that there will be no answer, and why."""

    run: str
    body: Refusal
    round: int
    attempt: int


@dataclass(frozen=True)
class Park:
    """A newer request took this one's place: stop working on it; keep a stored answer while there is room."""

    run: str
    task_digest: str


@dataclass(frozen=True)
class Forget:
    """A receipt ended the send: drop the stored answer, remember that it ended. `round` 0: it is not known."""

    receipt: Receipt
    round: int = 0


@dataclass(frozen=True)
class EndRun:
    """The run is over: drop its answers and its snapshot."""

    run: str


Effect: TypeAlias = Compute | Send | Refuse | Park | Forget | EndRun
