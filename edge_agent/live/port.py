"""What an adapter of a live source must do, and what it is asked."""

from __future__ import annotations

import datetime as dt
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from edge_agent.imports.plan import Plan
from schemas.log import Log

log = Log()
"""Where an adapter tells what befalls its source."""

MAX_BYTES: Final = 1 << 16
"""Longer lines and messages are no samples."""


@dataclass(frozen=True)
class LiveSample:
    """What came at once.

    Attributes
    ----------
    values : dict of str to anything
        Field or signal -> number, text, truth value, or None: there is no value. Whoever needs a field judges it.
    time : float or None
        When it was measured, in seconds since 1970 or since some begin; None: the source does not tell it.
    is_whole : bool
        Whether no other sample has values of the same time.
    topic : str
        Where it came from, if the source has several and stores the last sample of each; else empty.
    is_stored : bool
        Whether the source had it stored: it may have been given before, perhaps to an earlier process.
    place : str
        Of a file that is followed: where the sample ends.
    """

    values: dict[str, Any]
    time: float | None = None
    is_whole: bool = True
    topic: str = ""
    is_stored: bool = False
    place: str = ""


@dataclass(frozen=True)
class ServerAccess:
    """How a server that samples come from is reached.

    Attributes
    ----------
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem``.
    ca_file : Path or None
        Certificates to trust, in place of the folder's.
    token_file : Path or None
        File with a token, for a server that asks for one.
    insecure_plaintext : bool
        Allow a connection without TLS to another machine.
    """

    identity: Path | None = None
    ca_file: Path | None = None
    token_file: Path | None = None
    insecure_plaintext: bool = False


@dataclass
class SampleRequest:
    """What an adapter is asked for.

    Attributes
    ----------
    source : str
        As it was given.
    signals : tuple of str
        What the plan needs; empty: there is no plan, and everything is wanted.
    time : str
        Field of the samples with their time; empty: none is told.
    plan : Plan or None
        How the cells of a table are read, and `seconds`, the time of a row of them; None: the table is judged.
    access : ServerAccess
    follow : bool
        At the end of a file wait for more, at the end of a named pipe for the next writer.
    behind : str
        Go on behind this `LiveSample.place`.
    speed : float
        A replay goes so many times as fast as it was; 0: as fast as it can.
    is_urgent : bool
        Whether a server that is not there, or refuses us, is an error at once and not waited for.
    stopping : Event
        Is set when no more samples are wanted.
    lost : int
        The adapter counts here what came faster than it was taken.
    units : dict of str to str
        The adapter notes here the units that the source tells of its signals.
    """

    source: str
    signals: tuple[str, ...] = ()
    time: str = ""
    plan: Plan | None = None
    seconds: Callable[[Mapping[str, Any]], float] | None = None
    access: ServerAccess = ServerAccess()
    follow: bool = False
    behind: str = ""
    speed: float = 1.0
    is_urgent: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    lost: int = 0
    units: dict[str, str] = field(default_factory=dict)


class SeenValues:
    """What was given already: a server tells its last values again at each connection."""

    def __init__(self) -> None:
        self._newest: dict[str, float] = {}

    def is_new(self, signal: str, at: float) -> bool:
        """Whether a signal's value of this time was not given yet; from now on it was."""
        is_new = at > self._newest.get(signal, float("-inf"))
        if is_new:
            self._newest[signal] = at
        return is_new


@dataclass(frozen=True)
class Adapter:
    """One kind of live source.

    Attributes
    ----------
    help : str
        What its sources are, for pages and messages.
    read : callable
        Opens the source, and returns its samples, and a text for what is none; called in one thread, iterated in
        another. The iteration ends with the source, or soon after `SampleRequest.stopping` is set. Raises `DataError`
        when the source cannot be read, `UsageError` when its name is none, and when it is closed gives back what it
        holds.
    schemes : tuple of str
        How names of its sources begin, before the colon.
    files : str
        Whether it takes files without a scheme: ``lines`` of samples, or a ``table``; empty: it does not.
    """

    help: str
    read: Callable[[SampleRequest], Iterator[LiveSample | str]]
    schemes: tuple[str, ...] = ()
    files: Literal["", "lines", "table"] = ""


TOO_LONG: Final = f"a sample of more than {MAX_BYTES} bytes"

_LATEST: Final = 1e11
"""Seconds; no clock is in the year 5138, so a larger number is one of milliseconds or less."""


def parse(data: bytes) -> LiveSample | str:
    """Return a sample, or in words why it is none."""
    if len(data) > MAX_BYTES:
        return TOO_LONG
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as fault:
        return f"not JSON: {fault}"[:200]
    if not isinstance(value, dict):
        return "a sample is a JSON object of field and value"
    if value.keys() == {"ts", "path", "value"} and isinstance(value["path"], str):
        try:
            return LiveSample({value["path"]: value["value"]}, seconds_of(value["ts"]), is_whole=False)
        except ValueError as fault:
            return f"ts: {fault}"
    return LiveSample(value)


def seconds_of(value: Any) -> float:
    """Return a time: a number of seconds, or an ISO 8601 text (of UTC, unless it says otherwise) as seconds since 1970.

    Raises
    ------
    ValueError
        It is none.
    """
    if isinstance(value, str):
        try:
            at = dt.datetime.fromisoformat(value)
            return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp()
        except ValueError:
            pass
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is no time: seconds, or 2026-03-01T14:05:09Z") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]} is no time: seconds, or 2026-03-01T14:05:09Z")
    if abs(value) > _LATEST:
        raise ValueError(f"{value:g} is no time in seconds: milliseconds? Divide by 1000")
    return float(value)
