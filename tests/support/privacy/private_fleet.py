"""Vehicles of real private runs, their rows, and a process that hosts some: ``python -m`` with this module's name.

One process with several agents can be killed as a whole: a part of the fleet is gone between two messages.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from lab.fleet import Fleet
from lab.processes import Process
from lab.protocols.paper import pooled_domain
from schemas.log import Log, LogWriter
from schemas.record import ModelRecord
from tests.support import dying
from tests.support.processes import eventually
from tests.support.schedules import central_digest

READY = "ready\n"
"""What a host process prints once its agents are connected."""


def rows_of(index: int, salt: int = 0) -> Source:
    """Return a vehicle's rows, others for each salt: earlier runs over the same rows bind a vehicle."""
    rng = np.random.default_rng([salt, index])
    X = rng.random((60 + 7 * (index % 16), 3))
    data = Dataset(("p", "q", "r"), "t", X, X[:, 0] + np.sin(4 * X[:, 1]) ** 2 + 0.1 * X[:, 2])
    tests = np.arange(data.rows) % 6 == 0
    train, test = (Dataset(data.features, data.target, data.X[which], data.y[which]) for which in (~tests, tests))
    return Source(train, test)


def sources(indices: Collection[int], salt: int = 0) -> dict[str, Source]:
    return {f"v{index:03d}": rows_of(index, salt) for index in indices}


def domain_of(fleet: Mapping[str, Source]) -> Domain:
    data = pool([source.train for source in fleet.values()])
    return pooled_domain(data.features, data.target, data.X, data.y)


def spec(run: str, fleet: Mapping[str, Source], *, domain: bool = True, **changes: Any) -> dict[str, Any]:
    """Return a private run that waits for the whole fleet."""
    policy = {"gather_agents": len(fleet), "deadline": 60.0, "min_agents": 1, **changes.pop("rounds", {})}
    return {
        "run": run,
        "scheme": "frt",
        "parameters": {"min_rows": 1, "max_depth": 2, "nullify": False},
        "domain": domain_of(fleet).to_document() if domain else None,
        "rounds": policy,
        "private": {},
        **changes,
    }


def check_model(record: ModelRecord, fleet: Mapping[str, Source], members: Collection[str]) -> None:
    """Check that a model is the central one of its cohort, and its cohort `members`."""
    assert sorted(record.cohort) == sorted(members)
    assert record.digest == central_digest(record, fleet)


class Host(Process):
    """A process with some agents; the next life goes on from the state folders of the one before.

    Parameters
    ----------
    url : str
    state_dir : Path
    indices : range
        Of the vehicles.
    salt : int
        Of their rows.
    settings
        Numbers among the settings of agents.
    """

    def __init__(self, url: str, state_dir: Path, indices: range, salt: int = 0, **settings: float) -> None:
        self.names = frozenset(sources(indices, salt))
        options = [f"{name}={value}" for name, value in settings.items()]
        words = [url, str(state_dir), str(indices.start), str(indices.stop), str(salt), *options]
        state_dir.mkdir(parents=True, exist_ok=True)
        log = state_dir / f"host-{indices.start}.log"
        super().__init__("host", words, {}, log, (sys.executable, "-m", "tests.support.privacy.private_fleet"))

    def begin(self, dies_at: str = "") -> None:
        """Begin a life; `dies_at`: as in `tests.support.dying`."""
        self.environment = {**os.environ, dying.VARIABLE: dies_at}
        self.start()

    def wait(self) -> None:
        """Wait until its agents are connected."""
        eventually(lambda: READY in self.logged() or self.has_ended)
        assert self.is_running, self.last_words()


@contextlib.contextmanager
def hosted(url: str, state_dir: Path, indices: range, salt: int = 0, **settings: float) -> Iterator[Host]:
    """Start a host, and kill what is left of it in the end."""
    host = Host(url, state_dir, indices, salt, **settings)
    host.begin()
    try:
        host.wait()
        yield host
    finally:
        host.kill()


def _host(url: str, state_dir: str, start: str, stop: str, salt: str, *options: str) -> None:
    if place := os.environ.get(dying.VARIABLE):
        dying.install(place)
    settings: dict[str, Any] = {name: float(value) for name, _, value in (option.partition("=") for option in options)}
    Log.write = LogWriter("error", "json", fleet="fleet", agent="")
    fleet = Fleet(sources(range(int(start), int(stop)), int(salt)), broker=url, state_dir=Path(state_dir), **settings)
    with fleet:
        eventually(lambda: all(agent.transport.is_connected for agent in fleet.agents.values()))
        print(READY, end="", flush=True)
        while True:
            time.sleep(1.0)


if __name__ == "__main__":
    _host(*sys.argv[1:])
