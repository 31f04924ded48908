"""A broker program as a child process: started, watched until it answers, stopped, killed, started again."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from broker.paho_transport import wait_until_ready
from broker.port import Link
from broker.servers.process import die_with_parent
from broker.url import BrokerAddress
from schemas.errors import BrokerError
from schemas.private_files import open_private


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
    environment : mapping of str to str or None
        Its environment; None: ours.
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
    environment: Mapping[str, str] | None = None
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
                env=program.environment,
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
