"""Between the broker and the session: what comes is decoded and checked, what the session asks for is sent.

Every fault of a peer is a `WireError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from broker.port import Message, Transport
from edge_agent.session.events import Refuse, RequestCleared, RequestSeen
from glassfleet.contract.messages import Task
from glassfleet.errors import TaskError
from glassfleet.private.groups import round_digest
from schemas import codec
from schemas.envelope import Envelope, checked, frames_for_contribution
from schemas.errors import BrokerError, UsageError, WireError
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    CoordinatorState,
    Evaluation,
    Manifest,
    ModelPointer,
    PrivateGroup,
    Receipt,
    Request,
)
from schemas.topics import Topics

B = TypeVar("B", bound=Body)


@dataclass(frozen=True)
class RequestInParts:
    """A request that is too large for one message: its content is to be fetched."""

    run: str
    envelope: Envelope
    manifest: Manifest


@dataclass(frozen=True)
class OwnState:
    """What stands on our own topic; `started` is when that process began, by its own clock, seconds since the epoch."""

    state: AgentState
    started: float


@dataclass(frozen=True)
class CoordinatorSeen:
    """The coordinator said what it is doing; `was_retained`: before we subscribed."""

    state: CoordinatorState
    was_retained: bool


@dataclass(frozen=True)
class CandidateWithdrawn:
    """A model has no candidate any more."""

    name: str


@dataclass(frozen=True)
class ModelVersion:
    """What is retained as a version of a model: a record, or the manifest of one."""

    name: str
    number: int
    payload: bytes


@dataclass(frozen=True)
class Blob:
    """A piece of a request or model in parts."""

    topic: str
    payload: bytes
    digest: str


Inbound: TypeAlias = (
    RequestSeen
    | RequestCleared
    | RequestInParts
    | Receipt
    | OwnState
    | CoordinatorSeen
    | ModelPointer
    | CandidateWithdrawn
    | ModelVersion
    | Blob
)


class Decoder:
    """Reads the messages of one agent.

    Parameters
    ----------
    topics : Topics
    agent : str
    """

    def __init__(self, topics: Topics, agent: str) -> None:
        self._topics = topics
        self._agent = agent

    def decode(self, message: Message) -> Inbound | None:
        """Return what a message says; None: something retained was cleared, and that asks for nothing.

        Raises
        ------
        WireError
            It is not for this agent, or not what its topic promises.
        """
        address, payload = self._topics.parse(message.topic), message.payload
        match address.kind:
            case "request":
                return self._request(payload, address.run)
            case "receipt" if address.agent == self._agent:
                return self._open(payload, Receipt)[1]
            case "model-version":
                return ModelVersion(address.name, address.number, payload)
            case "blob":
                return Blob(message.topic, payload, address.digest)
            case "agent-state" if address.agent == self._agent:
                return self._own_state(payload) if payload else None
            case "coordinator-state" if payload:
                return CoordinatorSeen(self._open(payload, CoordinatorState)[1], message.retained)
            case "model-current" | "model-candidate" if payload:
                return self._pointer(payload, address.name, is_candidate=address.kind == "model-candidate")
            case "model-candidate":
                return CandidateWithdrawn(address.name)
            case "coordinator-state" | "model-current":
                return None
        raise WireError("unexpected-topic", f"{address.kind} is not for this agent")

    def _open(self, payload: bytes, wanted: type[B]) -> tuple[Envelope, B]:
        envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
        if not isinstance(envelope.body, wanted):
            raise WireError("malformed", f"a {envelope.body.kind} where a {wanted.kind} belongs")
        return envelope, envelope.body

    def _own_state(self, payload: bytes) -> OwnState:
        envelope, state = self._open(payload, AgentState)
        return OwnState(state, envelope.time)

    def _pointer(self, payload: bytes, name: str, *, is_candidate: bool) -> ModelPointer:
        pointer = self._open(payload, ModelPointer)[1]
        if pointer.name != name:
            raise WireError("malformed", "the pointer names another model than its topic")
        if (pointer.trial is not None) != is_candidate:
            raise WireError("malformed", "the pointer of a candidate says who tries it, and no other one does")
        return pointer

    def _request(self, payload: bytes, run: str) -> RequestCleared | RequestInParts | RequestSeen:
        if not payload:
            return RequestCleared(run)
        envelope = Envelope.from_bytes(payload, fleet=self._topics.fleet)
        if envelope.run != run:
            raise WireError("malformed", "the request names another run than its topic")
        if isinstance(envelope.body, Manifest) and envelope.body.what == "request":
            return RequestInParts(run, envelope, envelope.body)
        return request_seen(envelope)


def with_roster(event: RequestSeen, content: bytes) -> RequestSeen:
    """Return a request with what a blob tells of the vehicle's own group, and of no other; raises WireError."""
    group = checked(PrivateGroup, codec.decode(content))
    return replace(event, request=event.request.model_copy(update={"private": [group], "rosters": None}))


