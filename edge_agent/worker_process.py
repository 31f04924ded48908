"""The process that does one piece of work, for ``edge_agent.worker``.

Called with what to do, seconds, megabytes, a descriptor that ends when the agent does, and the snapshots of rows.
Standard input holds what is asked; the result goes to standard output.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

NICE = 10
"""The vehicle's own work, and the agent, come first."""


def main() -> None:
    """Do the work within the limits.

    The alarm ends the process wherever it is: nothing handles it. Signals meant for the agent are left to the agent,
    which ends this process itself.
    """
    what, seconds, megabytes, parent = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # The data segment: private memory that can be written, without libraries and what is only reserved.
    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):  # the sandbox of deploy/systemd forbids it
        os.nice(NICE)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    standard = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no result
    # Imports are within the limits, too.
    from glassfleet.errors import TaskError  # noqa: PLC0415
    from schemas import codec  # noqa: PLC0415

    try:
        asked = codec.decode(sys.stdin.buffer.read(), max_bytes=sys.maxsize)
        result = {"answer": _answer, "score": _score}[what](asked, [Path(name) for name in sys.argv[5:]])
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # room to say so
        result = {"refused": ""}
    except TaskError as fault:
        result = {"refused": str(fault)}
    except Exception:  # noqa: BLE001 - the agent logs it
        result = {"trace": traceback.format_exc()}
    with os.fdopen(standard, "wb") as file:
        file.write(codec.encode(result))


def _answer(asked: dict[str, Any], rows: Sequence[Path]) -> dict[str, Any]:
    from edge_agent.session.answers import answer  # noqa: PLC0415 - under the limits
    from edge_agent.session.snapshots import load_rows  # noqa: PLC0415
    from glassfleet.contract.messages import Task  # noqa: PLC0415

    task, data = Task.from_value(asked["task"]), load_rows(rows[0])
    if len(rows) > 1:
        from edge_agent.models.summed import answered  # noqa: PLC0415 - under the limits

        return answered(task, data, load_rows(rows[1]), **asked["watch"])
    return answer(task, replace(data, key=asked["condense"]), asked["noise"])


def _score(asked: dict[str, Any], rows: Sequence[Path]) -> dict[str, Any]:
    from edge_agent.models.evaluation import CANNOT_SCORE, Evaluator, in_words  # noqa: PLC0415 - under the limits
    from edge_agent.session.snapshots import load_rows  # noqa: PLC0415
    from glassfleet.errors import TaskError  # noqa: PLC0415
    from schemas.record import ModelRecord  # noqa: PLC0415

    evaluator = Evaluator(load_rows(rows[0]), load_rows(rows[1]))
    record, champion, *formers = (each and ModelRecord.from_bytes(each) for each in asked["records"])
    assert record is not None
    try:
        steps = evaluator.steps(record, champion, asked["local"], formers)
        (scores,) = [step for step in steps if step is not None]
    except CANNOT_SCORE as fault:
        raise TaskError(in_words(fault)) from fault
    return asdict(scores)


def _end_with(parent: int) -> None:
    os.read(parent, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
