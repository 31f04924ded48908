"""Entry of a process under test: ``python -m lab.chaos.child ...`` is ``glassfleet ...`` with faults let in.

The programs under test know nothing of faults: before any of them is imported, the transport is put into
`lab.chaos.faulty_transport.FaultyTransport` and ``time.time`` is made to jump. Everything else is as in a deployment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from lab.chaos import faulty_transport


def install(path: Path) -> None:
    """Let faults into this process, as the file at `path` asks for."""
    file = faulty_transport.MischiefFile(path)
    faulty_transport.let_wall_clock_jump(file)
    from broker import paho_transport  # after the clock: defaults are bound at import

    real = paho_transport.PahoTransport

    def make(*args: Any, **options: Any) -> faulty_transport.FaultyTransport:
        return faulty_transport.FaultyTransport(real(*args, **options), file)

    setattr(paho_transport, "PahoTransport", make)  # noqa: B010 - mypy rightly refuses to replace a class
    _let_rows_count_as_new_in_each_run()


def _let_rows_count_as_new_in_each_run() -> None:
    """Let a vehicle's rows be others in each private run, for its ledger alone.

    The fleet learns from the same rows in run after run while vehicles are lost; vehicles rightly refuse that, since
    the differences of such runs tell of few vehicles.
    """
    from edge_agent.session import private
    from glassfleet.private.ledger import row_hashes

    def hashes(self: private.PrivateRuns, run: str, snapshot: Any) -> Any:
        return row_hashes(run.encode() + self._secret, snapshot.data)

    setattr(private.PrivateRuns, "_hashes", hashes)  # noqa: B010 - as above


if __name__ == "__main__":
    install(Path(os.environ[faulty_transport.VARIABLE]))
    from console.main import run

    sys.exit(run(sys.argv[1:]))
