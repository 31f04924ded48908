"""What the coordinator needs of a journal; every journal passes ``tests/conformance/test_journal.py``.

Rules:

1. ``append`` is all or nothing, and what it returned from survives SIGKILL and, with ``synchronous=FULL``, a power cut.
2. Records come back in the order in which they were appended. One of the kind `CHECKPOINT` takes the place of all
   former ones of its run, in the same transaction: of the first of them, whose wall clock it keeps.
3. One coordinator at a time: opening a journal that another process holds raises StorageError, or waits when told so;
   who has lost the lock can write nothing more.
4. Every row has a checksum, and one that it does not fit is never handed out. Where the record that was written last
   is such a one, it is a torn write: it is removed and reported in ``damage``, unless it is a checkpoint. Any other one
   concerns its own run or model only: it is reported in ``damaged``, asking for the run raises DamagedError, the model
   is listed without its record, a decision is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import sqlalchemy as sa

from schemas.record import CENTRAL

CHECKPOINT = "checkpoint"
"""Kind of the records that say all that has happened to a run so far, see `coordinator.engine.checkpoint`."""

REFERENCES = f"{CENTRAL}-"
"""What stands for the run of a central reference begins so: there is no such run, see `coordinator.models.central`."""

ROLLOUTS = "rollout."
"""Kinds of decisions that are events of a rollout begin so, see `coordinator.models.rollout.state`."""
ROLLOUT_STARTED = f"{ROLLOUTS}started"
"""The first decision of each rollout; at most one rollout of a name lives, and it is the newest."""

SCHEDULE = "schedule"
"""Kinds of decisions about a schedule begin so, and so does what stands for the model: no model's name has a blank."""


DECLARED = ("domain", "bounds", "memory")
"""What a run may declare of columns; a list tells only whether it does, as ``declares``."""
OVERVIEW: Mapping[str, tuple[str, ...]] = {
    **{
        name: (name,)
        for name in (
            *("run", "scheme", "participation", "state", "outcome", "reason", "phase", "started", "ended", "target"),
            *("model", "size", "scores"),
        )
    },
    "name": ("spec", "model"),
    "parameters": ("spec", "parameters"),
    "private": ("spec", "private"),
    **{name: ("spec", name) for name in DECLARED},
}
"""What a list tells of a run, and where it stands in the run's document, which may be thousands of times as large."""
COUNTED = ("rounds", "cohort")
"""Lists of a run's document of which the length is told as well."""


