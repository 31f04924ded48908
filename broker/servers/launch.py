"""Start a broker on this machine: Mosquitto when it is installed, else the embedded one; each a process of its own."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path
from typing import Literal

from broker.servers.embedded import HOST, USER, prepare_embedded
from broker.servers.mosquitto import MosquittoProcess, find_mosquitto
from broker.servers.process import ChildBroker, Program, free_port
from broker.url import BrokerAddress
from schemas.errors import BrokerError, UsageError

Kind = Literal["embedded", "mosquitto"]


class EmbeddedProcess(ChildBroker):
    """The embedded broker in a child process. A restart keeps port and password; it forgets everything else.

    Parameters
    ----------
    port : int
        0: a free one.
    """

    def __init__(self, state_dir: Path, *, port: int = 0) -> None:
        directory, password = prepare_embedded(state_dir)
        port = port or free_port()
        errors = "broker.err"
        super().__init__(
            "embedded",
            BrokerAddress(HOST, port, username=USER, password=password),
            Program(
                "the embedded broker",
                [sys.executable, "-m", "broker.servers.embedded", "--state-dir", str(directory), "--port", str(port)],
                directory,
                output=errors,
                tells={"broker.log": 1, errors: 1},
                at_home=False,
                patience=20.0,
                grace=5.0,
            ),
        )


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


def launch(prefer: str = "auto", *, state_dir: Path, port: int = 0) -> ChildBroker:
    """Start a broker on loopback and wait until it answers; call it from the main thread, see `ChildBroker`.

    Parameters
    ----------
    prefer : "auto", "embedded" or "mosquitto"
        auto: Mosquitto when it is installed.
    state_dir : Path
        For its password, configuration, log and (Mosquitto) persistence; started again on it, it has the same password.
    port : int
        0: a free one.

    Raises
    ------
    UsageError, BrokerError, StorageError
        It cannot be started; the text says why and what to do.
    """
    if port:
        _check_port(port)
    kind = MosquittoProcess if choose(prefer) == "mosquitto" else EmbeddedProcess
    broker: ChildBroker = kind(state_dir, port=port)
    broker.start()
    return broker
