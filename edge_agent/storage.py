"""Small, crash-safe writing to the agent's state directory; every failure is a `StorageError` that says what to do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from schemas import private_files
from schemas.errors import IdentityError, StorageError

SECRET_BYTES = 32


@contextlib.contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the file, the fault and the way out."""
    try:
        yield
    except OSError as fault:
        raise StorageError(f"cannot {what} {path}: {_words(fault)}") from fault


def _words(fault: OSError) -> str:
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full. Make room, then start the agent again; nothing that was stored is lost"
    if fault.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "no permission to write there. Give the agent a state directory of its own with --state-dir"
    if fault.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file is in the way of a directory. Choose another place with --state-dir"
    if fault.errno == errno.EFBIG:
        return "the file size limit is reached (ulimit -f, or the disk). Raise it, then start the agent again"
    return fault.strerror or type(fault).__name__


def make_directory(path: Path) -> Path:
    """Create `path` (and parents), for this user only; raises StorageError, also when others can write into it."""
    with explained("create directory", path):
        return private_files.private_folder(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a new file beside `path` and put it in place only when it is whole and on disk.

    A process that is killed meanwhile leaves the former file, or none; a ``.tmp`` that it left is overwritten the next
    time.
    """
    draft = path.with_name(f".{path.name}.tmp")
    with explained("write", path), private_files.replacing(path, draft=draft) as file:
        yield file


def load_secret(state_dir: Path) -> bytes:
    """Return the agent's secret, 32 random bytes; created at the first call, readable by this user only.

    Raises
    ------
    StorageError
        It cannot be written, or what is there is not a secret.
    """
    path = state_dir / "secret"
    with explained("read", path):
        try:
            secret = path.read_bytes()
            private_files.private_file(path)
        except FileNotFoundError:
            secret = secrets.token_bytes(SECRET_BYTES)
            with replacing(path) as file:
                file.write(secret)
    if len(secret) != SECRET_BYTES:
        raise StorageError(
            f"{path} holds {len(secret)} bytes, not {SECRET_BYTES}: restore it from a backup, or delete it while no "
            "run is open (the agent then counts as one whose data changed)"
        )
    return secret


class FolderLock:
    """Holds a state directory for one process; the operating system releases it when the process dies, however."""

    def __init__(self, state_dir: Path, agent: str) -> None:
        path = state_dir / "lock"
        with explained("open", path):
            self._file = private_files.open_private(path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            self._file.close()
            raise IdentityError(
                f"another process is agent {agent!r} already: it holds {path}. Stop it, or start this one with another "
                "--id and --state-dir"
            ) from fault

    def release(self) -> None:
        """Let the next process in. Idempotent."""
        self._file.close()
