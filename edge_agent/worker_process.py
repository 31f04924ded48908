"""The process that computes one answer, for ``edge_agent.worker``.

Called with seconds, megabytes, a descriptor that ends when the agent does, and the snapshot of the rows. Standard input
holds 32 bytes for privacy noise and the encoded task; the answer goes to standard output.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

NICE = 10
"""The vehicle's own work, and the agent, come first."""


def main() -> None:
    """Compute the answer within the limits.

    The alarm ends the process wherever it is: nothing handles it. Signals meant for the agent are left to the agent,
    which ends this process itself.
    """
    seconds, megabytes, parent, rows = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # The data segment: private memory that can be written, without libraries and what is only reserved.
    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, resource.RLIM_INFINITY))
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no part of the answer
    try:
        said = _compute(rows)
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # room to say so
        said = {"refused": ""}
    except Exception:  # noqa: BLE001 - the agent logs it
        said = {"trace": traceback.format_exc()}
    from schemas import codec  # noqa: PLC0415 - under the limits, as all else

    with os.fdopen(answer, "wb") as file:
        file.write(codec.encode(said))


def _compute(rows: Path) -> dict[str, Any]:
    from edge_agent.answers import answer  # noqa: PLC0415 - under the limits
    from edge_agent.freeze import load_rows  # noqa: PLC0415
    from glassfleet.scheme import Task, TaskError  # noqa: PLC0415
    from schemas import codec  # noqa: PLC0415

    asked = sys.stdin.buffer.read()
    task = Task.from_value(codec.decode(asked[32:]))
    try:
        return answer(task, load_rows(rows), asked[:32])
    except TaskError as fault:
        return {"refused": str(fault)}


def _end_with(parent: int) -> None:
    os.read(parent, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
