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

from edge_agent.live.followed import Followed
from schemas.errors import DataError, os_faults_as


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
        self._longest = longest
        self._stopping = stopping
        self._look = look
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
                    self._stopping.wait(self._look)
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
