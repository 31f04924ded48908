"""Entry of a process under test: ``python -m console.chaos.child ...`` is ``glassfleet ...`` with faults let in.

The programs under test know nothing of faults: before any of them is imported, the transport is put into
`broker.faults.FaultyTransport` and ``time.time`` is made to jump. Everything else is as in a deployment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from broker import faults


def install(path: Path) -> None:
    """Let faults into this process, as the file at `path` asks for."""
    file = faults.MischiefFile(path)
    faults.let_wall_clock_jump(file)
    from broker import paho_transport  # noqa: PLC0415 - after the clock: defaults are bound at import

    real = paho_transport.PahoTransport

    def make(*args: Any, **options: Any) -> faults.FaultyTransport:
        return faults.FaultyTransport(real(*args, **options), file)

    setattr(paho_transport, "PahoTransport", make)  # noqa: B010 - mypy rightly refuses to replace a class


if __name__ == "__main__":
    install(Path(os.environ[faults.VARIABLE]))
    from console.main import run

    sys.exit(run(sys.argv[1:]))
