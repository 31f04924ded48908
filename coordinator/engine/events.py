"""What can happen to a run. Every event carries the time and can be written to the journal and read back.

``at`` is seconds on the coordinator's own time line, which only goes forward, and stands still while no coordinator
runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, ClassVar, TypeAlias, get_args

from coordinator.specification.run import RunSpec
from glassfleet.private.totals import Total
from schemas.codec import Value, decode, encode, encode_around, encoded_part
from schemas.limits import MAX_DECODED_BYTES
from schemas.messages import ContributionBody, Outcome

NUMBERS = "numbers"
"""What a column holds; behind it may be `` in`` and the unit."""

Encoded: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class Offer:
    """What an agent says it can do, from its birth certificate; `fault`: why it is down and cannot use its data."""

    schemes: frozenset[str] = frozenset()
    features: tuple[str, ...] = ()
    target: str = ""
    kinds: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    plan: str = ""
    held_back: str = ""
    fault: str = ""

    @property
    def kind_of(self) -> dict[str, str]:
        """What each column holds."""
        names = (*self.features, self.target)
        return dict(zip(names, self.kinds or (NUMBERS,) * len(names), strict=True))

    def odd_in(self, most: Mapping[str, str]) -> str:
        """Return in which column it holds something else than most, and what; empty: in none.

        Of a kind "" in `most` nothing is known.
        """
        own = self.kind_of
        for name, kind in most.items():
            mine = own.get(name, kind)
            if kind and mine != kind and ("words" in (mine, kind) or NUMBERS not in (mine, kind)):
                return f"has {mine} in {name!r}, where most have {kind}"
        return ""

    def to_value(self) -> dict[str, Value]:
        """Return the offer as a codec value; of what is not always told, without what is empty."""
        told = {"schemes": sorted(self.schemes), "features": list(self.features), "target": self.target}
        more = {name: each for name, each in vars(self).items() if each and name not in told}
        return told | {name: each if isinstance(each, str) else list(each) for name, each in more.items()}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Offer:
        """Rebuild an offer."""
        fields: dict[str, Any] = {
            name: each if isinstance(each, str) else tuple(each) for name, each in value.items() if name != "schemes"
        }
        return cls(frozenset(value["schemes"]), **fields)


@dataclass(frozen=True)
class TimedEvent:
    """What happened at a time; `kind` is its name in the journal."""

    kind: ClassVar[str]
    at: float


@dataclass(frozen=True)
class TaskEvent(TimedEvent):
    """What an agent says about a task; the agent is the topic's. The digest may be empty: the task is not known."""

    agent: str
    task_digest: str


@dataclass(frozen=True)
class Start(TimedEvent):
    """A run is wanted.

    Attributes
    ----------
    agents : Mapping[str, Offer]
        The agents that are up now, and what they offer.
    champion : Mapping or None
        Private runs: document of the model that the name stands for now.
    formers : tuple of Mapping
        Private runs: documents of earlier ones that the finished model is compared with, too.
    earlier : tuple of Total
        Private runs: earlier ones, the newest first.
    false_answers : tuple of str
        Private runs: vehicles that are left out as they gave false answers in an earlier one.
    """

    kind = "start"
    spec: RunSpec
    agents: Mapping[str, Offer] = field(default_factory=dict)
    champion: Mapping[str, Any] | None = None
    formers: tuple[Mapping[str, Any], ...] = ()
    earlier: tuple[Total, ...] = ()
    false_answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint(TimedEvent):
    """All that has happened to a run so far, in one: the journal may begin with it. See `checkpoint`.

    Attributes
    ----------
    agents : sequence of str
        All that `state` speaks of, in the order of id.
    """

    kind = "checkpoint"
    spec: RunSpec
    agents: Sequence[str]
    state: Mapping[str, Value]


@dataclass(frozen=True)
class AgentUp(TimedEvent):
    """An agent's birth certificate, or its word that its data cannot be used: an offer with a fault."""

    kind = "agent-up"
    agent: str
    offer: Offer


@dataclass(frozen=True)
class AgentDown(TimedEvent):
    """An agent's last will. It may come back within the deadline: nobody is dropped for it."""

    kind = "agent-down"
    agent: str


@dataclass(frozen=True)
class Answer(TaskEvent):
    """A contribution, decoded but not believed.

    Attributes
    ----------
    data_digest : str
        Keyed digest of the agent's snapshot of its rows.
    contribution : Mapping
        ``Contribution.to_value()``.
    answer_digest : str
        SHA-256 of what the agent says (rows, data digest, contribution): equal for a resend.
    attempt : int
        Informative.
    size : int
        Encoded bytes, for the record.
    encoded : bytes or memoryview
        `contribution` as the agent encoded it; empty in an event that was read back.
    impossible : str or None
        Why it cannot be true, see `Engine.impossible`; empty: it can; None: nobody has looked yet.
    """

    kind = "answer"
    rows: int
    data_digest: str
    contribution: Mapping[str, Value]
    answer_digest: str
    attempt: int = 0
    size: int = 0
    encoded: Encoded = field(default=b"", repr=False, compare=False)
    impossible: str | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, at: float, agent: str, body: ContributionBody, *, attempt: int = 0, size: int = 0, encoded: Encoded = b""
    ) -> Answer:
        """Return what a message says, with its digest; `encoded` is its contribution, empty: to be encoded here."""
        encoded = encoded or encode(body.contribution)
        rows, data = body.rows, body.data_digest
        before, behind = encode_around({"rows": rows, "data": data}, "contribution")
        said = hashlib.sha256(before)
        said.update(encoded)
        said.update(behind)
        digest = said.hexdigest()
        return cls(at, agent, body.task_digest, rows, data, body.contribution, digest, attempt, size, encoded)


