"""A broker as a process of ours: started, awaited, ended; and its port, folder and password."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from broker.paho_transport import wait_until_ready
from broker.port import Link
from broker.url import BrokerAddress
from schemas.errors import BrokerError, StorageError, os_faults_as
from schemas.private_files import kept_secret, open_private, private_folder, replace_private

_ITERATIONS = 101
"""PBKDF2 rounds, as many as Mosquitto takes by itself. The passwords are 192 random bits, so no dictionary helps; and
the broker does nothing else meanwhile: with 20,000 rounds each vehicle that signed in took it tens of milliseconds."""


def new_password() -> str:
    """192 random bits as 32 characters that need no escaping in a URL."""
    return secrets.token_urlsafe(24)


def mosquitto_hash(password: str) -> str:
    """Hash for a Mosquitto password file: ``$7$iterations$salt$hash``, PBKDF2-HMAC-SHA512 (Mosquitto 2)."""
    salt = secrets.token_bytes(12)
    derived = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS, dklen=64)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(derived).decode()}"


def write_private(path: Path, text: str) -> None:
    """Put a file that only its owner can read in place, whole or not at all; raises StorageError."""
    with os_faults_as(StorageError, f"cannot write {path}", ". Choose another state directory"):
        replace_private(path, text.encode())


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


@dataclass(frozen=True)
class Program:
    """What to run, and how it behaves.

    Attributes
    ----------
    name : str
        How messages call it.
    command : sequence of str
        Program and arguments.
    state_dir : Path
        Where it keeps its files, and where what it prints goes.
    output : str
        Name of the file for what it prints.
    tells : mapping of str to int
        In which files it says why it does not start, and so many of their last lines.
    at_home : bool
        Whether it works in its state directory; else in ours.
    protocol : str
        "auto", "5" or "3.1.1": what the probe for its readiness speaks.
    patience : float
        Seconds until it must answer.
    grace : float
        Seconds that it has to end, before it is killed.
    """

    name: str
    command: Sequence[str]
    state_dir: Path
    output: str = "output"
    tells: Mapping[str, int] = field(default_factory=lambda: {"output": 4})
    at_home: bool = True
    protocol: Literal["auto", "5", "3.1.1"] = "3.1.1"
    patience: float = 10.0
    grace: float = 15.0


class ChildBroker:
    """One broker process on this machine.

    Parameters
    ----------
    kind : str
        Which program it is.
    address : BrokerAddress
        Where it will listen, with user and password.

    Notes
    -----
    The system ends it when the thread that started it is gone, however that happened (Linux).
    """

    def __init__(self, kind: str, address: BrokerAddress, program: Program) -> None:
        self.kind = kind
        self.address = address
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL with user and password."""
        return self.address.url

    @property
    def pid(self) -> int:
        """Process id; 0 when it does not run."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float | None = None) -> None:
        """Start it and wait until it answers; raises BrokerError with the end of what it printed."""
        if self.is_running:
            return
        self.begin()
        program = self._program
        try:
            self.await_answer(program.patience if timeout is None else timeout)
        except BrokerError as fault:
            words = self.last_words()
            self.kill()
            raise BrokerError(f"{program.name} did not start: {words or fault}") from fault

    def begin(self) -> None:
        """Start it, and do not wait: of a cluster no node may answer before others are there."""
        program = self._program
        with open_private(program.state_dir / program.output, "wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the program that we found, with our own files
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=program.state_dir if program.at_home else None,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - see die_with_parent
                start_new_session=True,
            )

    def stop(self, timeout: float | None = None) -> None:
        """End it cleanly: one with persistence saves what it knows. Idempotent."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._program.grace if timeout is None else timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: what was not saved is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start again on the same port and with the same password."""
        self.stop()
        self.start()

    def await_answer(self, timeout: float) -> None:
        """Return when it answers; raises BrokerError when it does not, or has ended."""
        link = Link(self.url, "probe", protocol=self._program.protocol)
        wait_until_ready(link, timeout, is_alive=lambda: self.is_running)

    def last_words(self) -> str:
        """Return the end of what it printed."""
        words: list[str] = []
        for name, lines in self._program.tells.items():
            path = self._program.state_dir / name
            if path.exists():
                words += [line for line in path.read_text(errors="replace").splitlines() if line.strip()][-lines:]
        return "; ".join(words)
