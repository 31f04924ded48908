"""Two coordinators with different journals on one fleet: which of them gives way.

One journal has a lock (`coordinator.process.standby`); nothing but the broker knows of two journals. The retained
``coordinator/state`` carries the *incarnation* of a coordinator's life, and in the envelope's time its *term*: the wall
clock at its start, but always above every term that was read before it started (as in Raft). So the order of two terms
is the order of two starts, also when a clock was wrong.

- Who starts, looks first (`LeaderProbe`): is somebody up, and does it answer? Then it refuses,
  unless told to take over.
- Who runs and reads a state that is not its own birth certificate publishes its own again. Such a state is a last will
  of a life before, a retained state that a broker brought back from its disk, or the question of somebody who starts.
- Who runs and reads, `SIGHTINGS` times, that a *later* term is up, stops: somebody took over. Once is
  not enough: brokers deliver late copies. A coordinator that lives repeats its birth when it reads ours.

The earlier one stops, never both; and neither goes on beside the other, throwing it out of the broker for ever because
both connect under the same client id.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.port import Handlers, Message, Transport
from coordinator.messages import Publisher, birth
from schemas.envelope import Envelope
from schemas.errors import IdentityError, WireError
from schemas.messages import CoordinatorState
from schemas.topics import Topics

SIGHTINGS = 2
"""So often another must be seen before this coordinator stops."""

APART = 0.2
"""Seconds between two sightings at least: what comes closer together is one."""

QUIET = 30.0
"""Seconds after which another that was not seen again is forgotten."""

PAUSE = 0.25
"""Seconds between two birth certificates that are published again, at least."""


class Election:
    """What a running coordinator knows about others.

    Parameters
    ----------
    own : str
        Incarnation of this life.
    term : float
        Of this life.
    """

    def __init__(self, own: str, term: float) -> None:
        self.own = own
        self.term = term
        self.due: float | None = None
        self._other = ""
        self._count = 0
        self._last = float("-inf")
        self._published = float("-inf")

    def is_lost(self, incarnation: str, status: str, term: float, at: float, *, retained: bool) -> bool:
        """Take a state read at `at` (any steady clock); whether this coordinator must stop.

        When it returns False, `due` may say when to publish the birth certificate again. What is `retained` came with
        our subscription, which is followed by our birth anyway.
        """
        if incarnation == self.own and status == "up":
            return False
        if not retained and self.due is None:
            self.due = max(at, self._published + PAUSE)
        if status != "up" or (term, incarnation) < (self.term, self.own):
            return False
        if incarnation != self._other or at - self._last > QUIET:
            self._other, self._count, self._last = incarnation, 0, float("-inf")
        if at - self._last >= APART:
            self._count, self._last = self._count + 1, at
        elif self._count:
            return False
        if self._count >= SIGHTINGS:
            return True
        if self.due is None:
            self.due = max(at, self._published + PAUSE)
        return False

    def published(self, at: float) -> None:
        """Note that the birth certificate was published."""
        self.due, self._published = None, at


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


@dataclass(frozen=True)
class ProbeResult:
    """What a look found.

    Attributes
    ----------
    term : float
        The highest that was read; 0: none.
    living : str
        Incarnation of another coordinator that answered; empty: none did.
    software : str
        Its version.
    """

    term: float = 0.0
    living: str = ""
    software: str = ""


class LeaderProbe:
    """Reads the coordinator's topic under a client id of its own.

    Parameters
    ----------
    own : str
        Incarnation of the life that is about to begin.
    """

    def __init__(self, topics: Topics, own: str, software: str) -> None:
        self._topics = topics
        self._own = own
        self._question = birth(topics, own, software, "down")
        self._changed = threading.Condition()
        self._term = 0.0
        self._retained_up = False
        self._living: CoordinatorState | None = None
        self._echoed = False

    def look(
        self,
        transport: Transport,
        wait: float,
        settle: float,
        *,
        cancelled: Callable[[], bool],
        connect: Callable[[], bool],
    ) -> ProbeResult:
        """Look, for at most `wait` seconds after the connection stands.

        Parameters
        ----------
        transport : Transport
            Not started; it is stopped in the end.
        wait : float
            Seconds for another coordinator to answer, if one is said to be up.
        settle : float
            Seconds after our own question came back for which more is listened to, if nothing says that one is up.
        cancelled : callable
            Whether to give up.
        connect : callable
            Waits until the transport is connected; False: cancelled.
        """
        transport.subscribe(self._topics.coordinator_state())
        transport.start(Handlers(self._take, lambda: None, lambda _why: None))
        try:
            if not connect():
                return ProbeResult()
            transport.publish(self._question.topic, self._question.payload)
            deadline = time.monotonic() + wait
            quiet: float | None = None
            with self._changed:
                while self._living is None and not cancelled():
                    now = time.monotonic()
                    if self._echoed and not self._retained_up:
                        quiet = now + settle if quiet is None else quiet
                    until = deadline if self._retained_up or quiet is None else min(deadline, quiet)
                    if now >= until:
                        break
                    self._changed.wait(min(0.05, until - now))
        finally:
            transport.stop()
        living = self._living
        return ProbeResult(self._term, living.incarnation if living else "", living.software if living else "")

    def _take(self, message: Message) -> None:
        if not message.payload:
            return
        try:
            envelope = Envelope.from_bytes(message.payload, fleet=self._topics.fleet)
        except WireError:
            return
        body = envelope.body
        if not isinstance(body, CoordinatorState):
            return
        with self._changed:
            if body.incarnation == self._own:
                self._echoed = True
            else:
                self._term = max(self._term, envelope.time)
                self._retained_up = body.status == "up"
                if not message.retained:
                    self._living = body if self._retained_up else None
            self._changed.notify_all()
