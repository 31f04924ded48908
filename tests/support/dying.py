"""``python -m tests.support.dying ...`` is ``glassfleet ...`` that kills itself (SIGKILL) at an exact place.

``DIES_AT`` names the place: ``MODULE:CLASS.METHOD/before`` or ``.../after`` a call of it, and then which call, from 1.
For a journal's ``append``, ``KIND=N`` in place of the number: with the N-th entry of a kind, on the disk.
``BEGINS_ANEW_AFTER`` is how many bytes of answers an elastic run's journal keeps. The programs themselves know nothing
of either.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from typing import Any

VARIABLE, BOUND = "DIES_AT", "BEGINS_ANEW_AFTER"


def found(place: str) -> tuple[Any, str, Any]:
    """Return the method of a place: whose, its name, and itself; raises where there is none."""
    module, _, path = place.partition("/")[0].partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    return owner, name, getattr(owner, name)


def install(place: str) -> None:
    """Let this process die at `place`."""
    (_, when, which), (owner, name, real) = place.split("/"), found(place)
    kind, _, number = which.rpartition("=")
    left = int(number)

    @functools.wraps(real)
    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= sum(entry.kind == kind for entry in arguments[1]) if kind else 1
        if left > 0:
            return real(*arguments, **options)
        if when == "after":
            real(*arguments, **options)
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying)


if __name__ == "__main__":
    if place := os.environ.get(VARIABLE):
        install(place)
    if bound := os.environ.get(BOUND):
        checkpoint: Any = importlib.import_module("coordinator.engine.checkpoint")
        checkpoint.BOUND = int(bound)
    from console.main import run

    sys.exit(run(sys.argv[1:]))
