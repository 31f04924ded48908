"""From bytes on a topic to events: everything a peer can get wrong ends here as a reason, never as a traceback."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TypeAlias

from broker.port import Message
from coordinator.engine import Answer, Malformed, Refused
from coordinator.engine.pairing import KIND, with_message
from schemas import codec, limits
from schemas.codec import Value
from schemas.envelope import Envelope
from schemas.errors import UsageError, WireError
from schemas.messages import AgentState, ContributionBody, CoordinatorState, Evaluation, Part, Refusal
from schemas.parts import named_blobs
from schemas.topics import PASSING, Address, Topics, check_id
from schemas.trust.joining import Assembler

UNKNOWN_TASK = "0" * 64
"""Stands for the task in a receipt for a message whose task could not be read."""

PARTS_BYTES = 4 * limits.MAX_DECODED_BYTES
"""Most bytes of unfinished answers, of all agents together; the message touched least recently gives way."""

PARTS_PER_AGENT = 2
"""Unfinished answers of one agent at once."""


@dataclass(frozen=True)
class Birth:
    """An agent is up; `born` is when its process began, by its own clock, seconds since the epoch."""

    agent: str
    body: AgentState
    born: float = 0.0


@dataclass(frozen=True)
class Death:
    """An agent is down: it was `stopped`, its data has a `fault`, or its connection broke off; `born` as in `Birth`.

    The incarnation is None when the retained state was cleared.
    """

    agent: str
    incarnation: str | None
    software: str = ""
    born: float = 0.0
    stopped: bool = False
    fault: str = ""


@dataclass(frozen=True)
class BadBirth:
    """What stands on an agent's own topic cannot be read."""

    agent: str
    code: str
    detail: str


@dataclass(frozen=True)
class Peer:
    """What stands on the coordinator's own topic: ours, of a life before, or of another coordinator."""

    incarnation: str
    status: str
    term: float


@dataclass(frozen=True)
class Scores:
    """An agent's local test scores."""

    agent: str
    body: Evaluation


@dataclass(frozen=True)
class RetainedRequest:
    """A request (of ours): it may have outlived its run, or its round. `blobs` are the topics that it names."""

    run: str
    blobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClearedRequest:
    """A retained request was cleared: by us when its run ended, or by somebody else."""

    run: str


@dataclass(frozen=True)
class Leftover:
    """A message of any age that an agent had the broker retain where nothing is.

    No answer, and no receipt: an agent sends what is true again until it has one.
    """

    topic: str


@dataclass(frozen=True)
class ForRun:
    """An event of one run."""

    run: str
    event: Answer | Refused | Malformed


@dataclass(frozen=True)
class Ignored:
    """Not for us, or beyond repair and without anybody to answer. `code` is counted."""

    code: str
    detail: str


Inbound: TypeAlias = (
    Birth | Death | BadBirth | Peer | Scores | RetainedRequest | ClearedRequest | Leftover | ForRun | Ignored
)


