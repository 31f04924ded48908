"""A coordinator's own state on the broker: its birth certificate, its goodbye, and what it reads of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.fleet.leadership import Election
from coordinator.messages import Publisher, birth
from schemas.errors import IdentityError
from schemas.topics import Topics

LISTENS = 5.0
"""Seconds to wait for the echo of our own birth; a queue that overflows may have dropped it."""


@dataclass(eq=False)
class Presence:
    """One life of a coordinator, as others see it.

    Parameters
    ----------
    election : Election
        Of this life.
    clock : callable
        Seconds that only go forward.
    metrics : Counter
        Counts what is published again.
    check_journal : callable
        Raises StorageError when the journal was lost: who has lost it answers nobody, and ends by that name.
    """

    topics: Topics
    publisher: Publisher
    election: Election
    software: str
    clock: Callable[[], float]
    metrics: Counter[str]
    check_journal: Callable[[], None]
    _listens_until: float | None = field(default=None, init=False)

    @property
    def incarnation(self) -> str:
        """Tells this life from others."""
        return self.election.own

    @property
    def due(self) -> float | None:
        """When `act_if_due` has something to do, on the clock that was given; None: nothing."""
        return min((due for due in (self.election.due, self._listens_until) if due is not None), default=None)

    def raise_term(self, term: float) -> None:
        """Let this life's term be later than one that was read before it began; before the first connection."""
        self.election.term = max(self.election.term, term + 1e-3)

    def connected(self) -> None:
        """Publish the birth certificate. Requests wait for its echo: what is retained comes before it."""
        self.publisher.hold()
        self._listens_until = self.clock() + LISTENS
        self.announce()

    def announce(self) -> None:
        """Publish the birth certificate."""
        self._say("up")
        self.election.published(self.clock())

    def act_if_due(self) -> None:
        """Publish it again when somebody else's state stands in its place; and wait no longer for an echo."""
        at = self.clock()
        if self._listens_until is not None and self._listens_until <= at:
            self._heard()
        if self.election.due is not None and self.election.due <= at:
            self.metrics["births.repeated"] += 1
            self.announce()

    def goodbye(self) -> None:
        """Say that this life ends: a clean stop does not trigger the last will."""
        self._say("down")

    def check_peer(self, incarnation: str, status: str, term: float, *, retained: bool) -> None:
        """Take what stands on the coordinator's topic; raises IdentityError when another has taken over.

        StorageError, see `check_journal`, when this one could write nothing more: then it was replaced by a stand-by.
        """
        if incarnation != self.incarnation:
            self.check_journal()
        if (incarnation, status) == (self.incarnation, "up"):
            self._heard()
        if self.election.is_lost(incarnation, status, term, self.clock(), retained=retained):
            raise IdentityError(
                f"another coordinator has taken over fleet {self.topics.fleet!r} (incarnation {incarnation[:8]}, "
                f"this one is {self.incarnation[:8]}): this one stops. Its runs are in its journal; to go on with "
                "them, stop the other and start this one again, or give it another --fleet"
            )

    def _heard(self) -> None:
        self._listens_until = None
        self.publisher.release()

    def _say(self, status: str) -> None:
        state = birth(self.topics, self.incarnation, self.software, status, term=self.election.term)
        self.publisher.publish(state.topic, state.payload, retain=True)
