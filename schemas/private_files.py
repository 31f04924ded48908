"""Files for their owner alone: folders (0700), files (0600), secrets. The one place that decides who may read what.

State holds rows, passwords, keys and models. So what Glassfleet makes is private whatever the umask says. What a former
version left readable is made private at the next start, with a line that says so. Where other users can write, nothing
is kept: they could replace a secret or a journal.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from schemas.errors import StorageError
from schemas.log import Log

SECRET_CHARACTERS = 22
"""Fewest characters of a secret: 22 of base64 hold 132 bits, and 128 cannot be guessed."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def state_home() -> Path:
    """Return the folder for state: ``$GLASSFLEET_STATE_DIR``, or one in ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    if named := os.environ.get("GLASSFLEET_STATE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "glassfleet"


def make_folders(path: Path) -> Path:
    """Make a folder, and each missing one above it, for this user alone; one that is there stays as it is.

    Raises OSError.
    """
    if not path.is_dir():  # `Path.mkdir(parents=True)` would give its mode to the last one only
        if path.parent != path:
            make_folders(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def private_folder(path: Path) -> Path:
    """Make a state folder, or take the one that is there and close it to other users.

    Raises
    ------
    OSError
        It cannot be made or looked at.
    StorageError
        Other users can write into it.
    """
    _close(make_folders(path), "folder", 0o700)
    return path


def private_file(path: Path) -> Path:
    """Make an empty file, or take the one that is there and close it to other users.

    One that is there is not opened: closing any descriptor of an SQLite database drops the locks that this process
    holds on it (POSIX), and another process may then take away the log under it.

    Raises
    ------
    OSError
        It cannot be made or looked at.
    StorageError
        Other users can write it, or it belongs to one of them.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _close(path, "file", 0o600)
    return path


def private_database(path: Path) -> Path:
    """As `private_file`, for an SQLite database: its side files, too; SQLite gives new ones the database's mode."""
    private_file(path)
    for end in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):  # they come and go
            _close(path.with_name(path.name + end), "file", 0o600)
    return path


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file, made for its owner alone when it is not there; `mode` as of `open`, binary. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600, *, draft: Path | None = None) -> Iterator[IO[bytes]]:
    """Write a file beside `path` and put it in place whole and on disk, or not at all. Raises OSError.

    It has this mode whatever the umask, and belongs to whom the file that it replaces belonged to, where this user may
    give it away: root renews the certificate of a broker that runs as another user.

    Parameters
    ----------
    draft : Path or None
        Where it is written first. A folder that one process writes alone (it holds a lock) can have one name for it:
        what a killed process left there is written over. None: a name that cannot be guessed, never opened when it
        exists already - in a folder that others can write to, they could else have laid a link there, or a file that
        they can read.
    """
    if draft is None:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    else:
        draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)  # first: a root in a container may give a file away, and then not change it
            _give_to_the_former_owner(file.fileno(), path)
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    # The name is on disk only when the folder is: a certificate that was handed out must not be forgotten.
    sync_folder(path.parent)


def replace_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put a file in place whole and on disk, or not at all; see `replacing`. Raises OSError."""
    with replacing(path, mode) as file:
        file.write(content)


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in a file: the one that was made before, or a new one.

    Raises
    ------
    StorageError
        It cannot be read or written, is too short to be a secret, or other users can write it.
    """
    try:
        if not path.exists():
            replace_private(path, f"{make()}\n".encode())
        else:
            private_file(path)
        secret = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        secret = ""
    except OSError as fault:
        raise StorageError(f"cannot read or write {path}: {fault.strerror}; choose another state directory") from fault
    if len(secret) < SECRET_CHARACTERS:
        raise StorageError(
            f"the secret in {path} has less than {SECRET_CHARACTERS} ASCII characters, so it can be guessed: delete "
            "the file, and the next start makes a new secret"
        )
    return secret


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def writable_by_others(path: Path) -> str:
    """Say who besides this user and root can write a file or folder; empty: nobody. Raises OSError."""
    status = path.stat()
    me = os.geteuid()
    if status.st_mode & stat.S_IWOTH:
        return "every user of this machine"
    if status.st_mode & stat.S_IWGRP and (others := _others_in(status.st_gid)):
        return others
    if me and status.st_uid not in (me, 0):
        return f"{_user(status.st_uid)}, to whom it belongs,"
    return ""


def refuse_shared(path: Path, what: str = "folder", mode: int = 0o700) -> None:
    """Raise StorageError when other users can write a file or folder; OSError when it cannot be looked at."""
    if who := writable_by_others(path):
        mine = path.stat().st_uid == os.geteuid()
        way_out = f"chmod {mode:o} {path}" if mine else f"give it to this user (chown) and chmod {mode:o} {path}"
        raise StorageError(
            f"{who} can write the {what} {path}, so what is in it cannot be trusted: look whether it is as you left "
            f"it, then {way_out}; or choose another place"
        )


def _close(path: Path, what: str, mode: int) -> None:
    """Take the rights of other users away, and say so; refuse what they could have changed."""
    refuse_shared(path, what, mode)
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS:
        try:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
        except OSError:  # FAT, some network disks: they know no rights
            Log().warning("cannot-be-made-private", path=str(path), mode=f"{stat.S_IMODE(status.st_mode):04o}")
        else:
            Log().warning("made-private", path=str(path), mode=f"{stat.S_IMODE(status.st_mode):04o}")


def _others_in(group: int) -> str:
    """Name a group when somebody else is in it: most users have one of their own, and a container has none."""
    me = os.geteuid()
    with contextlib.suppress(KeyError):
        entry = grp.getgrgid(group)
        if set(entry.gr_mem) - {_user(me), "root"}:
            return f"the group {entry.gr_name}"
    if any(user.pw_gid == group and user.pw_uid not in (me, 0) for user in pwd.getpwall()):
        return f"the group {group}"
    return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def _give_to_the_former_owner(descriptor: int, path: Path) -> None:
    """Give a draft to the owner and group of the file that it is to replace, unless a stranger may have laid it."""
    try:
        former, folder = path.lstat(), path.parent.stat()
    except FileNotFoundError:
        return
    # Where others can write, a file says nothing: who laid it there would be given the key that replaces it.
    is_shared = bool(folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) and former.st_uid != folder.st_uid
    if not stat.S_ISREG(former.st_mode) or is_shared:
        return
    # Only root may give a file to another user; everybody else's owner is right already, and the group may be kept.
    for owner, group in ((former.st_uid, -1), (-1, former.st_gid)):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, group)
