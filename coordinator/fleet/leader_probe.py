"""The look that a coordinator takes before it connects under the fleet's client id: whether another one lives.

The broker would throw the other one out the moment we connect, so the look is taken under a name of its own. A
retained "up" alone says little: a broker that was killed with the coordinator brings it back. So we ask, with a "down"
of our own incarnation that is not retained: a coordinator that runs publishes its birth again when it reads a state
that is not its birth (`coordinator.fleet.leadership`), and a dead one does not.

The wait for an answer is only as long if the broker says that one is up; after a kill the last will says the contrary.
It is not cut short for who has just got the journal's lock, though that proves that whoever had it can write no more.
Of a copy of the journal (a backup, on another machine) it proves nothing, and the coordinator of the original may live.
What it does mean is done at the other end: a coordinator answers while it holds its own journal, and ends when it does
not (`coordinator.fleet.presence`). So an answer always comes from somebody who leads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from broker.port import Handlers, Message, Transport
from coordinator.messages import birth
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import CoordinatorState
from schemas.topics import Topics


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
