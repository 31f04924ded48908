"""What the shell shall do.

An effect may be performed again (after a crash, on a reconnect): performing it twice is the same as once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from coordinator.engine.state import RoundSummary
from glassfleet.contract.messages import Task
from glassfleet.private.groups import Edition, place
from glassfleet.private.totals import Total
from schemas.codec import Value, encode
from schemas.envelope import Envelope
from schemas.limits import MAX_MESSAGE_BYTES
from schemas.messages import Outcome, PrivateGroup, Request, Rosters, Sample
from schemas.parts import pack
from schemas.trial import place_in_sample
from schemas.window import Window

MOST_NAMED = 64
"""Most vehicles that a request asks by name, where some are asked. Those of former software understand nothing else."""


@dataclass(frozen=True)
class Group:
    """What a group of a private run is asked.

    Attributes
    ----------
    edition : Edition
        Over whom.
    question : str
        Identity of the task in that edition.
    members : tuple of str
        Those of the edition; none when each of them has answered in it and keeps what it was told.
    founders : tuple of bytes
        The founders' announcements as they came, in the order of id; none when each member has met them and keeps them.
        A group with founders has members.
    totals : tuple of Total
        Those of earlier runs that a founder announced; none where there are no founders.
    """

    edition: Edition
    question: str
    members: tuple[str, ...]
    founders: tuple[bytes, ...]
    totals: tuple[Total, ...]

    @property
    def body(self) -> PrivateGroup:
        """What its members are told."""
        return PrivateGroup(
            group=self.edition.group,
            number=self.edition.number,
            members=list(self.members),
            question=self.question,
            founders=list(self.founders),
            totals=[each.to_value() for each in self.totals],
            renews=self.edition.roster.renews,
        )

    @cached_property
    def packed(self) -> bytes:
        """`body` as a blob (`schemas.parts`), where it says who is in the group; else empty."""
        return pack(encode(self.body.model_dump())) if self.members else b""

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
    asked : tuple of str or None
        Who may answer; None: every agent that can.
    is_fixed : bool
        Whether these are the members of a fixed cohort: nobody else is asked again in this run.
    salt : str
        What they were drawn by, if they are a sample.
    without : tuple of str
        Who is never asked.
    window : Window or None
        Which rows of a vehicle count.
    closes_at : float
        Deadline on the coordinator's time line; the request carries the seconds that remain.
    deadline : float
        The seconds that the attempt had when it was opened.
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
    task_digest: str
    asked: tuple[str, ...] | None
    closes_at: float
    deadline: float
    ordinal: int
    groups: tuple[Group, ...] = ()
    is_fixed: bool = False
    salt: str = ""
    without: tuple[str, ...] = ()
    window: Window | None = None

    @property
    def key(self) -> str:
        """Tells it from the other requests of a coordinator."""
        return f"{self.run}/open/{self.phase}/{self.number}/{self.attempt}/{self.task_digest}"


@dataclass(frozen=True)
class ClearRequest:
    """Publish an empty retained request: nothing is open."""

    run: str


@dataclass(frozen=True)
class SendReceipt:
    """Tell an agent what became of its message."""

    run: str
    agent: str
    task_digest: str
    outcome: Outcome
    reason: str = ""


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


def bytes_of(effect: OpenRound, fleet: str) -> int:
    """Return how many bytes a vehicle gets, before they are sealed or cut: the request, and its group's roster."""
    rosters = (len(group.packed) for group in effect.groups)
    return len(envelope_of(effect, fleet, 0.0).to_bytes()) + max(rosters, default=0)


def envelope_of(effect: OpenRound, fleet: str, remaining: float, piece: int = MAX_MESSAGE_BYTES) -> Envelope:
    """Return the message that opens a round; its size depends on the task, not on how many vehicles there are.

    Parameters
    ----------
    remaining : float
        Seconds until the deadline.
    piece : int
        Bytes of the parts of rosters.
    """
    asked, sample, without = effect.asked, None, None
    if effect.is_fixed and not effect.without:
        asked = None
    elif asked is not None and len(asked) > MOST_NAMED and (effect.salt or effect.without):
        if effect.salt:
            sample = Sample(salt=effect.salt, last=max(place_in_sample(effect.salt, agent) for agent in asked))
        without, asked = list(effect.without) or None, None
    request = Request(
        task=effect.task.to_value(),
        task_digest=effect.task_digest,
        remaining=remaining,
        asked=None if asked is None else list(asked),
        private=[group.body for group in effect.groups if not group.packed] if effect.groups else None,
        rosters=_rosters(effect.groups, piece),
        sample=sample,
        without=without,
        window=effect.window,
    )
    return Envelope(
        fleet=fleet,
        body=request,
        run=effect.run,
        scheme=effect.task.scheme,
        round=effect.number,
        attempt=effect.attempt,
        # Agents order the requests of a run by this: the time line of the journal never goes back, and the ordinal
        # tells apart what was opened at the same instant.
        time=effect.closes_at - effect.deadline + 1e-6 * effect.ordinal,
    )


def _rosters(groups: Iterable[Group], piece: int) -> Rosters | None:
    packed = sorted((last, group.packed) for group in groups if group.packed for last in group.lasts)
    if not packed:
        return None
    return Rosters(
        piece=piece,
        last=[last for last, _ in packed],
        digests=[hashlib.sha256(blob).digest() for _, blob in packed],
        sizes=[len(blob) for _, blob in packed],
    )
