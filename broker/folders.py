"""One at a time in an identity folder: who reads a file and replaces it must not lose what another has added."""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep


@contextmanager
def alone_in(folder: Path, wait: float = math.inf) -> Iterator[None]:
    """Wait until nobody else is in the folder, and keep others out meanwhile; not to be entered twice by one.

    The kernel lets the next one in when a process ends, however it ends. Where a folder cannot be locked, or is none,
    nobody waits.

    Parameters
    ----------
    wait : float
        Seconds after which one goes on though somebody else is there (suspended, or on a disk that hangs): what a
        running process does besides matters more than what may be lost.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _lock(descriptor, monotonic() + wait)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lock(descriptor: int, until: float) -> None:
    if math.isinf(until):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                return
            sleep(0.05)
        else:
            return
