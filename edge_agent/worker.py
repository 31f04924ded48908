"""A computation in a process of its own: it can be ended at any moment, and has a limit of time and of memory.

The process (``edge_agent.worker_process``) gets what is asked in a file and leaves its result in another, so nobody
waits for a pipe, and nothing is pickled. It lives for one piece of work: its memory is given back, and its limits are
its own. Both limits are kept by the operating system, in the middle of any computation.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from annotated_types import Ge, Gt, Le

from edge_agent.storage import explained
from glassfleet.contract.scheme import Cost
from glassfleet.errors import TaskError
from schemas import codec


@dataclass(frozen=True)
class Budget:
    """Limits of what is computed in a process of its own: an answer, or the scores of a model.

    Attributes
    ----------
    seconds : float
        Longest time for one answer, or the scores of one model; what takes longer is refused. Ten times a round's
        usual deadline. Why: rounds with a longer deadline.
    megabytes : int
        Most memory for one answer, or the scores of one model; what needs more is refused. All that the process holds
        of its own; the code of programs and libraries does not count. An answer, scores and the agent together stay
        below the limit of deploy/systemd. Why: the vehicle's memory.
    """

    seconds: Annotated[float, Gt(0), Le(7 * 24 * 3600)] = 300.0
    megabytes: Annotated[int, Ge(256), Le(1 << 20)] = 384

    def exceeded_time(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes for {self.seconds:g} seconds at most (its answer_seconds)"

    def exceeded_memory(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes with {self.megabytes} MB at most (its answer_megabytes)"


LOOK: Final = 0.05
"""Seconds between two looks whether a process has ended."""


LIGHT: Final = Cost(seconds=1.0, megabytes=64.0)
"""What the agent computes by itself, between two looks at its messages; starting a process takes about as long."""


class WorkerError(Exception):
    """The process failed in a way that no task should cause; the text is its traceback."""


class WorkItem:
    """One piece of work under way.

    Parameters
    ----------
    budget : Budget
    what : {"answer", "score"}
        Which function of ``edge_agent.worker_process`` does it.
    rows : sequence of Path
        Snapshots of rows that it reads.
    asked : mapping
        What else it needs, as a codec value.
    most_bytes : int
        Of its result.

    Raises
    ------
    StorageError
        There is no room on disk for what is asked.
    """

    running: ClassVar[Counter[str]] = Counter()
    """Processes at this moment, of all agents here."""

    def __init__(
        self,
        budget: Budget,
        what: Literal["answer", "score"],
        rows: Sequence[Path],
        asked: Mapping[str, Any],
        *,
        most_bytes: int,
    ) -> None:
        self._budget = budget
        self._what = what
        self._most_bytes = most_bytes
        command = [sys.executable, "-P", "-m", "edge_agent.worker_process", what]
        folder = rows[0].parent
        with contextlib.ExitStack() as on_failure:
            with explained("write beside", rows[0]):
                self._output = on_failure.enter_context(tempfile.TemporaryFile(dir=folder))
                given = on_failure.enter_context(tempfile.TemporaryFile(dir=folder))
                given.write(codec.encode(asked))
                given.seek(0)
            parent, self._alive = os.pipe()  # its end tells the process that this one is gone, however
            on_failure.callback(os.close, self._alive)
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [*command, str(budget.seconds), str(budget.megabytes), str(parent), *map(str, rows)],
                    stdin=given,
                    stdout=self._output,
                    pass_fds=(parent,),
                )
            finally:
                os.close(parent)
            given.close()
            on_failure.pop_all()
        WorkItem.running[what] += 1

    @staticmethod
    def has_room(what: Literal["answer", "score"]) -> bool:
        """Whether one more process makes sense: not more than there are processors, however many agents are here."""
        return WorkItem.running[what] < (os.cpu_count() or 1)

    def done(self) -> bool:
        """Whether the process has ended; then `result` says with what."""
        return self._process.poll() is not None

    def result(self) -> dict[str, Any]:
        """Return the result of the process.

        Raises
        ------
        TaskError
            It cannot be done here, or not within the budget.
        WorkerError
            The process failed.
        """
        code = self._process.returncode
        if code == -signal.SIGALRM:
            raise TaskError(self._budget.exceeded_time())
        size = os.fstat(self._output.fileno()).st_size
        if code or not size:
            # Libraries in C end so when they get no memory; and so does what the system ends when it has none left.
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise TaskError(f"{self._budget.exceeded_memory()}; or the system had none: the computation ended ({how})")
        if size > self._most_bytes:
            raise TaskError(f"the answer has {size} bytes; outbox_max_bytes is {self._most_bytes} here")
        self._output.seek(0)
        result: dict[str, Any] = codec.decode(self._output.read(), max_bytes=self._most_bytes)
        if "trace" in result:
            raise WorkerError(result["trace"])
        if "refused" in result:
            raise TaskError(result["refused"] or self._budget.exceeded_memory())
        return result

    def end(self) -> None:
        """Stop the process, if it has not ended, and forget it. Idempotent."""
        if self._output.closed:
            return
        WorkItem.running[self._what] -= 1
        self._process.kill()
        self._process.wait()
        self._output.close()
        os.close(self._alive)
