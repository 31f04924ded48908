"""What the shell shall do. What is sent is named as it is sent: a body of `schemas.messages`.

An effect may be performed again (after a crash, on a reconnect): performing it twice is the same as once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from coordinator.engine.state import RoundSummary
from glassfleet.contract.messages import Task
from glassfleet.private.groups import Edition, place
from schemas.codec import Value, encode
from schemas.envelope import Envelope, pack
from schemas.messages import PrivateGroup, Receipt, Request, Rosters


@dataclass(frozen=True)
class Group:
    """What a group of a private run is asked.

    Attributes
    ----------
    edition : Edition
        Over whom.
    body : PrivateGroup
        What its members are told. No ``members`` when each of them has answered in this edition and keeps what it was
        told; no ``founders``, and no ``totals``, when each has met them and keeps them. A group with founders has
        members.
    """

    edition: Edition
    body: PrivateGroup

    @cached_property
    def packed(self) -> bytes:
        """`body` as a blob (`schemas.envelope`), where it says who is in the group; else empty."""
        return pack(encode(self.body.model_dump())) if self.body.members else b""

    @cached_property
    def lasts(self) -> tuple[int, ...]:
        """The place of the last founder; of a group of an earlier run that new vehicles join, that of both."""
        roster = self.edition.roster
        old, new = (
            [place(roster.terms, each) for each in roster.founders if bool(each.anchor) is known]
            for known in (True, False)
        )
        return tuple(max(places) for places in (old, new) if places)


@dataclass(frozen=True)
class OpenRound:
    """Publish the request, retained.

    Attributes
    ----------
    number : int
        Round within its phase, from 1.
    attempt : int
        Try at this round, from 1.
    request : Request
        Without its rosters, which depend on the room of a message; ``remaining`` is the attempt's whole deadline.
    closes_at : float
        Deadline on the coordinator's time line.
    ordinal : int
        Counts the requests of the run, from 1.
    groups : tuple of Group
        Private runs: over whom each group answers.
    """

    run: str
    phase: Literal["pairing", "domain", "statistics"]
    number: int
    attempt: int
    task: Task
    request: Request
    closes_at: float
    ordinal: int
    groups: tuple[Group, ...] = ()

    @property
    def task_digest(self) -> str:
        """Identity of what is asked: the key of its answers."""
        return self.request.task_digest

    @property
    def key(self) -> str:
        """Tells it from the other requests of a coordinator."""
        return f"{self.run}/open/{self.phase}/{self.number}/{self.attempt}/{self.task_digest}"

    def envelope(self, fleet: str, remaining: float | None = None, piece: int | None = None) -> Envelope:
        """Return the message that opens the round; its size depends on the task, not on how many vehicles there are.

        Parameters
        ----------
        remaining : float or None
            Seconds until the deadline; None: all of them.
        piece : int or None
            Bytes of the parts of rosters; None: any.
        """
        changes: dict[str, Any] = {} if remaining is None else {"remaining": remaining}
        packed = sorted((last, group.packed) for group in self.groups if group.packed for last in group.lasts)
        if packed:
            changes["rosters"] = Rosters(
                piece=piece or max(len(blob) for _, blob in packed),
                last=[last for last, _ in packed],
                digests=[hashlib.sha256(blob).digest() for _, blob in packed],
                sizes=[len(blob) for _, blob in packed],
            )
        return Envelope(
            fleet=fleet,
            body=self.request.model_copy(update=changes),
            run=self.run,
            scheme=self.task.scheme,
            round=self.number,
            attempt=self.attempt,
            # Agents order the requests of a run by this: the time line of the journal never goes back, and the ordinal
            # tells apart what was opened at the same instant.
            time=self.closes_at - self.request.remaining + 1e-6 * self.ordinal,
        )

    def size(self, fleet: str) -> int:
        """Return how many bytes a vehicle gets, before they are sealed or cut: the request, and its group's roster."""
        return len(self.envelope(fleet).to_bytes()) + max((len(group.packed) for group in self.groups), default=0)


@dataclass(frozen=True)
class ClearRequest:
    """Publish an empty retained request: nothing is open."""

    run: str


@dataclass(frozen=True)
class SendReceipt:
    """Tell an agent what became of its message."""

    run: str
    agent: str
    receipt: Receipt


@dataclass(frozen=True)
class RoundClosed:
    """A round was counted: for logs and displays."""

    run: str
    summary: RoundSummary


@dataclass(frozen=True)
class Restarted:
    """A member was lost and the levels came out differently: growth went back to round `number`."""

    run: str
    number: int
    lost: tuple[str, ...]


@dataclass(frozen=True)
class WaitsForFormer:
    """A private run with its founders waits for vehicles of an earlier one until the deadline; told for displays."""

    run: str
    vehicles: tuple[str, ...]


@dataclass(frozen=True)
class InfluenceUnknown:
    """Whether one vehicle ruined the model could not be computed: a fault of ours, which ends no run; for the log."""

    run: str
    reason: str


@dataclass(frozen=True)
class Publish:
    """Register the model and publish it.

    Attributes
    ----------
    run : str
        The registry gives one version per run, however often this is performed.
    cohort : tuple of str
        Agents whose contributions the model rests on.
    summary : Mapping[str, Value]
        The scheme's own, beside the model.
    """

    run: str
    name: str
    model: Any
    cohort: tuple[str, ...]
    domain_contributors: tuple[str, ...]
    summary: Mapping[str, Value]


@dataclass(frozen=True)
class Ended:
    """The run reached its named end."""

    run: str
    outcome: Literal["finished", "failed", "cancelled"]
    reason: str


Effect: TypeAlias = (
    OpenRound
    | ClearRequest
    | SendReceipt
    | RoundClosed
    | Restarted
    | WaitsForFormer
    | InfluenceUnknown
    | Publish
    | Ended
)
