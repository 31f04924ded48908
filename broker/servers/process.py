"""Small things that every broker process of ours needs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from broker.servers.passwords import new_password
from schemas.errors import StorageError, os_faults_as
from schemas.private_files import kept_secret, private_folder

_PR_SET_PDEATHSIG = 1

_given: set[int] = set()
"""Ports that `free_port` has found for this process."""


def free_port() -> int:
    """Find a port that nobody listens on now. Somebody may take it before it is used: then starting fails, clearly.

    It lies below those that the system hands out to connections by itself, where there is room for it: a broker that
    takes seconds to start would lose one of these to any client in between. This process gets no port twice: a server
    that is given two would listen at one with both.
    """
    first, last = 11_000, _first_of_the_systems_own()  # browsers refuse some lower ones
    for port in [first + secrets.randbelow(last - first) for _ in range(50 if last > 2 * first else 0)]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_of_the_systems_own() -> int:
    """Return the lowest port that connections get without asking for one; the default of Linux where it is not told."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def prepare_state_dir(path: Path) -> Path:
    """Make a directory for its owner alone; raises StorageError when it cannot be, or others can write there."""
    with os_faults_as(StorageError, f"cannot use {path} for the broker", ". Choose another state directory"):
        private_folder(path)
    return path.resolve()


def kept_password(state_dir: Path) -> str:
    """Give the password of the broker that lives in `state_dir`: the one made before, or a new one."""
    return kept_secret(state_dir / "secret", new_password)


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
