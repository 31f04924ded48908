"""What frames of a bus mean: databases (DBC, ARXML, KCD, SYM), read by cantools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import cantools
from cantools.database.can import Message
from cantools.database.can.signal import Signal as Layout

from edge_agent.recordings.frames import span
from schemas.errors import DataError, UsageError, one_line, os_faults_as

ENDINGS: Final = (".arxml", ".dbc", ".kcd", ".sym")
MOST_BYTES: Final = 1 << 28
_LAST_OF_DBC: Final = re.compile(
    r'SG_ .*\[[^\]]*\]\s*"[^"]*"\s*\S.*|(BU_|BS_|NS_|VERSION)\b.*|[A-Z_]+|BO_ \d+ [^:]*: *\d+ +\S+|.*;'
)
"""How the last line of a whole DBC file may be; its parser takes one that was cut for the end."""

_PGN_OF_ALL: Final = 0x3FFFF00  # of an id of J1939: without priority and source
_PGN_OF_ONE: Final = 0x3FF0000  # nor destination, where the format has one


class Databases:
    """Some databases as one.

    Parameters
    ----------
    paths : sequence of Path
        The first that knows a frame counts.

    Raises
    ------
    DataError
        One cannot be read.
    UsageError
        A file's ending is that of no database.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.names = ", ".join(path.name for path in paths)
        self._messages: dict[tuple[int, bool], list[tuple[Path, Message]]] = {}
        self._groups: dict[int, list[tuple[Path, Message]]] = {}
        for path in paths:
            for message in _read(path, path.stat().st_mtime_ns if path.exists() else 0):
                known = self._messages.setdefault((message.frame_id, bool(message.is_extended_frame)), [])
                _add(known, path, message)
                if message.protocol == "j1939":
                    _add(self._groups.setdefault(_group(message.frame_id), []), path, message)

    def find(self, frame_id: int, *, extended: bool) -> tuple[Path, Message] | None:
        """Return what a frame is: by its id, or by the parameter group of J1939 that its id tells.

        Raises DataError where two things are told of the id, or one that cannot be.
        """
        found = self._messages.get((frame_id, extended), [])
        if not found and extended:
            group = self._groups.get(_group(frame_id), [])
            found = group if len(group) == 1 else []  # of several senders, none of them this one
        if not found:
            return None
        path, message = found[0]
        if len(found) > 1:
            other, second = found[1]
            what = f"id {frame_id:#x} is {message.name} in {path.name}, and {second.name} in {other.name}"
            mend = "Import the recording of each bus with the database of that bus"
            raise DataError(f"{what}, which differ", mend, str(other))
        _check(path, message)
        return path, message

    @cached_property
    def _uses(self) -> Counter[str]:
        messages = [each for found in self._messages.values() for each in found]
        names = [(path, message.name, signal.name) for path, message in messages for signal in signals_of(message)]
        own = Counter(signal for _, _, signal in names)
        return own + Counter(f"{message}.{signal}" for _, message, signal in names)

    def name(self, path: Path, message: Message, signal: Layout) -> str:
        """Return a signal's name: its own, with its message, and its database, where others have one of that name, too.

        This depends on the databases alone, so a column has the same name in every vehicle.
        """
        longer = f"{message.name}.{signal.name}"
        if self._uses[signal.name] <= 1:
            return str(signal.name)
        return longer if self._uses[longer] == 1 else f"{path.stem}.{longer}"


def _add(known: list[tuple[Path, Message]], path: Path, message: Message) -> None:
    if not any(_meaning(message) == _meaning(other) for _, other in known):
        known.append((path, message))


def signals_of(message: Message) -> list[Layout]:
    """Return a message's signals; of a container those of all messages within it."""
    if not message.is_container:
        return list(message.signals)
    return [signal for inner in message.contained_messages or () for signal in inner.signals]


def _group(frame_id: int) -> int:
    return frame_id & (_PGN_OF_ONE if (frame_id >> 16 & 0xFF) < 240 else _PGN_OF_ALL)


def _meaning(message: Message) -> list[Any]:
    what = [
        (s.name, s.start, s.length, s.byte_order, s.is_signed, s.is_float, s.scale, s.offset, str(s.choices))
        for s in signals_of(message)
    ]
    return [message.length, sorted(what)]


@lru_cache(maxsize=16)
def _read(path: Path, _changed: int) -> list[Message]:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{path}: no database of a bus; their files end with {', '.join(ENDINGS)}")
    with os_faults_as(DataError, f"{path}: cannot be read"), path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DataError(f"more than {MOST_BYTES >> 20} MB; is it a database?", where=str(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")  # as tools of the trade write them
    last = text.rstrip().rpartition("\n")[2].strip()
    if ending == ".dbc" and not _LAST_OF_DBC.fullmatch(last):
        raise DataError(f"is cut, or no DBC file: it ends with {last[-60:]!r}", "Copy it again", str(path))
    try:
        # Signals that overlap are no fault here: each is read by itself.
        database: Any = cantools.database.load_string(text, database_format=ending[1:], strict=False)
    except Exception as fault:  # its parsers raise whatever a broken file brings about
        raise DataError(f"cannot be read as {ending[1:].upper()}: {one_line(fault)}", where=str(path)) from fault
    messages = list(database.messages)
    if not messages:
        raise DataError("tells of no frames", "Give the database of the bus that was recorded", str(path))
    return messages


def _check(path: Path, message: Message) -> None:
    for signal in () if message.is_container else message.signals:
        if span(signal)[1] > 8 * message.length:
            raise DataError(
                f"signal {signal.name} does not fit into the {message.length} bytes of {message.name}", where=str(path)
            )
        if signal.start < 0 or signal.length < 1:
            raise DataError(f"signal {signal.name} of {message.name} has no bits", where=str(path))
