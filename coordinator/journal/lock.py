"""One coordinator per journal: who may wait for it, and what a lock does; ``sqlite`` and ``postgres`` have one each."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import sqlalchemy as sa

Again = Callable[[str], bool]
"""Asked each time a journal cannot be had, with why (empty: another coordinator has it): whether to try again. It takes
its time to answer."""


class Patience:
    """Tries again for some seconds, but only where another coordinator is in the way: it may be about to end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self, why: str) -> bool:
        """Return whether to try again."""
        if why or time.monotonic() >= self._end:
            return False
        time.sleep(0.05)
        return True


class Lock(Protocol):
    """What keeps other coordinators from writing; it is held from the beginning."""

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """Give a connection in a transaction; raises StorageError when the lock is not held any more."""

    def release(self) -> None:
        """Give the journal free. Idempotent."""
