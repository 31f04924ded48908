"""Between broker and engine: what comes is decoded into events, what the engine asks for is encoded and sent.

Everything a peer can get wrong ends in the decoder as a reason, never as a traceback. Nothing is decided here. What
cannot be sent is found out by `Publisher.prepare`, before the journal has the step that asks for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

from broker.port import Message, Transport
from coordinator.engine import Answer, Malformed, OpenRound, Refused, SendReceipt
from coordinator.engine.events import from_bytes
from coordinator.engine.pairing import KIND, with_message
from schemas import codec, limits
from schemas.envelope import Envelope, Retained, clearing, frames_for_blobs, frames_for_request, named_blobs
from schemas.errors import UsageError, WireError
from schemas.messages import AgentState, Body, ContributionBody, CoordinatorState, Evaluation, Part, Refusal, Request
from schemas.topics import PASSING, Address, Topics, check_id, shard_of
from schemas.trust.joining import Assembler

UNKNOWN_TASK = "0" * 64
"""Stands for the task in a receipt for a message whose task could not be read."""


PARTS_BYTES = 4 * limits.MAX_DECODED_BYTES
"""Most bytes of unfinished answers, of all agents together; the message touched least recently gives way."""


PARTS_PER_AGENT = 2
"""Unfinished answers of one agent at once."""


@dataclass(frozen=True)
class RetainedRequest:
    """A request (of ours): it may have outlived its run, or its round. `blobs` are the topics that it names."""

    run: str
    blobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leftover:
    """A message of any age that an agent had the broker retain where nothing is.

    No answer, and no receipt: an agent sends what is true again until it has one.
    """

    topic: str


@dataclass(frozen=True)
class Verified(Message):
    """What an agent said of a task, verified and decoded by an intake worker; `payload` is the event, see `to_bytes`.

    Attributes
    ----------
    arrived : float
        When the worker had it, seconds of the monotonic clock.
    impossible : str or None
        See `Answer`.
    """

    run: str = ""
    arrived: float = 0.0
    impossible: str | None = None

    def said(self, at: float) -> ForRun:
        """Return what it says, at a time of the coordinator's."""
        return self.run, cast("Said", from_bytes(self.payload, at, self.impossible))


@dataclass(frozen=True)
class Ignored:
    """Not for us, or beyond repair. `code` is counted; `agent`: on whose own topic it stands, empty: on nobody's."""

    code: str
    detail: str
    agent: str = ""


Said: TypeAlias = Answer | Refused | Malformed
"""What an agent says of a task."""

ForRun: TypeAlias = tuple[str, Said]
"""An event, and the run that it is for."""

Inbound: TypeAlias = ForRun | Envelope | Address | RetainedRequest | Leftover | Ignored
"""An envelope is a state or scores, on their own topics; an address is where a retained one was cleared."""


_BODIES: dict[str, type[Body]] = {
    "agent-state": AgentState,
    "coordinator-state": CoordinatorState,
    "evaluation": Evaluation,
    "request": Request,
}
"""What is read of others than contributions, by kind of topic."""


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
        kind, payload = address.kind, message.payload
        if kind in PASSING and not payload:
            return None  # what was retained there was cleared
        if kind in PASSING and message.retained:
            return Leftover(message.topic)
        if kind == "contribution":
            return self._contribution(address, payload, at)
        if kind not in _BODIES:
            return None
        if not payload:
            return address
        if kind == "request":
            return RetainedRequest(address.run, self._blobs(payload))
        try:
            envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
            _check_agent(envelope, address)
        except WireError as fault:
            return Ignored(fault.code, fault.detail, address.agent if kind == "agent-state" else "")
        if isinstance(envelope.body, _BODIES[kind]):
            return envelope
        return Ignored("malformed", f"a {envelope.body.kind} does not belong on a topic for {kind}")

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
            _check_agent(envelope, address)
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
                    encoded = codec.encoded_part(payload, "body", "contribution") if is_whole else b""
                    answer = Answer.of(at, agent, body, attempt=envelope.attempt, size=size, encoded=encoded)
                    if body.contribution.get("kind") == KIND:  # not in its digest: the message's seal may be renewed
                        announced = with_message(body.contribution, payload)
                        answer = replace(answer, contribution=announced, encoded=b"")
                    return run, answer
                case Refusal() as body:
                    return run, Refused(at, agent, body.task_digest, body.reason)
            raise WireError(  # noqa: TRY301  all faults take one way
                "malformed", f"a {envelope.body.kind} is not a contribution"
            )
        except WireError as fault:
            return _refused(at, agent, payload, fault)
        except (TypeError, ValueError) as fault:  # values that decode but cannot be encoded again, e.g. 2^64 in a list
            return _refused(at, agent, payload, WireError("malformed", str(fault)))


def _check_agent(envelope: Envelope, address: Address) -> None:
    if envelope.agent != address.agent:
        raise WireError("wrong-agent", "the agent in the message is not the agent of the topic")
    if address.kind == "contribution" and address.number != (shard := shard_of(address.agent)):
        raise WireError("wrong-shard", f"this agent's shard is {shard}, the topic's {address.number}")


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
    return run, Malformed(at, agent, digest if is_digest else UNKNOWN_TASK, reason)


