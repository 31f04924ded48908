"""A broker, a coordinator process, and agents in this process: what tests of crashes and of long runs start with."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from coordinator.journal.sql import SqlJournal
from coordinator.process.service import Service
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset, pool
from lab.processes import PROGRAM, Process
from lab.protocols.paper import pooled_domain
from schemas.record import ModelRecord
from tests.support import schedules
from tests.support.processes import eventually

EXACT = {"nullify": False, "min_rows": 1, "max_depth": 3}


def rows(index: int, count: int = 80) -> Source:
    rng = np.random.default_rng(index)
    X = rng.random((count + 7 * index, 3))
    data = Dataset(("p", "q", "r"), "t", X, X[:, 0] + np.sin(4 * X[:, 1]) ** 2 + 0.1 * X[:, 2])
    return Source(data, Dataset(data.features, data.target, data.X[:0], data.y[:0]))


SOURCES = {name: rows(index) for index, name in enumerate(("va", "vb", "vc"))}
POOLED = pool([source.train for source in SOURCES.values()])
DOMAIN = pooled_domain(POOLED.features, POOLED.target, POOLED.X, POOLED.y)


def spec(run: str, **changes: Any) -> dict[str, Any]:
    policy = {"gather_agents": 3, "deadline": 60.0, "min_agents": 3, **changes.pop("rounds", {})}
    return {
        "run": run,
        "scheme": "frt",
        "parameters": EXACT,
        "domain": DOMAIN.to_document(),
        "rounds": policy,
        **changes,
    }


class CoordinatorProcess(Process):
    """``glassfleet coordinator``, or another `command`; its log is beside its state, whose disk may be full."""

    def __init__(
        self,
        url: str,
        state_dir: Path,
        *arguments: str,
        command: str = "coordinator",
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.state_dir = state_dir
        (state_dir / "api-url").unlink(missing_ok=True)
        words = [command, "--state-dir", str(state_dir), *arguments]
        settings = {"GLASSFLEET_BROKER": url, "GLASSFLEET_LOG_LEVEL": "warning", **(environment or {})}
        log = state_dir.with_name(f"{state_dir.name}.log")
        super().__init__(command, words, {**os.environ, **settings}, log, program)
        self.start()

    def api(self) -> httpx.Client:
        note = self.state_dir / "api-url"
        eventually(lambda: (note.exists() and note.read_text().strip()) or self.has_ended, seconds=120.0)
        self.check()
        token = (self.state_dir / "api-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=note.read_text().strip(), headers=headers, trust_env=False)


Start = Callable[..., CoordinatorProcess]
"""The fixture of that name: starts a coordinator in a state folder, with further arguments."""


@contextlib.contextmanager
def serving(service: Service) -> Iterator[Service]:
    """Let a coordinator of this process serve meanwhile."""
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join()


def begin_run(api: httpx.Client, wanted: dict[str, Any], rounds: int = 0) -> None:
    """Start a run, and wait until so many of its rounds have closed."""
    answer = api.post("/api/runs", json=wanted)
    assert answer.status_code == 201, answer.text
    if rounds:
        eventually(lambda: len(api.get(f"/api/runs/{wanted['run']}").json()["rounds"]) >= rounds)


def ended(api: httpx.Client, run: str, seconds: float = 300.0) -> dict[str, Any]:
    """Wait for a run's end, and return what there is to say of it; a loaded machine may take its time for a look."""

    def look() -> Any:
        with contextlib.suppress(httpx.TimeoutException):
            document = api.get(f"/api/runs/{run}").json()
            return document["state"] == "ended" and document

    document: dict[str, Any] = eventually(look, f"{run} ended", seconds)
    return document


def record_of(state_dir: Path, run: str) -> ModelRecord:
    """Read a run's model from the journal of a coordinator that has ended."""
    journal = SqlJournal(f"sqlite:///{state_dir / 'journal.sqlite'}")
    try:
        return next(ModelRecord.from_bytes(model.record) for model in journal.models() if model.run == run)
    finally:
        journal.close()


central_digest = partial(schedules.central_digest, sources=SOURCES)