def overview(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list tells of a run, see `OVERVIEW` and `COUNTED`; None where the document does not say it."""
    values: dict[str, Any] = {}
    for name, place in OVERVIEW.items():
        part: Any = document
        for key in place:
            part = part.get(key) if isinstance(part, dict) else None
        values[name] = part
    return brief(values | {name: len(document[name]) if name in document else None for name in COUNTED})


def brief(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an overview from what stands at its places."""
    declares = any(values[name] for name in DECLARED)
    return {name: value for name, value in values.items() if name not in DECLARED} | {"declares": declares}


@dataclass(frozen=True)
class Damaged:
    """A row that is not as it was written.

    Attributes
    ----------
    table : str
        ``records``, ``runs``, ``models``, ``decisions`` or ``witnessed``; ``file``: all of them may suffer.
    row : str
        Its key; empty: more than one.
    run, model : str
        Whose it is, as far as it can be read.
    """

    table: str
    row: str
    fault: str
    run: str = ""
    model: str = ""

    def __str__(self) -> str:
        whose = "".join(f", {what} {name!r}" for what, name in (("run", self.run), ("model", self.model)) if name)
        return f"{self.table}{' row ' if self.row else ''}{self.row}{whose}: {self.fault}"


@dataclass(frozen=True)
class Entry:
    """One event, to be appended.

    Attributes
    ----------
    kind : str
        Of the event; for people who look into the database.
    at : float
        The event's time on the coordinator's time line, seconds.
    wall : float
        Wall clock, seconds since the epoch; for displays only.
    body : bytes
        The encoded event.
    """

    run: str
    kind: str
    at: float
    wall: float
    body: bytes


@dataclass(frozen=True)
class StoredModel:
    """A row of the model registry. `record` is ``ModelRecord.to_bytes()``; empty when the row is damaged."""

    name: str
    version: int
    digest: str
    run: str
    record: bytes
    is_damaged: bool = False


@dataclass(frozen=True)
class Decision:
    """What was decided about a model or a schedule: which version is current, what a night became. Append-only.

    Attributes
    ----------
    name : str
        The model, or `SCHEDULE`, a blank and the schedule's name.
    kind : str
        See `coordinator.models.aliases`, `coordinator.models.rollout.state` and `coordinator.runs.nights`.
    at : float
        On the coordinator's time line, seconds.
    wall : float
        Wall clock, seconds since the epoch; for displays only.
    body : dict
        JSON values.
    """

    name: str
    kind: str
    at: float
    wall: float
    body: dict[str, Any]


@dataclass(frozen=True)
class Leader:
    """Who leads with a journal, or led last.

    Attributes
    ----------
    incarnation : str
        Tells this life of a coordinator from others.
    about : dict
        JSON values: what others should know of it, see `coordinator.process.standby`.
    """

    incarnation: str
    about: dict[str, Any]


Kept = Literal["witnessed", "scores", "notices"]
"""What is kept by vehicle: heads of its log of forecasts that were seen; its scores of model versions. By address: what
was told there."""


class Journal(Protocol):
    """Append-only events, the documents of ended runs, and the model registry, in one place with one lock."""

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found torn when the journal was opened, in words."""

    @property
    def damaged(self) -> tuple[Damaged, ...]:
        """Runs, models and decisions that were found damaged when the journal was opened."""

    def append(self, entries: Sequence[Entry], decisions: Sequence[Decision] = ()) -> None:
        """Append all entries, and decisions, in one transaction (rule 2).

        Raises StorageError and changes nothing when it cannot.
        """

    def unfinished(self) -> list[str]:
        """Return the runs with records that have not been closed, in the order of their start."""

    def records(self, run: str) -> Iterator[Entry]:
        """Yield the records of one run, in order; raises DamagedError on a damaged one."""

    def last_time(self) -> float | None:
        """Return the latest ``at`` ever appended; None for a new journal."""

    def close_run(self, run: str, document: dict[str, Any], at: float) -> None:
        """Store the document of an ended run (idempotent); its records are no longer needed to resume."""

    def forget_records(self, until: float) -> bool:
        """Let the records go of the run that was closed first, by `until`, of those that have any.

        Returns False when there is none. The database gives their room back.
        """

    def compact(
        self,
        keep_runs: int,
        keep_versions: int,
        keep_models: Collection[tuple[str, int]] = (),
        rollouts_from: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Forget all but the newest `keep_runs` closed runs: documents, records and models; return the forgotten ids.

        The newest `keep_versions` versions of each model stay, however old their runs are, and so do `keep_models`:
        names and versions. When a run is forgotten, central references that are neither go too: they have no run that
        could be forgotten. A model of another run stays, whether or not that run is known.

        Decisions stay, but for the events of the rollouts of a name that began before ``rollouts_from[name]``, a time
        on the coordinator's time line. Where no rollout of the name began then or later, all of them stay.
        """

    def ended(self) -> list[str]:
        """Ids of closed runs, in the order of closing."""

    def document(self, run: str) -> dict[str, Any] | None:
        """Return the document of a closed run; raises DamagedError when its row is damaged."""

    def overviews(self, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return by run the `overview` of closed runs, without reading the rest; a damaged one is left out or wrong."""

    def add_model(self, name: str, run: str, make: Callable[[int], tuple[str, bytes]]) -> StoredModel:
        """Register the model of a run under the next version of `name`; a run that has one gets that one back.

        `make` returns digest and record for a version number. A damaged one is made again under its version.
        """

    def put_record(self, model: StoredModel, decisions: Sequence[Decision] = ()) -> None:
        """Put another record in place of a registered version's, and append decisions, in one transaction.

        Raises StorageError and changes nothing when there is no such version with this digest.
        """

    def models(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models, of one name or all, by name and version; a damaged one without its record."""

    def model(self, name: str, version: int) -> StoredModel | None:
        """Return one registered model; None: there is none."""

    def heads(self, name: str | None = None) -> list[StoredModel]:
        """Return as `models`, without reading the records; damage since the opening is not seen."""

    def newest(self, name: str, count: int) -> list[int]:
        """Return the newest `count` versions of a model, without their records, newest first."""

    def decisions(self, name: str | None = None) -> list[Decision]:
        """Return the decisions about one model, or all, in order."""

    def lead(self, leader: Leader) -> None:
        """Write down who leads, in place of who did before."""

    def leader(self) -> Leader | None:
        """Return who leads, or led last; None: nobody is known."""

    def keep(self, what: Kept, values: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> int:
        """Write down something by vehicle, in place of what was, in one transaction.

        That of more than `most` vehicles is left out; returns how many. They are JSON values, see
        `coordinator.fleet.witness` and `coordinator.fleet.directory`.
        """

    def kept(self, what: Kept, agents: Collection[str]) -> dict[str, list[dict[str, Any]]]:
        """Return what `keep` wrote of these vehicles, where there is something that is whole. From any thread."""

    def check(self) -> None:
        """Raise StorageError when nothing can be written any more because the lock was lost."""

    def size_bytes(self) -> int:
        """Return the room that the journal takes; raises StorageError when it cannot be asked. From any thread."""

    def close(self) -> None:
        """Release the lock. Idempotent."""


Again = Callable[[str], bool]
"""Asked each time a journal cannot be had, with why (empty: another coordinator has it): whether to try again. It takes
its time to answer."""


class Patience:
    """Tries again for some seconds, but only where another coordinator is in the way: it may be about to end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self, why: str) -> bool:
        """Return whether to try again."""
        if why or time.monotonic() >= self._end:
            return False
        time.sleep(0.05)
        return True


class Lock(Protocol):
    """What keeps other coordinators from writing; it is held from the beginning."""

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """Give a connection in a transaction; raises StorageError when the lock is not held any more."""

    def release(self) -> None:
        """Give the journal free. Idempotent."""
