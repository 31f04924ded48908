"""An answer computed in a process of its own: it can be ended at any moment, and has a limit of time and of memory.

The process (``edge_agent.worker_process``) gets its task in a file and leaves its answer in another, so nobody waits
for a pipe, and nothing is pickled. It lives for one answer: its memory is given back, and its limits are its own. Both
limits are kept by the operating system, in the middle of any computation.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from edge_agent.budget import Budget
from edge_agent.storage import explained
from glassfleet.scheme import Task, TaskError
from schemas import codec


class WorkerError(Exception):
    """The process failed in a way that no task should cause; the text is its traceback."""


class Work:
    """One answer under way.

    Parameters
    ----------
    budget : Budget
    rows : Path
        Snapshot of the rows.
    task : Task
    noise : bytes
        32 bytes that privacy noise is drawn from.
    most_bytes : int
        Of the answer.

    Raises
    ------
    StorageError
        There is no room for the task.
    """

    running: ClassVar[int] = 0
    """Processes at this moment, of all agents here."""

    def __init__(self, budget: Budget, rows: Path, task: Task, noise: bytes, *, most_bytes: int) -> None:
        self._budget = budget
        self._most_bytes = most_bytes
        command = [sys.executable, "-P", "-m", "edge_agent.worker_process"]
        with contextlib.ExitStack() as on_failure:
            with explained("write a task beside", rows):
                self._answer = on_failure.enter_context(tempfile.TemporaryFile(dir=rows.parent))
                asked = tempfile.TemporaryFile(dir=rows.parent)  # noqa: SIM115 - closed below, as it is used
                on_failure.enter_context(asked)
                asked.write(noise + codec.encode(task.to_value()))
                asked.seek(0)
            parent, self._alive = os.pipe()  # its end tells the process that this one is gone, however
            on_failure.callback(os.close, self._alive)
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [*command, str(budget.seconds), str(budget.megabytes), str(parent), str(rows)],
                    stdin=asked,
                    stdout=self._answer,
                    pass_fds=(parent,),
                )
            finally:
                os.close(parent)
            asked.close()
            on_failure.pop_all()
        Work.running += 1

    @staticmethod
    def has_room() -> bool:
        """Whether one more process makes sense: not more than there are processors, however many agents are here."""
        return Work.running < (os.cpu_count() or 1)

    def done(self) -> bool:
        """Whether the process has ended; then `result` says with what."""
        return self._process.poll() is not None

    def result(self) -> dict[str, Any]:
        """Return what ``edge_agent.answers.answer`` returned there.

        Raises
        ------
        TaskError
            It cannot be answered here, or not within the budget.
        WorkerError
            The process failed.
        """
        code = self._process.returncode
        if code == -signal.SIGALRM:
            raise TaskError(self._budget.exceeded_time())
        size = os.fstat(self._answer.fileno()).st_size
        if code or not size:
            # Libraries in C end so when they get no memory; and so does what the system ends when it has none left.
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise TaskError(f"{self._budget.exceeded_memory()}; or the system had none: the computation ended ({how})")
        if size > self._most_bytes:
            raise TaskError(f"the answer has {size} bytes; outbox_max_bytes is {self._most_bytes} here")
        self._answer.seek(0)
        said = codec.decode(self._answer.read(), max_bytes=self._most_bytes)
        if "trace" in said:
            raise WorkerError(said["trace"])
        if "refused" in said:
            raise TaskError(said["refused"] or self._budget.exceeded_memory())
        answered: dict[str, Any] = said
        return answered

    def end(self) -> None:
        """Stop the process, if it has not ended, and forget it. Idempotent."""
        if self._answer.closed:
            return
        Work.running -= 1
        self._process.kill()
        self._process.wait()
        self._answer.close()
        os.close(self._alive)
