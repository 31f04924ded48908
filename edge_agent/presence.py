"""What an agent says of itself: birth certificate, last will and goodbye; and whether it is alone under its id.

Two processes with one agent id: which of them stops
----------------------------------------------------
Birth certificates and wills carry the incarnation of a process and the time when it started, and an agent reads its own
topic. What it reads there is mostly its own past: the retained birth of the life before, that life's will, copies of
both that come late. The id is used twice only if the other is alive: it keeps coming back after we were born,
`SIGHTINGS` times, over at least `SPAN` seconds. Then the one that started later is the intruder and stops;
ties are broken by the incarnation, so both sides come to the same conclusion. Clocks need not agree: a wrong one lets
the wrong one stop, never both. Only if the intruder does not stop, for ten times as long and three times as
often, the first one does.

Each sighting is answered with our birth certificate, which is what the other side sights.

A broker that is killed before it has saved comes back with what it knew before: our past's birth or will, once more, in
place of our birth. (Found by the chaos harness: two such kills within four seconds made an agent stop for its own
past.) So copies that come together count as one sighting (`APART`), more sightings are asked for than a few restarts of
a broker give, and what has not been seen for `QUIET` seconds is forgotten. Two living processes throw each other out of
the broker several times a second.

When it announces itself again
------------------------------
When a new coordinator came, with its last scores. The former one may have been killed after it took a message and
before it wrote it down; answers have receipts, births and scores have none. So each agent announces itself once to each
life of a coordinator. The announcements of a fleet are spread over a while, each agent at its own, unchanging share.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from broker.port import Message, Transport
from edge_agent.sources import Source
from schemas.envelope import Envelope
from schemas.errors import BrokerError, IdentityError, UsageError
from schemas.log import Log
from schemas.messages import AgentState, CoordinatorState, LogHead
from schemas.topics import Topics

HEAD_EVERY = 600.0
"""Seconds until a head of the log of forecasts that moved is told: so old is at most what a witness has seen, and each
costs the coordinator a line in its journal."""

_HEAD_BYTES = 128
"""More than what a head of a log of forecasts takes, which may come later."""

BIRTH_PAUSE = 0.25
"""Seconds between two birth certificates at least, so that two processes with one id do not flood the broker."""

SIGHTINGS = 6
"""So often the other is seen before the one that came later stops."""


APART = 0.2
"""Seconds between two sightings at least: what comes closer together is one."""


QUIET = 30.0
"""Seconds after which another incarnation that was not seen again is forgotten."""


SPAN = 1.5
"""Seconds over which the other must be seen, so that late copies of our past's last words do not count."""


PATIENCE, STUBBORN = 10, 3
"""So many times `SPAN` and `SIGHTINGS` before the one that came first stops, should the other not."""


REMEMBERED = 64
"""Other incarnations that are counted at once."""


@dataclass
class OwnId:
    """What an agent knows about its own id.

    Attributes
    ----------
    own : str
        Incarnation of this process.
    started : float
        When it started, seconds since the epoch by its own clock; its state messages carry it.
    born : bool
        Whether our own birth certificate has come back to us.
    """

    own: str
    started: float = 0.0
    born: bool = False
    _sightings: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    def judge(self, incarnation: str, status: str, started: float, at: float) -> str:
        """Return what to do about a state that was read from our own topic at `at` (any steady clock).

        Returns
        -------
        str
            ``""`` (nothing), ``"repeat"`` (publish the birth certificate again: the retained one is not ours) or
            ``"stop"``.
        """
        if incarnation == self.own:
            if status == "up":
                self.born = True
                return ""
            return "repeat"  # our own will, from a connection that was lost: we are up
        if not self.born:
            return ""
        count, first, last = self._sightings.get(incarnation, (0, at, float("-inf")))
        if at - last > QUIET:
            count, first = 0, at
        if at - last >= APART:
            count, last = count + 1, at
        if incarnation in self._sightings or len(self._sightings) < REMEMBERED:
            self._sightings[incarnation] = (count, first, last)
        is_intruder = (self.started, self.own) > (started, incarnation)
        patience, sightings = (1, 1) if is_intruder else (PATIENCE, STUBBORN)
        if count >= sightings * SIGHTINGS and at - first >= SPAN * patience:
            return "stop"
        return "repeat"


SPREAD = 1.0
"""Seconds: the births of ten thousand agents are a stream then, and a run waits for nobody longer than usual."""


class Reannouncer:
    """Knows the life of the coordinator to which this agent has announced itself.

    Parameters
    ----------
    own : str
        Incarnation of this process; its hash is the agent's place within `SPREAD`.
    """

    def __init__(self, own: str) -> None:
        share = int.from_bytes(hashlib.sha256(own.encode()).digest()[:4], "big") / 2**32
        self._wait = SPREAD * share
        self._seen = ""

    def delay(self, state: CoordinatorState, *, was_retained: bool) -> float | None:
        """Return the seconds after which to announce ourselves again; None: this coordinator knows us.

        Parameters
        ----------
        state : CoordinatorState
            As it was read now.
        was_retained : bool
            The broker had it stored: that coordinator was there before us, and hears the birth that we publish anyway.
        """
        if state.status != "up" or state.incarnation == self._seen:
            return None
        is_first, self._seen = not self._seen, state.incarnation
        return None if was_retained and is_first else self._wait


