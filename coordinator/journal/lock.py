"""One coordinator per journal file; ``postgres`` has the same for a server."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from schemas.errors import StorageError

_REFUSAL = (
    "the journal {what} is in use by another coordinator: stop that one first, or give this one a journal of its own "
    "(--state-dir or --journal)"
)


class FileLock:
    """An advisory lock on a file beside the database; the kernel releases it when the process ends, however it ends."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise StorageError(f"cannot create {self._path}: {fault.strerror}") from fault
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(self._file)
            raise StorageError(_REFUSAL.format(what=database)) from fault

    def release(self) -> None:
        """Give the journal free. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
