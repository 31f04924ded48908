"""Lines as they are written: of standard input, a file, a file that grows, a named pipe.

Each line comes with its place, so that a reader that was killed can go on behind the last line that it kept.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import DataError

TOO_LONG = None
"""Stands for a line that is longer than allowed; its bytes are not kept."""


class Lines:
    """An iterable of line and place; it ends with the source, or with `stopping`.

    Parameters
    ----------
    source : str
        A file or named pipe, or ``-``.
    longest : int
        Bytes; a longer line is given as `TOO_LONG`, once.
    stopping : Event
        Ends the iteration soon, except where the system waits for a pipe.
    follow : bool
        At the end of a file wait for more, also when it was replaced or cut by a log rotation; at the end of a named
        pipe wait for the next writer. A line counts when its line end is there.
    behind : str
        A place as it was given with a line: a followed file goes on behind it, when it is still the same file.
    look : float
        Seconds between two looks at a file that grows.

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
        look: float = 0.2,
    ) -> None:
        self._path = Path(source)
        self._longest = longest
        self._stopping = stopping
        self._look = look
        self._at = 0
        self._file = ""
        # Not sys.stdin.buffer: its lock, held by a thread that waits for input, aborts the process at its end.
        self._handle = sys.stdin.fileno() if source == "-" else self._open(follow=follow)
        self._follows_file = follow and stat.S_ISREG(os.fstat(self._handle).st_mode)
        if self._follows_file:
            self._begin(behind)

    def __iter__(self) -> Iterator[tuple[bytes | None, str]]:
        """Yield lines without their ends, blank ones left out; raises OSError when reading fails."""
        parts = _Parts(self._longest)
        while not self._stopping.is_set():
            block = os.read(self._handle, self._longest)
            if block:
                for line, size in parts.of(block):
                    self._at += size
                    if line is TOO_LONG or line.strip():
                        yield line, self._place()
            elif not self._follows_file:
                if parts.is_too_long or parts.begun.strip():
                    yield (TOO_LONG if parts.is_too_long else parts.begun), self._place()
                return
            elif self._is_replaced():
                parts = _Parts(self._longest)
            else:
                self._stopping.wait(self._look)

    def _open(self, *, follow: bool) -> int:
        try:
            # A pipe that has a writer in ourselves never ends, and opening it does not wait.
            mode = os.O_RDWR if follow and self._path.is_fifo() else os.O_RDONLY
            handle = os.open(self._path, mode)
        except OSError as fault:
            raise DataError(
                f"--source {self._path}: {fault.strerror}. Check its name, its folder and its rights"
            ) from fault
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            os.close(handle)
            raise DataError(f"--source {self._path} is a directory. Name a file or pipe of JSON lines in it")
        return handle

    def _begin(self, behind: str) -> None:
        known = os.fstat(self._handle)
        self._file = f"{known.st_dev}:{known.st_ino}"
        file, _, at = behind.rpartition(":")
        self._at = int(at) if file == self._file and at.isdecimal() and int(at) <= known.st_size else 0
        os.lseek(self._handle, self._at, os.SEEK_SET)

    def _is_replaced(self) -> bool:
        """Open the file anew when another one has its name, or when it was cut; whether that was so."""
        try:
            there = self._path.stat()
        except OSError:
            return False  # between two steps of a rotation
        here = os.fstat(self._handle)
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            if here.st_size >= self._at:
                return False
        else:
            if os.lseek(self._handle, 0, os.SEEK_CUR) < here.st_size:
                return False  # a last line came meanwhile
            os.close(self._handle)
            self._handle = self._open(follow=True)
        self._begin("")
        return True

    def _place(self) -> str:
        return f"{self._file}:{self._at}" if self._follows_file else ""


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

    def of(self, block: bytes) -> Iterator[tuple[bytes | None, int]]:
        """Yield each line that ends in this block, and the bytes that it takes with its end."""
        *lines, self.begun = (self.begun + block).split(b"\n")
        for line in lines:
            size, self._skipped = self._skipped + len(line) + 1, 0
            yield (line if size <= self._longest + 1 else TOO_LONG), size
        if self._skipped or len(self.begun) > self._longest:
            self._skipped += len(self.begun)
            self.begun = b""
