"""Birth certificate, last will and goodbye of an agent, and whether it is alone under its id."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from broker.port import Message, Transport
from edge_agent.messages.duplicate_id import OwnId
from edge_agent.sources import Source
from schemas.envelope import Envelope
from schemas.errors import BrokerError, IdentityError, UsageError
from schemas.messages import AgentState, LogHead
from schemas.topics import Topics

HEAD_EVERY = 600.0
"""Seconds until a head of the log of forecasts that moved is told: so old is at most what a witness has seen, and each
costs the coordinator a line in its journal."""

_HEAD_BYTES = 128
"""More than what a head of a log of forecasts takes, which may come later."""

BIRTH_PAUSE = 0.25
"""Seconds between two birth certificates at least, so that two processes with one id do not flood the broker."""


class Presence:
    """What an agent says about itself.

    Parameters
    ----------
    topics : Topics
    agent : str
    identity : Identity
    schemes : sequence of str
        Those that it offers.
    source : Source
        Names, kinds and units of its columns are told, how some rows are held back, the digest of its plan; no rows.
    head : callable
        Returns the newest head of the vehicle's log of forecasts, or None.
    clock : callable
        Seconds that only go forward.
    log : structlog logger

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
        log: Any,
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
        size = len(self.state("up")[1]) + _HEAD_BYTES
        if size > limit:
            raise UsageError(
                f"{len(self._rows.features)} column names make a birth certificate of {size} bytes: raise "
                f"max_message_bytes (now {limit}), or give the agent fewer columns"
            )

    def look(self, now: float) -> None:
        """Let a birth certificate be due when the log of forecasts went on since the last one, `HEAD_EVERY` ago."""
        if self.due is None and now - self._last >= HEAD_EVERY and (head := self._head()) != self._last_head:
            self._last_head, self.due = head, now

    def state(self, status: Any, *, stopped: bool = False) -> tuple[str, bytes]:
        """Return topic and payload that say ``"up"`` or ``"down"``, and of the latter whether we were told to stop."""
        state = AgentState(
            status=status,
            stopped=stopped,
            incarnation=self._identity.own,
            software=software_version(),
            schemes=list(self._schemes) if status == "up" else [],
            features=list(self._rows.features) if status == "up" else [],
            target=self._rows.target if status == "up" else "",
            kinds=self._kinds if status == "up" else [],
            far=list(self._source.far) if status == "up" else [],
            plan=self._source.origin.plan if status == "up" else "",
            held_back=self._source.held_back if status == "up" else "",
            # Not in the last will: that is written down now, and published when the log has gone on.
            forecasts=self._head() if status == "up" else None,
        )
        # All our states carry the time of our start: it tells which of two processes with one id came later.
        envelope = Envelope(fleet=self._topics.fleet, body=state, agent=self._agent, time=self._identity.started)
        return self._topics.agent_state(self._agent), envelope.to_bytes()

    def last_will(self) -> Message:
        """Return what the broker shall say for us when we are gone."""
        topic, payload = self.state("down")
        return Message(topic, payload, retained=True)

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
        topic, payload = self.state("up")
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
    """Return the installed version of glassfleet; empty when it runs from a source tree that is not installed.

    Looked up once: reading the package's metadata took a fifth of the fleet simulator's time.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - needed once

    try:
        return f"glassfleet {version('glassfleet')}"
    except PackageNotFoundError:
        return "glassfleet"
