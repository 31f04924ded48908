"""Worker processes that speak JSON lines: one line asks, one line answers. Nothing is pickled, nothing is forked.

A worker is ``python -m <module> [arguments]``; :func:`serve` is its loop. The first line it reads says what all its
questions have in common.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any, Self

import click

from schemas.errors import GlassfleetError, RunFailedError

jobs_option = click.option("--jobs", type=click.IntRange(1, 256), help="Processes.  [default: one per core]")


class Worker:
    """A process that answers questions one at a time.

    Parameters
    ----------
    module : str
        What to run.
    arguments : sequence of str
        Its command line.
    first : JSON value
        What all questions have in common.
    """

    def __init__(self, module: str, arguments: Sequence[str], first: Any) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module in our own interpreter
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers
        )
        self._write(json.dumps(first))

    def ask(self, question: Any, what: str) -> Any:
        """Return the answer to a JSON value; `what` names it when it fails, which raises RunFailedError."""
        self._write(json.dumps(question))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunFailedError(f"the process of {what} died; try --jobs 1 to see why")
        answer = json.loads(line)
        if "error" in answer:
            raise RunFailedError(f"{what}: {answer['error']}")
        return answer["result"]

    def kill(self) -> None:
        """End the process, in the middle of a question if need be; who waits for its answer gets RunFailedError."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as fault:
            raise RunFailedError("a process of the experiment died; try --jobs 1 to see why") from fault


def ask_all(
    make: Callable[[], Worker], jobs: int, questions: Sequence[tuple[Any, str]], here: Callable[[Any], Any]
) -> Iterator[tuple[int, Any]]:
    """Yield (position, answer) of questions, each with its name, as they are answered by up to `jobs` processes.

    One is this process, in which `here` answers.

    Raises
    ------
    RunFailedError
        A question failed, or a process died.
    """
    if jobs == 1:
        for position, (question, name) in enumerate(questions):
            try:
                answered = here(question)
            except ValueError as fault:
                raise RunFailedError(f"{name}: {fault}") from fault
            yield position, answered
        return
    with ExitStack() as stack:
        workers = [stack.enter_context(make()) for _ in range(min(jobs, len(questions)))]
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def answer(position: int) -> tuple[int, Any]:
            worker = idle.get()
            try:
                return position, worker.ask(*questions[position])
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(max(1, len(workers))) as threads:
            pending = [threads.submit(answer, position) for position in range(len(questions))]
            try:
                for future in as_completed(pending):
                    yield future.result()
            finally:
                # After a fault or Ctrl-C, what still runs is of no use: without this, leaving would wait for it.
                for future in pending:
                    future.cancel()
                for worker in workers:
                    worker.kill()


def serve(lines: Iterable[str], answer: Callable[[Any], Any]) -> Iterator[str]:
    """Answer the lines that a worker reads; faults that a user can meet become answers."""
    for line in lines:
        try:
            result: dict[str, Any] = {"result": answer(json.loads(line))}
        except (GlassfleetError, ValueError) as fault:
            result = {"error": str(fault)}
        yield json.dumps(result)
