"""A broker program as a child process: started, watched until it answers, stopped, killed, started again."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.paho_transport import wait_until_ready
from broker.port import Link
from broker.process import die_with_parent
from broker.url import BrokerAddress
from schemas.errors import BrokerError


class ChildBroker:
    """One broker process on this machine, as `broker.launch.RunningBroker` describes it.

    Parameters
    ----------
    kind : str
        Name of the program, for messages.
    address : BrokerAddress
        Where it will listen, with user and password.
    command : sequence of str
        Program and arguments.
    state_dir : Path
        Where what it prints goes.
    environment : mapping of str to str or None
        The child's environment; None: ours.
    patience : float
        Seconds until it must answer.
    dies_with_parent : bool
        Whether the system ends it when this process is gone, however that happened (Linux).
    """

    def __init__(
        self,
        kind: str,
        address: BrokerAddress,
        command: Sequence[str],
        state_dir: Path,
        *,
        environment: Mapping[str, str] | None = None,
        patience: float = 10.0,
        dies_with_parent: bool = True,
    ) -> None:
        self.kind = kind
        self.address = address
        self._command = list(command)
        self._state_dir = state_dir
        self._environment = environment
        self._patience = patience
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

    def start(self, timeout: float | None = None) -> None:
        """Start it and wait until it answers; raises BrokerError with the end of what it printed."""
        if self.is_running:
            return
        with (self._state_dir / "output").open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the program that we found, with our own files
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._state_dir,
                preexec_fn=die_with_parent() if self._dies_with_parent else None,  # noqa: PLW1509 - see die_with_parent
                start_new_session=True,
            )
        link = Link(self.url, "probe", protocol="3.1.1")
        try:
            wait_until_ready(link, self._patience if timeout is None else timeout, is_alive=lambda: self.is_running)
        except BrokerError as fault:
            words = self._last_words()
            self.kill()
            raise BrokerError(f"{self.kind} did not start: {words or fault}") from fault

    def stop(self, timeout: float = 15.0) -> None:
        """End it cleanly. Idempotent."""
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
        """Stop and start again on the same port and with the same password."""
        self.stop()
        self.start()

    def _last_words(self) -> str:
        path = self._state_dir / "output"
        if not path.exists():
            return ""
        return "; ".join([line for line in path.read_text(errors="replace").splitlines() if line.strip()][-4:])