def state_of(
    topics: Topics, agent: str, identity: OwnId, status: Literal["up", "down"], **said: Any
) -> tuple[str, bytes]:
    """Return topic and payload of what an agent says of itself; `said` are other fields of `AgentState`."""
    state = AgentState(status=status, incarnation=identity.own, software=software_version(), **said)
    # All our states carry the time of our start: it tells which of two processes with one id came later.
    envelope = Envelope(fleet=topics.fleet, body=state, agent=agent, time=identity.started)
    return topics.agent_state(agent), envelope.to_bytes()


class Presence:
    """What an agent says about itself.

    Parameters
    ----------
    topics : Topics
    agent : str
    identity : OwnId
    schemes : sequence of str
        Those that it offers.
    source : Source
        Names, kinds and units of its columns are told, how some rows are held back, the digest of its plan; no rows.
    head : callable
        Returns the newest head of the vehicle's log of forecasts, or None.
    clock : callable
        Seconds that only go forward.
    log : Log

    Attributes
    ----------
    due : float or None
        When a birth certificate is to be published that had to wait.
    """

    def __init__(
        self,
        topics: Topics,
        agent: str,
        identity: OwnId,
        *,
        schemes: Sequence[str],
        source: Source,
        head: Callable[[], LogHead | None],
        clock: Callable[[], float],
        log: Log,
    ) -> None:
        self._topics = topics
        self._agent = agent
        self._identity = identity
        self._schemes = schemes
        self._rows = source.train
        self._source = source
        self._kinds = kinds_of(source)
        self._head = head
        self._last_head: LogHead | None = None
        self._clock = clock
        self._log = log
        self.due: float | None = None
        self._last = float("-inf")

    def check_size(self, limit: int) -> None:
        """Raise UsageError when the birth certificate does not fit one message of `limit` bytes."""
        size = len(self.birth()[1]) + _HEAD_BYTES
        if size > limit:
            raise UsageError(
                f"{len(self._rows.features)} column names make a birth certificate of {size} bytes: raise "
                f"max_message_bytes (now {limit}), or give the agent fewer columns"
            )

    def look(self, now: float) -> None:
        """Let a birth certificate be due when the log of forecasts went on since the last one, `HEAD_EVERY` ago."""
        if self.due is None and now - self._last >= HEAD_EVERY and (head := self._head()) != self._last_head:
            self._last_head, self.due = head, now

    def birth(self) -> tuple[str, bytes]:
        """Return topic and payload of the birth certificate."""
        return state_of(
            self._topics,
            self._agent,
            self._identity,
            "up",
            schemes=list(self._schemes),
            features=list(self._rows.features),
            target=self._rows.target,
            kinds=self._kinds,
            far=list(self._source.far),
            plan=self._source.origin.plan,
            held_back=self._source.held_back,
            forecasts=self._head(),  # the last will has none: it is written down now, and published later
        )

    def down(self, *, stopped: bool = False) -> tuple[str, bytes]:
        """Return topic and payload that say that we are down, and whether we were told to stop."""
        return state_of(self._topics, self._agent, self._identity, "down", stopped=stopped)

    def last_will(self) -> Message:
        """Return what the broker shall say for us when we are gone."""
        return Message(*self.down(), retained=True)

    def announce(self, transport: Transport, *, online: bool) -> None:
        """Publish the birth certificate, now or as soon as the last one is `BIRTH_PAUSE` old.

        Raises
        ------
        BrokerError
            The broker takes no message of its size.
        """
        now = self._clock()
        if not online:
            self.due = None
            return
        if now - self._last < BIRTH_PAUSE:
            self.due = self._last + BIRTH_PAUSE
            return
        self.due, self._last = None, now
        topic, payload = self.birth()
        try:
            transport.publish(topic, payload, retain=True)
        except ValueError as fault:
            raise BrokerError(f"the broker's limit is too small for this agent's birth certificate: {fault}") from fault

    def is_overwritten(self, state: AgentState, started: float, *, online: bool) -> bool:
        """Whether the birth certificate must be published again after `state` was read from our own topic.

        Raises
        ------
        IdentityError
            Another process uses this id, and it is ours to stop.
        """
        match self._identity.judge(state.incarnation, state.status, started, self._clock()):
            case "stop":
                raise IdentityError(
                    f"another process is agent {self._agent!r} in fleet {self._topics.fleet!r} (incarnation "
                    f"{state.incarnation[:8]}). Stop it, or start this one with another --id"
                )
            case "repeat" if online:
                self._log.warning("state-overwritten", incarnation=state.incarnation[:8], status=state.status)
                return True
        return False


def kinds_of(source: Source) -> list[str]:
    """Return what the columns hold, as a birth certificate tells it."""
    rows, units = source.train, source.origin.units
    worded = {*rows.categories, *([rows.target] if rows.y.dtype.kind != "f" else [])}

    def kind(name: str) -> str:
        unit = "".join(sign for sign in units.get(name, "") if sign.isprintable())[:40]
        return "words" if name in worded else f"numbers in {unit}" if unit else "numbers"

    kinds = [kind(name) for name in (*rows.features, rows.target)]
    return kinds if set(kinds) != {"numbers"} else []


@functools.cache
def software_version() -> str:
    """Return name and installed version; the name alone where it runs from a source tree that is not installed.

    Looked up once: reading the package's metadata took a fifth of the fleet simulator's time.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - needed once

    try:
        return f"glassfleet {version('glassfleet')}"
    except PackageNotFoundError:
        return "glassfleet"
