"""Real processes of one fleet: started, waited for, ended, and never left behind."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Desk:
    """A state folder, and the commands that share it.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLEET_")}
        self.environment = {**kept, "GLASSFLEET_STATE_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command that goes on; what it prints goes to a log in the folder."""
        with (self.folder / f"{arguments[0]}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "console.main", *arguments],
                stdin=stdin, stdout=log, stderr=log, env=self.environment, cwd=ROOT,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def call(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "console.main", *arguments],
            capture_output=True, text=True, env=self.environment, cwd=ROOT, check=False, timeout=timeout,
        )  # fmt: skip

    def wait_for(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait for a file in the folder, while the process that shall write it lives."""
        self.until((self.folder / name).exists, process)

    def until(
        self, happened: Callable[[], bool], process: subprocess.Popen[bytes] | None = None, patience: float = 60
    ) -> None:
        """Wait for something that should come true, while `process` lives; fails with all logs."""
        end = time.monotonic() + patience
        while not happened():
            assert time.monotonic() < end, self.logs()
            assert process is None or process.poll() is None, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the end of each log."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        """End all processes, the last one first."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()


def drain(terminal: int) -> str:
    """Return what is sent to a pseudo-terminal until its other side is closed; this side is closed then, too."""
    sent = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        sent += part
    os.close(terminal)
    return sent.decode()
