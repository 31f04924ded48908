"""The processes of a demonstration or a test: started, watched, killed, frozen, ended, and never left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from broker.servers.process import die_with_parent
from schemas.errors import GlassfleetError, RunFailedError, StorageError

if TYPE_CHECKING:
    from console.client import CoordinatorClient

FULL = 64 * 1024
"""With fewer bytes free than this a disk counts as full."""


PROGRAM = (sys.executable, "-m", "console.main")
"""``glassfleet``, whether it is installed or not."""


class ProcessError(GlassfleetError):
    """A process that is needed ended by itself. Its own exit code is passed on."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass
class Process:
    """One ``glassfleet`` command, or another program, over its lives.

    Attributes
    ----------
    name : str
    arguments : sequence of str
        Of the program.
    environment : mapping of str to str
        The whole of it. Secrets go here: all users of the machine can see arguments.
    log : Path
        Its output is appended here.
    program : sequence of str
    results : Path or None
        Its stdout is appended here; None: to the log.
    folder : Path or None
        Where it works; None: where we do.
    began : int
        Size of the log when this life began, bytes.
    started_at : float
        When this life began, seconds of the monotonic clock.
    lives : int
        How often it was started.
    ends : list of int
        Exit codes of lives that `ProcessFleet.end` ended.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    program: Sequence[str] = PROGRAM
    results: Path | None = None
    folder: Path | None = None
    began: int = 0
    started_at: float = 0.0
    lives: int = 0
    is_frozen: bool = False
    ends: list[int] = field(default_factory=list)
    _child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it runs now (a frozen one does)."""
        return self._child is not None and self._child.poll() is None

    @property
    def has_ended(self) -> bool:
        """Whether it was started, and ended without `kill` or `reap`."""
        return self._child is not None and self._child.poll() is not None

    @property
    def pid(self) -> int:
        """Its process id; it must have been started."""
        assert self._child is not None
        return self._child.pid

    def start(self, stdin: int = subprocess.DEVNULL) -> None:
        """Start it, and let it read from `stdin`, a file descriptor; nothing happens when it runs."""
        if self.is_running:
            return
        with self.log.open("ab") as log, (self.results or self.log).open("ab") as results:
            self.began = log.tell()
            self._child = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [*self.program, *self.arguments],
                stdin=stdin,
                stdout=results,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - calls one C function looked up beforehand
                # Ctrl-C at a terminal is for our own process, which ends the others in order.
                start_new_session=True,
            )
        self.started_at, self.is_frozen = time.monotonic(), False
        self.lives += 1

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._child is not None:
            self._child.send_signal(number)

    def freeze(self) -> None:
        """Let it stand still (SIGSTOP)."""
        self.signal(signal.SIGSTOP)
        self.is_frozen = self.is_running

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)
        self.is_frozen = False

    def end(self, timeout: float = 30.0) -> int | None:
        """Let it end (SIGTERM) and return its exit code; None: it was not started. Raises subprocess.TimeoutExpired."""
        self.signal(signal.SIGTERM)
        return self.reap(timeout)

    def kill(self) -> int | None:
        """End it as a power cut would (SIGKILL), and return its exit code."""
        self.signal(signal.SIGKILL)
        return self.reap()

    def reap(self, timeout: float | None = None) -> int | None:
        """Wait for its end and return its exit code; None: it was not started. Raises subprocess.TimeoutExpired."""
        if self._child is None:
            return None
        code = self._child.wait(timeout)
        self._child, self.is_frozen = None, False
        return code

    def check(self) -> None:
        """Raise ProcessError, with its last words, if it ended by itself; StorageError if the disk is full."""
        if self._child is None or self._child.poll() is None:
            return
        if shutil.disk_usage(self.log.parent).free < FULL:
            # Whatever it said last, if its log had room for it at all, this is why.
            raise StorageError(
                f"{self.name} ended, as the disk of {self.log.parent.parent} is full: make room, or name a folder "
                "elsewhere with --keep (or TMPDIR)"
            )
        code = self._child.returncode
        raise ProcessError(
            f"{self.name} ended with exit code {code}: {self.last_words()}", code if 0 < code < 64 else 1
        )

    def logged(self) -> str:
        """Return what it has logged in this life."""
        with self.log.open("rb") as log:
            log.seek(self.began)
            return log.read().decode(errors="replace")

    def printed(self) -> str:
        """Return what it has written to stdout, in all its lives."""
        return (self.results or self.log).read_text(encoding="utf-8")

    def log_size(self) -> int:
        """Return the size of its log so far, bytes."""
        return self.log.stat().st_size if self.log.exists() else 0

    def last_words(self) -> str:
        """Return the last line of its log; of its own error lines, if there are any, the last."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return "(no log)"
        errors = [line.removeprefix("glassfleet: error: ") for line in lines if line.startswith("glassfleet: error: ")]
        return (errors or lines or ["(it said nothing)"])[-1][:600]


class ProcessFleet(dict[str, Process]):
    """Processes by name, each with its own log file.

    On leaving the context all are ended, whatever happened; if this process is killed outright, the system ends them
    (Linux).

    Parameters
    ----------
    logs : Path
        Folder for their output; it is made.
    environment : mapping of str to str or None
        What all of them have; None: our own.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__()
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        # Unbuffered, so that logs can be read live.
        self.environment = {**(os.environ if environment is None else environment), "PYTHONUNBUFFERED": "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def add(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], program: Sequence[str] = PROGRAM
    ) -> Process:
        """Add a process, not started yet, with this environment beside that of all; return it."""
        self[name] = Process(name, arguments, {**self.environment, **environment}, self._logs / f"{name}.log", program)
        return self[name]

    def end(self, names: Collection[str] | None = None, patience: float = 3.0) -> None:
        """End these processes, or all from the last: politely, after `patience` seconds by force. Idempotent."""
        ending = [self[name] for name in (reversed(self) if names is None else names)]
        for process in ending:
            process.thaw()
            process.signal(signal.SIGTERM)
        latest = time.monotonic() + patience
        for process in ending:
            try:
                code = process.reap(max(0.0, latest - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = process.kill()
            if code is not None:
                process.ends.append(code)


PATIENCE = 60.0
"""Seconds to wait for a coordinator's API."""


def api_of(coordinator: Process, state: Path, check: Callable[[], None] | None = None) -> CoordinatorClient:
    """Return the API of a coordinator that was started, once it answers.

    Parameters
    ----------
    coordinator : Process
    state : Path
        Its state folder.
    check : callable, optional
        Raises when something that it needs has ended; it is called while we wait.

    Raises
    ------
    RunFailedError
        It does not answer within `PATIENCE`.
    """
    from console.client import CoordinatorClient, CoordinatorError  # httpx: whoever only starts processes needs none

    end = time.monotonic() + PATIENCE
    while True:
        (check or coordinator.check)()
        # Between the note of its address and the first answer there is a moment.
        if (state / "api-url").exists():
            with suppress(CoordinatorError):
                api = CoordinatorClient(None, None, state)
                api.get("/api/health")
                return api
        if time.monotonic() > end:
            raise RunFailedError(f"the coordinator was not ready within {PATIENCE:g} s: {coordinator.last_words()}")
        time.sleep(0.02)


# --- the logs of the processes under test, as JSON lines --------------------------------------------------------------


def read_lines(path: Path, begins: int = 0, ends: int | None = None) -> list[dict[str, Any]]:
    """Return the JSON lines of a log; a SIGKILL may have torn one, and the next life's line then follows in it.

    Parameters
    ----------
    path : Path
    begins, ends : int
        Which bytes of it; None: up to its end.
    """
    result = []
    for line in path.read_bytes()[begins:ends].decode("utf-8", errors="replace").splitlines():
        start = line.rfind('{"') if not line.startswith('{"') else 0
        try:
            result.append(json.loads(line[max(start, 0) :]))
        except json.JSONDecodeError:
            continue
    return [line for line in result if isinstance(line, dict)]
