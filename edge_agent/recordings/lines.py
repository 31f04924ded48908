"""Logs of text as python-can is given them: line by line, none without end, and with their begin in UTC."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from schemas.errors import DataError

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
