"""Small things that every broker process of ours needs."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from broker.passwords import new_password, write_private
from schemas.errors import StorageError

_PR_SET_PDEATHSIG = 1


def free_port(host: str = "127.0.0.1") -> int:
    """Find a port that nobody listens on now. Somebody may take it before it is used: then starting fails, clearly."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def prepare_state_dir(path: Path) -> Path:
    """Make a directory for its owner alone; raises StorageError when that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as fault:
        raise StorageError(
            f"cannot use {path} for the broker: {fault.strerror}. Choose another state directory"
        ) from fault
    return path.resolve()


def kept_password(state_dir: Path) -> str:
    """Give the password of the broker that lives in `state_dir`: the one made before, or a new one."""
    path = state_dir / "secret"
    try:
        if path.exists():
            kept = path.read_text(encoding="utf-8").strip()
            if kept:
                return kept
    except OSError as fault:
        raise StorageError(f"cannot read {path}: {fault.strerror}") from fault
    made = new_password()
    write_private(path, made + "\n")
    return made


if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> Callable[[], None]:
    """Make a ``preexec_fn``: the system ends the child when the thread that starts it is gone.

    On Linux; elsewhere it does nothing. The function calls one C function that was looked up beforehand, so it is safe
    between fork and exec even when other threads hold locks. Mind the word thread: a child that is started from a
    short-lived thread lives no longer than it.
    """
    parent = os.getpid()

    def ask() -> None:
        if sys.platform == "linux":
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)  # it was gone before we asked

    return ask