def birth(topics: Topics, incarnation: str, software: str, status: str, *, term: float = 0.0) -> Message:
    """Return the retained message that says whether the coordinator is up; the one with ``down`` is its last will.

    The envelope's time is the `term`, see `coordinator.fleet.leadership`.
    """
    body = CoordinatorState(status="up" if status == "up" else "down", incarnation=incarnation, software=software)
    return Message(
        topics.coordinator_state(), Envelope(fleet=topics.fleet, body=body, time=term).to_bytes(), retained=True
    )


@dataclass(eq=False)
class Publisher:
    """Messages of one coordinator.

    Parameters
    ----------
    metrics : Counter
        Counts what is published.
    now, wall : callable
        The coordinator's own time, and the wall clock, seconds.
    max_bytes : int
        Larger requests and models travel in parts.
    """

    topics: Topics
    transport: Transport
    metrics: Counter[str]
    now: Callable[[], float]
    wall: Callable[[], float]
    max_bytes: int
    _requests: dict[str, Retained] = field(default_factory=dict, init=False)
    _held: dict[str, Retained | None] | None = field(default_factory=dict, init=False)  # by run; None: it has ended

    @property
    def limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self.max_bytes, self.transport.max_message_bytes)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand one message to the transport."""
        self.metrics["published"] += 1
        self.metrics["published.bytes"] += len(payload)
        self.transport.publish(topic, payload, retain=retain)

    def prepare(self, effect: OpenRound) -> Retained:
        """Cut a request.

        Raises
        ------
        BrokerError, UsageError
            It cannot be sent, not even in parts; the text says what to change.
        """

        def cut(remaining: float | None) -> Retained:
            envelope = effect.envelope(self.topics.fleet, remaining, self.limit)
            return frames_for_request(envelope, self.topics, self.limit)

        retained = cut(max(0.0, effect.closes_at - self.now()))
        if retained.blobs:
            # Blobs are named by their content: a request in parts says the whole deadline, so that the same round has
            # the same blobs whenever it is published.
            retained = cut(None)
        rosters = (group.packed for group in effect.groups if group.packed)
        return sum((frames_for_blobs(each, self.topics, self.limit) for each in rosters), start=retained)

    def hold(self) -> None:
        """Keep requests back until `release`: what is retained names parts that only it may know, see `seen`."""
        self._held = self._held or {}

    def release(self) -> None:
        """Publish what was kept back."""
        held, self._held = self._held or {}, None
        for run, retained in held.items():
            if retained is None:
                self.clear(run)
            else:
                self.request(run, retained)

    def request(self, run: str, retained: Retained) -> None:
        """Publish the open request of a run, in place of the one before."""
        if self._held is not None:
            self._held[run] = retained
            return
        old = self._requests.get(run, Retained(()))
        self._requests[run] = retained
        self._clear_blobs(old.blobs)  # before what names them is replaced, see `Retained`
        for frame in retained.frames:
            self.publish(*frame, retain=True)

    def clear(self, run: str) -> None:
        """Say that nothing is open in a run."""
        if self._held is not None:
            self._held[run] = None
            return
        self._clear_blobs(self._requests.pop(run, Retained(())).blobs)
        self._clear_topics([self.topics.request(run)])

    def adopt(self, run: str, blobs: Collection[str]) -> None:
        """Take over a standing request that another life has published, to be cleared by the next one."""
        known = self._requests.get(run, Retained(())).blobs
        self._requests[run] = Retained((), tuple(dict.fromkeys((*known, *blobs))))

    def seen(self, run: str, blobs: Collection[str], *, is_live: bool) -> None:
        """Take note of a request of ours on the broker: clear what outlived its run or its round.

        A coordinator that was killed between journal and broker left it there. Requests of live runs come back as an
        echo, too; those name the blobs that we know. No request of another run can take away what an open one needs.
        """
        if is_live and self._held is not None:
            self.adopt(run, blobs)
            return
        self._clear_blobs(blobs)
        if not is_live:
            self.metrics["requests.cleared-leftover"] += 1
            self._clear_topics([self.topics.request(run)])

    def receipt(self, effect: SendReceipt) -> None:
        """Tell an agent what became of its message."""
        body, agent = effect.receipt, effect.agent
        envelope = Envelope(fleet=self.topics.fleet, body=body, run=body.run, agent=agent, time=self.wall())
        self.publish(self.topics.receipt(agent), envelope.to_bytes())

    def _clear_blobs(self, blobs: Iterable[str]) -> None:
        """Clear parts of requests that no open one needs."""
        self._clear_topics(set(blobs).difference(*(retained.blobs for retained in self._requests.values())))

    def _clear_topics(self, topics: Iterable[str]) -> None:
        for frame in clearing(sorted(topics)):
            self.publish(*frame, retain=True)