def request_seen(envelope: Envelope) -> RequestSeen:
    """Return a request as the session's event; raises WireError when its task is not whole or not the one it names."""
    request = envelope.body
    if not isinstance(request, Request):
        raise WireError("malformed", f"a {request.kind} where a request belongs")
    task = request.task
    if set(task) - {"nonce"} != {"scheme", "kind", "body"} or not isinstance(task["body"], dict):
        raise WireError("malformed", "a task has a scheme, a kind, a body, and perhaps a nonce")
    if not isinstance(task["scheme"], str) or not isinstance(task["kind"], str):
        raise WireError("malformed", "a task's scheme and kind are texts")
    if not isinstance(task.get("nonce", ""), str):
        raise WireError("malformed", "a task's nonce is a text")
    # In a private run the vehicle looks whether its group's question is the task's when it answers.
    groups = request.private
    named = codec.digest_of(task) if groups is None else round_digest([group.question for group in groups])
    # Questions that are in rosters cannot be seen yet.
    if named != request.task_digest and (groups is None or request.rosters is None):
        raise WireError("digest-mismatch", "the task is not the one that its digest names")
    return RequestSeen(envelope.run, request, Task.from_value(task), envelope.time, envelope.round, envelope.attempt)


class Publisher:
    """Publishes an agent's answers, refusals and scores.

    Parameters
    ----------
    topics : Topics
    agent : str
    transport : Transport
    wall : callable
        Seconds since the epoch, for the envelopes.
    max_bytes : int
        Larger answers travel in parts.
    """

    def __init__(
        self, topics: Topics, agent: str, transport: Transport, *, wall: Callable[[], float], max_bytes: int
    ) -> None:
        self._topics = topics
        self._agent = agent
        self._transport = transport
        self._wall = wall
        self._max_bytes = max_bytes

    @property
    def _limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self._max_bytes, self._transport.max_message_bytes)

    def pack(self, body: ContributionBody, asked: RequestSeen, most_bytes: int) -> bytes:
        """Encode an answer of at most `most_bytes`.

        Raises
        ------
        TaskError
            It could never be sent or kept: nobody shall wait for it.
        """
        envelope = replace(self._envelope(body, asked.run, asked.round, asked.attempt), scheme=asked.task.scheme)
        payload = envelope.to_bytes()
        if len(payload) > most_bytes:
            raise TaskError(f"the answer has {len(payload)} bytes; outbox_max_bytes is {most_bytes} here")
        if len(payload) > self._limit:
            try:
                frames_for_contribution(envelope, self._topics, self._limit)
            except (BrokerError, UsageError) as fault:
                raise TaskError(f"the answer is too large: {fault}") from fault
        return payload

    def _envelope(self, body: Body, run: str, round: int = 0, attempt: int = 0) -> Envelope:  # noqa: A002 - its word
        fleet, agent, time = self._topics.fleet, self._agent, self._wall()
        return Envelope(fleet, body, run, agent, round=round, attempt=attempt, time=time)

    def stored(self, payload: bytes) -> Envelope:
        """Read a message of ours that was kept."""
        return Envelope.from_bytes(payload, fleet=self._topics.fleet)

    def refusal(self, effect: Refuse) -> None:
        """Publish that a task is not answered, and why."""
        envelope = self._envelope(effect.body, effect.run, effect.round, effect.attempt)
        self._transport.publish(self._topics.contribution(self._agent), envelope.to_bytes())

    def evaluation(self, body: Evaluation, *, run: str = "") -> None:
        """Publish how a model of a run did here."""
        self._transport.publish(self._topics.evaluation(self._agent), self._envelope(body, run).to_bytes())

    def answer(self, envelope: Envelope) -> None:
        """Publish an answer, in parts if need be.

        Raises
        ------
        BrokerError, UsageError, ValueError
            This broker does not carry it.
        """
        for frame in frames_for_contribution(envelope, self._topics, self._limit):
            self._transport.publish(frame.topic, frame.payload)
