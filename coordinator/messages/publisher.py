"""What the coordinator says on the broker: requests, receipts, its own state; and which blobs stand for them.

Nothing is decided here. What cannot be sent is found out by `prepare`, see `coordinator.runs.transaction`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from broker.port import Message, Transport
from coordinator.engine import OpenRound, SendReceipt
from coordinator.engine.effects import envelope_of
from schemas.envelope import Envelope
from schemas.messages import CoordinatorState, Receipt
from schemas.parts import Retained, clearing, frames_for_blobs, frames_for_request
from schemas.topics import Topics


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

    # -- requests -------------------------------------------------------------------------------------------------

    def prepare(self, effect: OpenRound) -> Retained:
        """Cut a request.

        Raises
        ------
        BrokerError, UsageError
            It cannot be sent, not even in parts; the text says what to change.
        """
        retained = self._cut(effect, max(0.0, effect.closes_at - self.now()))
        if retained.blobs:
            # Blobs are named by their content: a request in parts says the whole deadline, so that the same round has
            # the same blobs whenever it is published.
            retained = self._cut(effect, effect.deadline)
        rosters = (group.packed for group in effect.groups if group.packed)
        return sum((frames_for_blobs(each, self.topics, self.limit) for each in rosters), start=retained)

    def _cut(self, effect: OpenRound, remaining: float) -> Retained:
        envelope = envelope_of(effect, self.topics.fleet, remaining, self.limit)
        return frames_for_request(envelope, self.topics, self.limit)

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

    # -- receipts ---------------------------------------------------------------------------------------------

    def receipt(self, effect: SendReceipt) -> None:
        """Tell an agent what became of its message."""
        body = Receipt(
            run=effect.run, task_digest=effect.task_digest, outcome=effect.outcome, reason=effect.reason[:500]
        )
        envelope = Envelope(fleet=self.topics.fleet, body=body, run=effect.run, agent=effect.agent, time=self.wall())
        self.publish(self.topics.receipt(effect.agent), envelope.to_bytes())

    def _clear_blobs(self, blobs: Iterable[str]) -> None:
        """Clear parts of requests that no open one needs."""
        self._clear_topics(set(blobs).difference(*(retained.blobs for retained in self._requests.values())))

    def _clear_topics(self, topics: Iterable[str]) -> None:
        for frame in clearing(sorted(topics)):
            self.publish(*frame, retain=True)
