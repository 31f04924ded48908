"""Frames of a bus out of its log: ASC, BLF, candump and TRC, each message read by python-can."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import can
import numpy as np
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray

from edge_agent.recordings.blf import Containers
from schemas.errors import DataError, os_faults_as
from schemas.text import counted


def span(layout: Layout) -> tuple[int, int]:
    """Return the first bit of a signal and the first behind it, in the order of its own bytes."""
    start = int(layout.start)
    if layout.byte_order == "big_endian":
        start = 8 * (start // 8) + 7 - start % 8
    return start, start + int(layout.length)


def is_usual(layout: Layout) -> bool:
    """Whether `extract` can read a signal of this kind: a number of at most 64 bits."""
    return 0 < layout.length <= 64 and (not layout.is_float or layout.length in (16, 32, 64))


def extract(data: NDArray[np.uint8], layout: Layout) -> NDArray[np.generic]:
    """Return a signal's raw numbers, shape (n,): uint64, int64, or floats of its length.

    Parameters
    ----------
    data : ndarray of uint8, shape (n, bytes)
        Frames side by side, with all bytes of the signal.
    layout : Layout
        With `is_usual`.
    """
    first, end = span(layout)
    taken = data[:, first // 8 : (end + 7) // 8]  # nine bytes at most
    if layout.byte_order != "big_endian":
        taken, below = taken[:, ::-1], first % 8
    else:
        below = -end % 8
    # Big-endian by now: the last eight bytes hold all bits but those of a ninth before them.
    low = np.zeros((len(data), 8), dtype=np.uint8)
    low[:, max(0, 8 - taken.shape[1]) :] = taken[:, -8:]
    raw: NDArray[np.uint64] = low.view(">u8").ravel().astype(np.uint64) >> np.uint64(below)
    if taken.shape[1] == 9:
        raw |= taken[:, 0].astype(np.uint64) << np.uint64(64 - below)
    if layout.length < 64:
        raw &= np.uint64((1 << layout.length) - 1)
    if layout.is_float:
        return raw.astype(f"u{layout.length // 8}").view(f"f{layout.length // 8}")
    if not layout.is_signed:
        return raw
    sign = np.uint64(1 << (layout.length - 1))
    return ((raw ^ sign) - sign).view(np.int64)


REMOTE: Final = "remote frames"
ERROR: Final = "error frames"
MOST_FAULTS: Final = 10_000
"""Of lines without a frame: behind so many a file is no log."""

_MEND: Final = "Is it a log of a bus, and of this format?"


@dataclass(frozen=True)
class Frames:
    """The frames of one id on one channel.

    Attributes
    ----------
    channel : str
        Empty: the log tells none.
    frame_id : int
    extended : bool
        Whether the id has 29 bits.
    time : ndarray of float64, shape (n,)
    data : ndarray of uint8, shape (n, bytes)
        Shorter frames end with zeros.
    sizes : ndarray of uint8, shape (n,)
        Bytes of each.
    """

    channel: str
    frame_id: int
    extended: bool
    time: NDArray[np.float64]
    data: NDArray[np.uint8]
    sizes: NDArray[np.uint8]


class Feed(Protocol):
    """A log as python-can is given it."""

    start: float
    first_channel: int
    given: int
    no_frames: str

    def again(self) -> Any:
        """Return the file for a new reader, which goes on behind what was read."""
        ...


def read(path: Path, left_out: Counter[str]) -> list[Frames]:
    """Read a log of a bus; raises DataError when it is none. What is no frame of data is counted in `left_out`."""
    found: dict[tuple[Any, int, bool], tuple[array[float], bytearray, bytearray]] = {}
    frames = 0
    with os_faults_as(DataError, f"{path}: cannot be read"), path.open("rb") as file:
        feed, reader = _open(path, file, left_out)
        for message in _messages(path, feed, reader):
            frames += 1
            if message.is_error_frame:
                left_out[ERROR] += 1
                continue
            if message.is_remote_frame:
                left_out[REMOTE] += 1
                continue
            key = (message.channel, message.arbitration_id, message.is_extended_id)
            kept = found.get(key)
            if kept is None:
                kept = found[key] = (array("d"), bytearray(), bytearray())
            kept[0].append(message.timestamp)
            kept[1].append(len(message.data))
            kept[2].extend(message.data)
    left_out[feed.no_frames] += feed.given - frames
    if not found:
        rest = ", ".join(counted(number, what) for what, number in left_out.items() if number)
        what = "no frames of data in it" + (f", but {rest}" if rest else "")
        raise DataError(what, _MEND, str(path))
    return [
        Frames(
            "" if channel is None else str(channel + feed.first_channel if isinstance(channel, int) else channel),
            frame_id,
            extended,
            np.frombuffer(times) + feed.start,
            *_side_by_side(np.frombuffer(data, dtype=np.uint8), np.frombuffer(sizes, dtype=np.uint8)),
        )
        for (channel, frame_id, extended), (times, sizes, data) in found.items()
    ]


def _side_by_side(data: NDArray[np.uint8], sizes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    width = int(sizes.max())
    if (sizes == width).all():
        return data.reshape(len(sizes), width), sizes
    table = np.zeros((len(sizes), width), dtype=np.uint8)
    table[np.arange(width) < sizes[:, None]] = data
    return table, sizes


def _open(path: Path, file: Any, left_out: Counter[str]) -> tuple[Feed, Callable[[Any], Iterable[can.Message]]]:
    ending = path.suffix.lower()
    if ending == ".blf":
        return Containers(path, file, left_out), can.BLFReader
    if ending == ".asc":
        return AscLines(path, file, left_out), can.ASCReader
    if ending == ".trc":
        return TrcLines(path, file, left_out), can.TRCReader
    return LogLines(path, file, left_out), can.CanutilsLogReader


def _messages(path: Path, feed: Feed, reader: Callable[[Any], Iterable[can.Message]]) -> Iterator[can.Message]:
    """Yield what python-can reads; it stops at the first thing that it cannot read, and is begun again behind it."""
    faults = frames = 0
    given = -1
    while True:
        try:
            for message in reader(feed.again()):
                frames += 1
                yield message
        except (DataError, OSError):
            raise
        except Exception as fault:  # its readers raise whatever a broken line brings about
            faults += 1
            if given == feed.given:  # nothing was read since the fault before
                raise DataError(f"cannot be read ({fault})", _MEND, str(path)) from fault
            given = feed.given
            if faults > MOST_FAULTS and faults > frames:
                raise DataError(f"{faults} lines or objects are no frames, {frames} are", _MEND, str(path)) from fault
        else:
            return


# --- logs of text as python-can is given them: line by line, none without end, and with their begin in UTC ------------


MOST_BYTES: Final = 1 << 16  # of a line; a frame of 64 bytes takes 600

_NAMES: Final = ("jan", "feb", "mar|mär", "apr", "may|mai", "jun", "jul", "aug", "sep", "oct|okt", "nov", "dec|dez")
_MONTHS: Final = {month: number for number, names in enumerate(_NAMES, start=1) for month in names.split("|")}
_DATE: Final = re.compile(
    r"(?:date|begin\s+triggerblock)\s+\w+\s+(?P<month>\w{3})\w*\s+(?P<day>\d+)\s+"
    r"(?P<clock>\d+:\d+:\d+)(?P<part>\.\d+)?\s*(?P<half>[ap]m)?\s+(?P<year>\d{4})",
    re.IGNORECASE,
)
_BASE: Final = re.compile(r"base\s+(hex|dec)(?:\s+timestamps\s+(absolute|relative))?", re.IGNORECASE)


class LogLines:
    """Lines of a log.

    Attributes
    ----------
    start : float
        Seconds since 1970 that its times begin at, if it is not the reader who adds them.
    first_channel : int
        What the format counts channels from; its reader counts from 0.
    given : int
        Lines that a reader was given.
    no_frames : str
        What those are called of which it made no frames.
    """

    first_channel = 0
    no_frames = "lines without a frame"

    def __init__(self, path: Path, file: BinaryIO, left_out: Counter[str]) -> None:
        self.start = 0.0
        self.given = 0
        self._path = path
        self._file = file
        self._left_out = left_out
        self._number = 0
        self._head: list[str] = []
        self._body = self._lines()
        self._next = self._body
        self._read_head()

    def _read_head(self) -> None:
        """Keep what each new reader must see."""

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(MOST_BYTES):
            self._number += 1
            if len(line) == MOST_BYTES:
                raise DataError(f"line {self._number} has more than {MOST_BYTES} bytes: no log", where=str(self._path))
            if b"\0" in line:
                self._left_out["NUL bytes"] += line.count(b"\0")
                line = line.replace(b"\0", b"")
            text = line.decode("utf-8", errors="replace")
            if not text.isspace():
                self.given += 1
                yield text

    def again(self) -> LogLines:
        """Return the lines for a new reader, which goes on behind what was read."""
        self._next = chain(self._head, self._body)
        return self

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._next)

    def close(self) -> None:
        """Do nothing: who has opened the file closes it."""


class AscLines(LogLines):
    """Lines of Vector's text format. Its dates tell no zone; they are taken as UTC, so that no machine's own counts."""

    first_channel = 1

    def _read_head(self) -> None:
        base = "base hex\n"
        for line in self._body:
            text = line.strip()
            if date := _DATE.match(text):
                self.start = _seconds(date)
            elif match := _BASE.match(text):
                base = line
                if (match[2] or "").lower() == "relative":
                    what = f"line {self._number} says that each time counts from the line before"
                    raise DataError(what, 'Save it with "timestamps absolute"', str(self._path))
            elif text[0].isdigit() or self._number > 1000:
                self._body = chain([line], self._body)
                break
        self.given = min(self.given, 1)
        # The last is where python-can's head ends; it would take the first frame for it.
        self._head = [base, "internal events logged\n"]


class TrcLines(LogLines):
    """Lines of PEAK's text format."""

    def _read_head(self) -> None:
        for line in self._body:
            if not line.lstrip().startswith(";"):
                self._body = chain([line], self._body)
                self.given = 1
                break
            self._head.append(line)
            self.given = 0
            name, _, value = line.strip().partition("=")
            if name == ";$FILEVERSION" and value not in ("1.0", "1.1", "1.3", "2.0", "2.1"):
                what = f"version {value!r} of the format is not read"
                raise DataError(what, "Convert it to 2.1 with the PEAK-Converter", str(self._path))
            if self._number > 1000:
                raise DataError("a thousand lines of comment and no frame", where=str(self._path))


def _seconds(date: re.Match[str]) -> float:
    month = _MONTHS.get(date["month"].lower())
    if month is None:
        return 0.0
    hour, minute, second = map(int, date["clock"].split(":"))
    if date["half"]:
        hour = hour % 12 + (12 if date["half"].lower() == "pm" else 0)
    try:
        moment = datetime(int(date["year"]), month, int(date["day"]), hour, minute, second, tzinfo=UTC)
    except (ValueError, OverflowError):
        return 0.0
    return moment.timestamp() + float(date["part"] or 0)
