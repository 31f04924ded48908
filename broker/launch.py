"""Start a broker on this machine: Mosquitto when it is installed, else the embedded one; each a process of its own."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

from broker.embedded import EmbeddedConfig, prepare_embedded
from broker.mosquitto import MosquittoProcess, find_mosquitto
from broker.paho_transport import wait_until_ready
from broker.port import Link
from broker.process import die_with_parent
from schemas.errors import BrokerError, UsageError

Kind = Literal["embedded", "mosquitto"]


class EmbeddedProcess:
    """The embedded broker in a child process.

    Parameters
    ----------
    state_dir : Path
    host : str
        A loopback address.
    port : int
        0: a free one.
    dies_with_parent : bool
        Whether the system ends it when this process is gone, however that happened (Linux).
    """

    kind = "embedded"

    def __init__(
        self, state_dir: Path, *, host: str = "127.0.0.1", port: int = 0, dies_with_parent: bool = True
    ) -> None:
        self.config: EmbeddedConfig = prepare_embedded(state_dir, host=host, port=port)
        self.address = self.config.address
        self._dies_with_parent = dies_with_parent
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

    def start(self, timeout: float = 20.0) -> None:
        """Start it and wait until it answers; raises BrokerError with the end of its log."""
        if self.is_running:
            return
        directory = Path(self.config.state_dir)
        with (directory / "broker.err").open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, with our own file
                [sys.executable, "-m", "broker.embedded", "--config", str(directory / "embedded.json")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                preexec_fn=die_with_parent() if self._dies_with_parent else None,  # noqa: PLW1509 - see there
                start_new_session=True,
            )
        try:
            # Known to speak 3.1.1 only.
            wait_until_ready(Link(self.url, "probe", protocol="3.1.1"), timeout, is_alive=lambda: self.is_running)
        except BrokerError as fault:
            words = self._last_words()
            self.kill()
            raise BrokerError(f"the embedded broker did not start: {words or fault}") from fault

    def stop(self, timeout: float = 5.0) -> None:
        """End it. Idempotent."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start again on the same port and with the same password; it forgets everything else."""
        self.stop()
        self.start()

    def _last_words(self) -> str:
        words: list[str] = []
        for name in ("broker.log", "broker.err"):
            path = Path(self.config.state_dir) / name
            if path.exists():
                words += [line for line in path.read_text(errors="replace").splitlines() if line.strip()][-1:]
        return "; ".join(words)


RunningBroker = EmbeddedProcess | MosquittoProcess
"""``url``, ``kind``, ``pid``, ``is_running``; ``stop()``, ``kill()``, ``start()``, ``restart()``."""


def choose(prefer: str = "auto") -> Kind:
    """Which broker `launch` would start; raises UsageError or BrokerError when that cannot be."""
    if prefer not in ("auto", "embedded", "mosquitto"):
        raise UsageError(f"there is no broker {prefer!r} to start: choose 'auto', 'embedded' or 'mosquitto'")
    if prefer == "embedded":
        return "embedded"
    if find_mosquitto() is not None:
        return "mosquitto"
    if prefer == "mosquitto":
        raise BrokerError("mosquitto is not installed: apt install mosquitto, or use the embedded broker")
    return "embedded"


def _check_port(port: int) -> None:
    """Refuse a port that is taken: the probe for readiness would find the other broker there and be content."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # As servers do: a port that only waits for its last connections to be forgotten is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise BrokerError(
                    f"cannot listen on port {port}: {fault.strerror}; --port 0 takes a free one"
                ) from fault
            raise BrokerError(f"port {port} is in use: --port 0 takes a free one") from fault


def launch(prefer: str = "auto", *, state_dir: Path, port: int = 0, dies_with_parent: bool = True) -> RunningBroker:
    """Start a broker on loopback and wait until it answers.

    Parameters
    ----------
    prefer : "auto", "embedded" or "mosquitto"
        auto: Mosquitto when it is installed.
    state_dir : Path
        For its password, configuration, log and (Mosquitto) persistence; started again on it, it has the same password.
    port : int
        0: a free one.
    dies_with_parent : bool
        Whether it ends with this process. Start it from the main thread then: the system means the thread that
        started it.

    Raises
    ------
    UsageError, BrokerError, StorageError
        It cannot be started; the text says why and what to do.
    """
    if port:
        _check_port(port)
    broker: RunningBroker
    if choose(prefer) == "mosquitto":
        broker = MosquittoProcess(state_dir, port=port, dies_with_parent=dies_with_parent)
    else:
        broker = EmbeddedProcess(state_dir, port=port, dies_with_parent=dies_with_parent)
    broker.start()
    return broker