class Decoder:
    """Reads messages; keeps nothing but unfinished parts."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._assembler = Assembler(total_bytes=PARTS_BYTES, per_sender=PARTS_PER_AGENT)
        self._sizes: OrderedDict[tuple[str, str], int] = OrderedDict()

    def decode(self, message: Message, at: float) -> Inbound | None:
        """Return what a message says; None when it is one part of several. Raises nothing, whatever the bytes."""
        try:
            address = self._topics.parse(message.topic)
        except WireError as fault:
            return Ignored(fault.code, fault.detail)
        if address.kind in PASSING:
            if not message.payload:
                return None  # what was retained there was cleared
            if message.retained:
                return Leftover(message.topic)
        if address.kind == "contribution":
            return self._contribution(address, message.payload, at)
        if address.kind == "request":
            if not message.payload:
                return ClearedRequest(address.run)
            return RetainedRequest(address.run, self._blobs(message.payload))
        if address.kind == "coordinator-state":
            return self._peer(message.payload)
        return self._of_agent(address, message.payload) if address.kind in ("agent-state", "evaluation") else None

    def _of_agent(self, address: Address, payload: bytes) -> Inbound | None:
        if not payload:
            return Death(address.agent, None)
        try:
            envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
            _same_agent(envelope, address)
        except WireError as fault:
            if address.kind == "agent-state":
                return BadBirth(address.agent, fault.code, fault.detail)
            return Ignored(fault.code, fault.detail)
        match envelope.body:
            case AgentState(status="up") as body if address.kind == "agent-state":
                return Birth(address.agent, body, envelope.time)
            case AgentState() as body if address.kind == "agent-state":
                return Death(address.agent, body.incarnation, body.software, envelope.time, body.stopped, body.fault)
            case Evaluation() as body if address.kind == "evaluation":
                return Scores(address.agent, body)
        return Ignored("malformed", f"a {envelope.body.kind} does not belong on a topic for {address.kind}")

    def _peer(self, payload: bytes) -> Inbound:
        if not payload:
            return Peer("", "down", 0.0)
        try:
            envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
        except WireError as fault:
            return Ignored(fault.code, fault.detail)
        body = envelope.body
        if not isinstance(body, CoordinatorState):
            return Ignored("malformed", f"a {body.kind} does not belong on the coordinator's own topic")
        return Peer(body.incarnation, body.status, envelope.time)

    def forget(self, agent: str) -> None:
        """Drop the unfinished parts of an agent that has left."""
        self._assembler.forget(agent)

    def _blobs(self, payload: bytes) -> tuple[str, ...]:
        try:
            return named_blobs(Envelope.from_bytes(payload, fleet=self._topics.fleet).body, self._topics)
        except WireError:
            return ()

    def _contribution(self, address: Address, payload: bytes, at: float) -> Inbound | None:
        agent = address.agent
        try:
            envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
            _same_agent(envelope, address)
            run = envelope.run
            if not run:
                raise WireError("malformed", "a contribution names its run")  # noqa: TRY301  all faults take one way
            size, is_whole = len(payload), True
            if isinstance(envelope.body, Part):
                key = (agent, envelope.body.digest)
                size += self._sizes.pop(key, 0)
                whole = self._assembler.add(envelope)
                if whole is None:
                    self._sizes[key] = size
                    while len(self._sizes) > max(1, self._assembler.open_messages):
                        self._sizes.popitem(last=False)  # of messages that gave way
                    return None
                envelope, is_whole = whole, False
            match envelope.body:
                case ContributionBody() as body:
                    answer = Answer.of(
                        at,
                        agent,
                        body.task_digest,
                        rows=body.rows,
                        data_digest=body.data_digest,
                        contribution=body.contribution,
                        attempt=envelope.attempt,
                        size=size,
                        encoded=codec.encoded_part(payload, "body", "contribution") if is_whole else b"",
                    )
                    is_announcement = body.contribution.get("kind") == KIND
                    return ForRun(run, _announcement(answer, body.contribution, payload) if is_announcement else answer)
                case Refusal() as body:
                    return ForRun(run, Refused(at, agent, body.task_digest, body.reason))
            raise WireError(  # noqa: TRY301  all faults take one way
                "malformed", f"a {envelope.body.kind} is not a contribution"
            )
        except WireError as fault:
            return _refused(at, agent, payload, fault)
        except (TypeError, ValueError) as fault:  # values that decode but cannot be encoded again, e.g. 2^64 in a list
            return _refused(at, agent, payload, WireError("malformed", str(fault)))


def _announcement(answer: Answer, contribution: dict[str, Value], message: bytes) -> Answer:
    """Return an announcement with the message it came in, which is not in its digest: its seal may be renewed."""
    return replace(answer, contribution=with_message(contribution, message), encoded=b"")


def _same_agent(envelope: Envelope, address: Address) -> None:
    if envelope.agent != address.agent:
        raise WireError("wrong-agent", "the agent in the message is not the agent of the topic")


def _refused(at: float, agent: str, payload: bytes, fault: WireError) -> ForRun | Ignored:
    """Return what a malformed message is, with run and task if they can be read, so that its receipt ends the send."""
    try:
        value = codec.decode(payload, max_bytes=limits.MAX_DECODED_BYTES)
        run = check_id("run", value["run"])
    except (WireError, UsageError, LookupError, TypeError):  # an array where a map belongs raises IndexError
        return Ignored(fault.code, fault.detail)
    try:
        digest = value["body"]["task_digest"]
    except (LookupError, TypeError):
        digest = UNKNOWN_TASK
    is_digest = isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    reason = f"{fault.code}: {fault.detail}"[:480]
    return ForRun(run, Malformed(at, agent, digest if is_digest else UNKNOWN_TASK, reason))
