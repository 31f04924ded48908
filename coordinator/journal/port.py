"""What the coordinator needs of a journal; every journal passes ``tests/conformance/test_journal.py``.

Rules:

1. ``append`` is all or nothing, and what it returned from survives SIGKILL and, with ``synchronous=FULL``, a power cut.
2. Records come back in the order in which they were appended.
3. One coordinator at a time: opening a journal that another process holds raises StorageError.
4. A record whose checksum does not fit is never handed out. At the very end of the journal it is a torn write: it is
   removed and reported in ``damage``. Anywhere else it raises StorageError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.record import CENTRAL

REFERENCES = f"{CENTRAL}-"
"""What stands for the run of a central reference begins so: there is no such run, see `coordinator.central`."""


@dataclass(frozen=True)
class Entry:
    """One event, to be appended.

    Attributes
    ----------
    run : str
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

    @property
    def checksum(self) -> str:
        """BLAKE2b-128 (hex) over everything but the wall clock."""
        head = f"{self.run}\n{self.kind}\n{self.at!r}\n".encode()
        return hashlib.blake2b(head + self.body, digest_size=16).hexdigest()


@dataclass(frozen=True)
class StoredModel:
    """A row of the model registry. `record` is ``ModelRecord.to_bytes()``."""

    name: str
    version: int
    digest: str
    run: str
    record: bytes


@dataclass(frozen=True)
class Decision:
    """What was decided about a model: which version is current, and each step of a rollout. Append-only.

    Attributes
    ----------
    name : str
        The model.
    kind : str
        See `coordinator.aliases` and `coordinator.rollout.machine`.
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


class Journal(Protocol):
    """Append-only events, the documents of ended runs, and the model registry, in one place with one lock."""

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found torn when the journal was opened, in words."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Append all entries in one transaction; raises StorageError and changes nothing when that cannot be done."""
        ...

    def unfinished(self) -> list[str]:
        """Return the runs with records that have not been closed, in the order of their start."""
        ...

    def records(self, run: str) -> Iterator[Entry]:
        """Yield the records of one run, in order; raises StorageError on a damaged one."""
        ...

    def last_time(self) -> float | None:
        """Return the latest ``at`` ever appended; None for a new journal."""
        ...

    def close_run(self, run: str, document: dict[str, Any], at: float, *, keep_records: bool = True) -> None:
        """Store the document of an ended run (idempotent); its records are no longer needed to resume."""
        ...

    def compact(self, keep_runs: int, keep_versions: int, keep_models: Collection[tuple[str, int]] = ()) -> list[str]:
        """Forget all but the newest `keep_runs` closed runs: documents, records and models; return the forgotten ids.

        The newest `keep_versions` versions of each model stay, however old their runs are, and so do `keep_models`:
        names and versions. Decisions stay. When a run is forgotten, central references that are neither go too: they
        have no run that could be forgotten. A model of another run stays, whether or not that run is known.
        """
        ...

    def ended(self) -> list[str]:
        """Ids of closed runs, in the order of closing."""
        ...

    def document(self, run: str) -> dict[str, Any] | None:
        """Return the document of a closed run."""
        ...

    def add_model(self, name: str, run: str, make: Callable[[int], tuple[str, bytes]]) -> StoredModel:
        """Register the model of a run under the next version of `name`; a run that has one gets that one back.

        `make` returns digest and record for a version number.
        """
        ...

    def put_record(self, model: StoredModel, decisions: Sequence[Decision] = ()) -> None:
        """Put another record in place of a registered version's, and append decisions, in one transaction.

        Raises StorageError and changes nothing when there is no such version with this digest.
        """
        ...

    def models(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models, of one name or all, by name and version."""
        ...

    def model(self, name: str, version: int) -> StoredModel | None:
        """Return one registered model; None: there is none."""
        ...

    def numbers(self) -> list[tuple[str, int]]:
        """Return names and versions of all registered models, without their records, by name and version."""
        ...

    def newest(self, name: str, count: int) -> list[int]:
        """Return the newest `count` versions of a model, without their records, newest first."""
        ...

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Append decisions about models in one transaction; as `append`."""
        ...

    def decisions(self, name: str | None = None) -> list[Decision]:
        """Return the decisions about one model, or all, in order."""
        ...

    def size_bytes(self) -> int | None:
        """Return the room that the journal takes; None when there is no telling. From any thread."""
        ...

    def close(self) -> None:
        """Release the lock. Idempotent."""
        ...
