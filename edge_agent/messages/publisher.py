"""What an agent publishes about its work: in its name, within what the broker carries."""

from __future__ import annotations

from collections.abc import Callable

from broker.port import Transport
from schemas.envelope import Envelope
from schemas.messages import Body, Evaluation, Refusal
from schemas.parts import frames_for_contribution
from schemas.topics import Topics


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
    def limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self._max_bytes, self._transport.max_message_bytes)

    def envelope(self, body: Body, *, run: str, scheme: str = "", round: int = 0, attempt: int = 0) -> Envelope:  # noqa: A002 - the envelope's words
        """Return a message of ours."""
        return Envelope(
            fleet=self._topics.fleet, agent=self._agent, time=self._wall(),
            body=body, run=run, scheme=scheme, round=round, attempt=attempt,
        )  # fmt: skip

    def stored(self, payload: bytes) -> Envelope:
        """Read a message of ours that was kept."""
        return Envelope.from_bytes(payload, fleet=self._topics.fleet)

    def refusal(self, body: Refusal, *, run: str, round: int, attempt: int) -> None:  # noqa: A002 - the envelope's word
        """Publish that a task is not answered, and why."""
        envelope = self.envelope(body, run=run, round=round, attempt=attempt)
        self._transport.publish(self._topics.contribution(self._agent), envelope.to_bytes())

    def evaluation(self, body: Evaluation, *, run: str = "") -> None:
        """Publish how a model of a run did here."""
        self._transport.publish(self._topics.evaluation(self._agent), self.envelope(body, run=run).to_bytes())

    def answer(self, envelope: Envelope) -> None:
        """Publish an answer, in parts if need be.

        Raises
        ------
        BrokerError, UsageError, ValueError
            This broker does not carry it.
        """
        for frame in frames_for_contribution(envelope, self._topics, self.limit):
            self._transport.publish(frame.topic, frame.payload)
