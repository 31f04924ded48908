"""Messages as an agent says them: in its name, within what the broker carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.port import Transport
from schemas.envelope import Envelope
from schemas.messages import Body
from schemas.parts import frames_for_contribution
from schemas.topics import Topics


class Outbound:
    """The agent's voice.

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
        self.topics = topics
        self.agent = agent
        self._transport = transport
        self._wall = wall
        self._max_bytes = max_bytes

    @property
    def limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self._max_bytes, self._transport.max_message_bytes)

    def envelope(self, body: Body, **head: Any) -> Envelope:
        """Return a message of ours; `head` are further fields of the envelope."""
        return Envelope(fleet=self.topics.fleet, body=body, agent=self.agent, time=self._wall(), **head)

    def say(self, topic: str, body: Body, **head: Any) -> None:
        """Publish a message of ours."""
        self._transport.publish(topic, self.envelope(body, **head).to_bytes())

    def answer(self, envelope: Envelope) -> None:
        """Publish an answer, in parts if need be.

        Raises
        ------
        BrokerError, UsageError, ValueError
            This broker does not carry it.
        """
        for frame in frames_for_contribution(envelope, self.topics, self.limit):
            self._transport.publish(frame.topic, frame.payload)