@dataclass(frozen=True)
class Refused(TaskEvent):
    """An agent says that it cannot answer a task."""

    kind = "refused"
    reason: str


@dataclass(frozen=True)
class Malformed(TaskEvent):
    """A message on a contribution topic that is not a contribution."""

    kind = "malformed"
    reason: str


@dataclass(frozen=True)
class TurnedAway(TaskEvent):
    """The journal's short form of an `Answer` that was not accepted: the same change, without the payload."""

    kind = "turned-away"
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Counted(TimedEvent):
    """The journal's form of answers that were turned away and changed nothing but counters, many in one.

    Attributes
    ----------
    at : float
        Of the last of them.
    counts : Mapping
        How many, by task digest (empty: of no round of this run) and outcome.
    """

    kind = "counted"
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Tick(TimedEvent):
    """Time has passed."""

    kind = "tick"


@dataclass(frozen=True)
class NoBroker(TimedEvent):
    """The coordinator was without a broker: nobody could answer it, whatever they did.

    Moves nothing by itself, the time neither: what came before may still wait to be taken.

    Attributes
    ----------
    at : float
        Until when.
    since : float
        No two of these overlap.
    """

    kind = "no-broker"
    since: float


@dataclass(frozen=True)
class Cancel(TimedEvent):
    """An operator ends the run."""

    kind = "cancel"
    reason: str = "cancelled by an operator"


@dataclass(frozen=True)
class Unable(TimedEvent):
    """The shell cannot do what the run needs.

    Attributes
    ----------
    cause : "request-too-large" or "model-unpublishable"
        The named end that follows.
    """

    kind = "unable"
    cause: str
    reason: str


Event: TypeAlias = (
    Start
    | Checkpoint
    | AgentUp
    | AgentDown
    | Answer
    | Refused
    | Malformed
    | TurnedAway
    | Counted
    | Tick
    | NoBroker
    | Cancel
    | Unable
)

_KINDS: dict[str, type[Any]] = {event.kind: event for event in get_args(Event)}


def to_bytes(event: Event) -> bytes:
    """Return an event encoded, for the journal."""
    value = to_value(event)
    if not isinstance(event, Answer) or not event.encoded:
        return encode(value)
    del value["contribution"]
    before, behind = encode_around(value, "contribution")
    return b"".join((before, event.encoded, behind))


def from_bytes(data: bytes, at: float, impossible: str | None = None) -> Event:
    """Rebuild an event of an agent from `to_bytes`, at another time; `impossible` is an answer's."""
    value = decode(data, max_bytes=2 * MAX_DECODED_BYTES) | {"at": at}
    if value["kind"] == Answer.kind:
        value |= {"encoded": encoded_part(data, "contribution"), "impossible": impossible}
    return from_value(value)


def to_value(event: Event) -> dict[str, Value]:
    """Return an event as a codec value."""
    value: dict[str, Value] = {"kind": event.kind, **vars(event)}
    for shortcut in ("encoded", "impossible"):
        value.pop(shortcut, None)
    if isinstance(event, Start | Checkpoint):
        value["spec"] = event.spec.to_document()
    if isinstance(event, Start):
        value["agents"] = {agent: offer.to_value() for agent, offer in event.agents.items()}
        value["earlier"] = [each.to_value() for each in event.earlier]
    elif isinstance(event, AgentUp):
        value["offer"] = event.offer.to_value()
    return value


def from_value(value: Mapping[str, Any]) -> Event:
    """Rebuild an event from `to_value`; raises KeyError or TypeError when it is not one."""
    fields = dict(value)
    kind = _KINDS[fields.pop("kind")]
    if "agent" in fields:
        fields["agent"] = intern(fields["agent"])
    if kind in (Start, Checkpoint):
        fields["spec"] = RunSpec.from_document(fields["spec"])
    if kind is Start:
        fields["agents"] = {agent: Offer.from_value(offer) for agent, offer in fields["agents"].items()}
        fields["false_answers"] = tuple(fields["false_answers"])
        fields["formers"] = tuple(fields["formers"])
        fields["earlier"] = tuple(map(Total.from_value, fields["earlier"]))
    elif kind is AgentUp:
        fields["offer"] = Offer.from_value(fields["offer"])
    event: Event = kind(**fields)
    return event
