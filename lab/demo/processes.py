"""Children of the demonstration: started, watched, killed, and never left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.servers.process import die_with_parent
from schemas.errors import GlassfleetError, StorageError

FULL = 64 * 1024
"""With fewer bytes free than this a disk counts as full."""


class ChildError(GlassfleetError):
    """A process that the demonstration needs ended by itself. Its own exit code is passed on."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Family:
    """Named child processes running ``glassfleet`` commands, each with its own log file.

    On leaving the context all are ended, whatever happened; if this process is killed outright, the system ends them
    (Linux).

    Parameters
    ----------
    logs : Path
        Folder for their output.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start ``glassfleet *arguments``. Secrets go into `environment`: arguments are visible to all users."""
        # Thresholds for numerical libraries are set by the command itself; unbuffered, so that logs can be read live.
        whole = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        with (self._logs / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [sys.executable, "-m", "console.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=whole,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - calls one C function looked up beforehand
                # Ctrl-C at a terminal is for the demonstration, which ends its children in order.
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a child as a power cut would: SIGKILL."""
        child = self._children[name]
        child.kill()
        child.wait()

    def is_running(self, name: str) -> bool:
        """Whether a child runs now."""
        child = self._children.get(name)
        return child is not None and child.poll() is None

    def check(self, name: str) -> None:
        """Raise ChildError, with the child's last words, if it ended by itself; StorageError if the disk is full."""
        child = self._children.get(name)
        if child is not None and child.poll() is not None:
            code = child.returncode
            if shutil.disk_usage(self._logs).free < FULL:
                # Whatever it said last, if its log had room for it at all, this is why.
                raise StorageError(
                    f"{name} ended, as the disk of {self._logs.parent} is full: make room, or name a folder elsewhere "
                    "with --keep (or TMPDIR)"
                )
            raise ChildError(
                f"{name} ended with exit code {code}: {self.last_words(name)}", code if 0 < code < 64 else 1
            )

    def last_words(self, name: str) -> str:
        """Return the last lines of a child's log."""
        try:
            lines = (self._logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return "(no log)"
        # The child's own error line says it best.
        told = [line.removeprefix("glassfleet: error: ") for line in lines if line.startswith("glassfleet: error: ")]
        return (told or lines or ["(it said nothing)"])[-1][:600]

    def end_all(self, patience: float = 3.0) -> None:
        """End all children: politely at once, then by force."""
        for child in self._children.values():
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGTERM)
        end = time.monotonic() + patience
        for child in self._children.values():
            try:
                child.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
