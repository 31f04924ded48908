"""Lines as they are written: of standard input, a file, a file that grows, a named pipe."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.errors import DataError, os_faults_as
from schemas.log import Log

_log = Log()

KNOWN: Final = 1024
"""Bytes at the start of a file, and before a place in it, by which both are known again; part of a place's format."""

LOOK: Final = 0.2
"""Seconds between two looks at a file that grows."""

_PLACE: Final = re.compile(r"(\d+:\d+):(\d{1,18}):([0-9a-f]{16})")
"""Device and inode, offset, and a digest of what is known."""


@dataclass(frozen=True)
class _Spot:
    """An offset, the first bytes of the file up to it, and the last ones before it."""

    at: int = 0
    first: bytes = b""
    last: bytes = b""

    def behind(self, more: bytes) -> _Spot:
        first = self.first if len(self.first) == KNOWN else (self.first + more)[:KNOWN]
        return _Spot(self.at + len(more), first, (self.last + more[-KNOWN:])[-KNOWN:])

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.first + self.last, digest_size=8).hexdigest()


class Followed:
    """The lines of a growing file, each with its place.

    Not all lines can be given once:

    - Lost are the lines that nobody looked at before the file was cut, written anew, or rotated away; a rotated file
      that is still open here is read to its end, and left when the new one holds something.
    - A last line that never got its end is no line.
    - Of a file that was cut before the place, all that is left is given again: what of it is new, cannot be told.
    - A file that was written anew, and has the same `KNOWN` bytes before the place, counts as one that grew.

    Parameters
    ----------
    path : Path
        Looked at, too, for a file that replaces the one that is open.
    handle : int
        Descriptor of the file, open for reading. It is closed by `close`.
    longest : int
        Bytes; a longer line is given as None, once.
    behind : str
        A place as it was given with a line. Reading goes on from there when the file is still the same: by device and
        inode, and by the first and last `KNOWN` bytes before the place. Else from the start.
    """

    def __init__(self, path: Path, handle: int, longest: int, behind: str = "") -> None:
        self._path = path
        self._longest = longest
        self._last_fault = ""
        self._whole = self._ahead = _Spot()
        self._begin(handle, behind)

    def look(self) -> list[tuple[bytes | None, str]] | None:
        """Return lines that have become whole, of many the first; without their ends, and blank ones left out.

        Returns
        -------
        list of (bytes or None, str) or None
            A line (None: one that is too long), and its place. An empty list: there is more to look at; None: nothing
            has come.

        Raises
        ------
        OSError
            Reading failed.
        """
        # Asked before the rest is read: who writes to another file by now, has ended this one.
        is_over = self._is_other_there()
        *whole, begun = self._block().split(b"\n")
        lines: list[tuple[bytes | None, str]] = []
        for line in whole:
            size = self._ahead.at - self._whole.at + len(line)
            self._whole = self._ahead = self._ahead.behind(line + b"\n")
            if size > self._longest:
                lines.append((None, self._place))
            elif line.strip():
                lines.append((line, self._place))
        if whole:
            return lines
        if begun and (len(begun) > self._longest or self._ahead != self._whole):
            self._ahead = self._ahead.behind(begun)
            return []
        return [] if is_over and self._change() else None

    def close(self) -> None:
        """Leave the file."""
        os.close(self._handle)

    @property
    def _place(self) -> str:
        return f"{self._file}:{self._whole.at}:{self._whole.digest}"

    def _begin(self, handle: int, behind: str = "") -> None:
        self._handle = handle
        known = os.fstat(handle)
        self._file = f"{known.st_dev}:{known.st_ino}"
        self._whole = self._ahead = self._spot(behind)

    def _spot(self, place: str) -> _Spot:
        """Return the spot of a place in this file, or its start when it is not that file's."""
        parts = _PLACE.fullmatch(place)
        if parts is None or parts[1] != self._file:
            return _Spot()
        at = int(parts[2])
        known = min(at, KNOWN)
        spot = _Spot(at, os.pread(self._handle, known, 0), os.pread(self._handle, known, at - known))
        return spot if spot.digest == parts[3] and len(spot.last) == known else _Spot()

    def _block(self) -> bytes:
        """Return what comes next, after a look at whether it still goes on from where it did."""
        # A line that is too long is passed over piece by piece; it may be taken back, and the lines before it not.
        for spot in (self._ahead, self._whole, _Spot()):
            known = len(spot.last)
            block = os.pread(self._handle, known + self._longest + 1, spot.at - known)
            if block.startswith(spot.last):
                break
        self._ahead = spot
        if not spot.at:
            self._whole = spot
        return block[known:]

    def _is_other_there(self) -> bool:
        """Whether another file, with something in it, has the name by now."""
        try:
            there = self._path.stat()
        except OSError:
            return False  # between two steps of a rotation
        if os.path.samestat(there, os.fstat(self._handle)):
            return False
        if not stat.S_ISREG(there.st_mode):
            self._tell("it is no file any more")
            return False
        return there.st_size > 0

    def _change(self) -> bool:
        """Go over to the file that has the name now; False: it cannot be read yet."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as fault:
            self._tell(fault.strerror or str(fault))
            return False
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode) or os.path.samestat(known, os.fstat(self._handle)):
            os.close(handle)
            return False
        self.close()
        self._begin(handle)
        self._last_fault = ""
        return True

    def _tell(self, why: str) -> None:
        if why != self._last_fault:
            self._last_fault = why
            _log.warning("source-waits", source=str(self._path), reason=why, hint="it is looked at again and again")


class Lines:
    """An iterable of line and place, to be gone through once; it ends with the source, or with `stopping`.

    Parameters
    ----------
    source : str
        A file or named pipe, or ``-``.
    longest : int
        Bytes; of a longer line None is given, once, and its bytes are not kept.
    stopping : Event
        Ends the iteration soon, except where the system waits for a pipe.
    follow : bool
        At the end of a file wait for more, also when it was replaced or cut by a log rotation (see `Followed`); at the
        end of a named pipe wait for the next writer. A line counts when its line end is there.
    behind : str
        A place as it was given with a line: a followed file goes on behind it, when it is still the same file.

    Raises
    ------
    DataError
        There is no such file, or it cannot be read.
    """

    def __init__(
        self,
        source: str,
        longest: int,
        stopping: threading.Event,
        *,
        follow: bool = False,
        behind: str = "",
    ) -> None:
        self._longest = longest
        self._stopping = stopping
        self._is_ours = source != "-"
        # Not sys.stdin.buffer: its lock, held by a thread that waits for input, aborts the process at its end.
        self._handle = _open(Path(source), follow=follow) if self._is_ours else sys.stdin.fileno()
        self._followed: Followed | None = None
        if follow and stat.S_ISREG(os.fstat(self._handle).st_mode):
            try:
                self._followed = Followed(Path(source), self._handle, longest, behind)
            except OSError as fault:
                os.close(self._handle)
                raise unreadable(source, fault) from fault

    def __iter__(self) -> Iterator[tuple[bytes | None, str]]:
        """Yield lines without their ends, blank ones left out, and their places; raises OSError when reading fails.

        None is a line that is too long. A place is empty unless a file is followed.
        """
        if self._followed is not None:
            return self._growing(self._followed)
        return ((line, "") for line in self._stream())

    def _growing(self, followed: Followed) -> Iterator[tuple[bytes | None, str]]:
        try:
            while not self._stopping.is_set():
                lines = followed.look()
                if lines is None:
                    self._stopping.wait(LOOK)
                else:
                    yield from lines
        finally:
            followed.close()

    def _stream(self) -> Iterator[bytes | None]:
        parts = _Parts(self._longest)
        try:
            while not self._stopping.is_set():
                block = os.read(self._handle, self._longest)
                for line in parts.of(block):
                    if line is None or line.strip():
                        yield line
                if not block:
                    if parts.is_too_long or parts.begun.strip():
                        yield None if parts.is_too_long else parts.begun
                    return
        finally:
            if self._is_ours:
                os.close(self._handle)


def unreadable(source: str, fault: OSError) -> DataError:
    """Say that reading a source failed."""
    mend = "Check the disk or device that it is on, and start again"
    return DataError(f"reading failed ({fault.strerror or fault})", mend, f"--source {source}")


def _open(path: Path, *, follow: bool) -> int:
    with os_faults_as(DataError, f"--source {path}", ". Check its name, its folder and its rights"):
        # A pipe that has a writer in ourselves never ends, and opening it does not wait.
        mode = os.O_RDWR if follow and path.is_fifo() else os.O_RDONLY
        handle = os.open(path, mode)
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError(f"--source {path} is a directory. Name a file or pipe of JSON lines in it")
    return handle


class _Parts:
    """Cuts blocks into lines; keeps the line that has begun, but no more of it than may be a line."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._skipped = 0
        self.begun = b""

    @property
    def is_too_long(self) -> bool:
        """Whether the line that has begun is too long already."""
        return self._skipped > 0

    def of(self, block: bytes) -> Iterator[bytes | None]:
        """Yield each line that ends in this block; None: one that is too long."""
        *lines, self.begun = (self.begun + block).split(b"\n")
        for line in lines:
            size, self._skipped = self._skipped + len(line), 0
            yield line if size <= self._longest else None
        if self._skipped or len(self.begun) > self._longest:
            self._skipped += len(self.begun)
            self.begun = b""
