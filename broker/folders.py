"""One at a time in an identity folder: who reads a file and replaces it must not lose what another has added."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until nobody else is in the folder, and keep others out meanwhile; not to be entered twice by one.

    The kernel lets the next one in when a process ends, however it ends. Where a folder cannot be locked, or is none,
    nobody waits.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)
