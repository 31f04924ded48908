"""Entry of a process under test: ``python -m lab.chaos.child ...`` is ``glassfleet ...`` with faults let in.

The programs under test know nothing of faults: before any of them is imported, the transport is put into
`lab.chaos.faulty_transport.FaultyTransport` and ``time.time`` is made to jump. Everything else is as in a deployment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.chaos import faulty_transport
from lab.chaos.schedule import era


def install(path: Path) -> None:
    """Let faults into this process, as the file at `path` asks for."""
    file = faulty_transport.MischiefFile(path)
    faulty_transport.let_wall_clock_jump(file)
    from broker import paho_transport  # after the clock: defaults are bound at import

    real = paho_transport.PahoTransport

    def make(*args: Any, **options: Any) -> faulty_transport.FaultyTransport:
        return faulty_transport.FaultyTransport(real(*args, **options), file)

    setattr(paho_transport, "PahoTransport", make)  # noqa: B010 - mypy rightly refuses to replace a class
    _let_rows_count_as_new_in_every_second_run()


def _let_rows_count_as_new_in_every_second_run() -> None:
    """Let a vehicle's rows be others in some private runs, for its ledger alone, see `lab.chaos.schedule.era`."""
    from edge_agent.session.private_rows import PrivateRows

    def by_run(real: Callable[..., Any]) -> Callable[..., Any]:
        def hashed(self: Any, run: str, *args: Any) -> Any:
            own = self._secret
            self._secret = f"rows {era(run)}".encode() + own
            try:
                return real(self, run, *args)
            finally:
                self._secret = own

        return hashed

    for name in ("choose", "offered", "of_run", "distinct", "tags", "are"):
        setattr(PrivateRows, name, by_run(getattr(PrivateRows, name)))


if __name__ == "__main__":
    install(Path(os.environ[faulty_transport.VARIABLE]))
    from console.main import run

    sys.exit(run(sys.argv[1:]))
