"""One coordinator per journal: who may wait for it, and the lock of a file; ``postgres`` has that of a server."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from schemas.errors import StorageError

_REFUSAL = (
    "the journal {what} is in use by another coordinator: stop that one first, give this one a journal of its own "
    "(--state-dir or --journal), or let it wait for its turn (--standby)"
)
_GONE = (
    "the lock of the journal {what} is gone: somebody removed or replaced {lock}, so another coordinator may write "
    "there too. Nothing more is written; start the coordinator again, it goes on where it was"
)

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


class FileLock:
    """An advisory lock on a file beside the database; the kernel releases it when the process ends, however it ends.

    Raises
    ------
    StorageError
        Another coordinator holds it.
    """

    def __init__(self, database: Path, engine: sa.Engine, again: Again) -> None:
        self._what = database
        self._path = database.with_name(database.name + ".lock")
        self._engine = engine
        self._file = -1
        while not self._try():
            if not again(""):
                raise StorageError(_REFUSAL.format(what=database))

    def _try(self) -> bool:
        # Opened anew each time: a lock on a file that was replaced meanwhile would be worth nothing.
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise StorageError(f"cannot create {self._path}: {fault.strerror}") from fault
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Give a connection in a transaction.

        Raises
        ------
        StorageError
            The lock's file is not the one that was locked.
        """
        try:
            is_ours = os.path.samestat(os.fstat(self._file), self._path.stat())
        except OSError:
            is_ours = False
        if not is_ours:
            raise StorageError(_GONE.format(what=self._what, lock=self._path.name))
        with self._engine.begin() as connection:
            yield connection

    def release(self) -> None:
        """Give the journal free. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
