"""What it costs to look at runs and vehicles of a large fleet: lists and pages that are asked for again and again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.http.api import ApiServer, read_or_make_token
from coordinator.process.service import Service
from coordinator.specification.run import RoundPolicy, RunSpec
from coordinator.telemetry import logs
from glassfleet.contract import catalogue
from glassfleet.simulation import federated
from lab.benchmarks.events import DEADLINE, SIZES, Bench
from lab.benchmarks.measure import ms, print_table, timed
from schemas.documents import document_digest
from schemas.messages import Evaluation
from schemas.record import ModelRecord

VEHICLES, RUNS = 1000, 100
"""Of `looks`."""

PAST, VERSIONS, CLOSED = 10, 2, 3
"""Of `pages`: ended runs, scored versions of a model, and closed rounds of the run that goes on."""

PAGES = {
    "`GET /api/health`": "/api/health",
    "`GET /api/agents`": "/api/agents",
    "fleet": "/",
    "fleet, worst first": "/?sort=worse",
    "one vehicle": "/vehicles/v00001",
    "the run that goes on": "/runs/r",
    "runs": "/runs",
    "`GET /api/runs/RUN`": "/api/runs/r",
    "`GET /api/models/M/2/evaluations`": "/api/models/m/2/evaluations",
    "a model's versions": "/models/m",
    "one version": "/models/m/2",
    "form for a new run": "/new-run",
}


def looks() -> None:
    """Look at runs that gather: none of the vehicles has what they need, so each look says so."""
    logs.configure("error", "console")
    with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as folder:
        bench = Bench(VEHICLES, Path(folder))
        bench.send("births", bench.state("up", "1", bench.agents))
        for number in range(RUNS):
            wanted = ("x0", f"absent{number}")
            bench.core.start_run(RunSpec(run=f"r{number}", scheme="frt", model="m", features=wanted, target="y"))
        first, _ = timed(lambda: _all(bench.core), repeats=1)
        again, documents = timed(lambda: _all(bench.core))
        bench.journal.close()
    assert all("has no column" in document["reason"] for document in documents)
    print_table(
        f"A look at all of {RUNS} runs that wait for others, {VEHICLES} vehicles up (ms)",
        ["the first", "again"],
        [[ms(first), ms(again)]],
    )


def _all(core: Coordinator) -> list[dict[str, Any]]:
    return [core.runs.document(run) for run in core.runs.ids()]


def pages(fleets: Sequence[int] = SIZES[-1:]) -> None:
    """Ask a coordinator with its SQLite journal and its web server, without a broker, for each of `PAGES`.

    Its vehicles, so many, are in the fourth round of an elastic run; runs of as many are in its journal, and each
    has scored two versions of a model. Server and reader share one process.
    """
    logs.configure("error", "console")
    for vehicles in fleets:
        with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as folder:
            core = _filled(vehicles, Path(folder))
            rows = [[name, *_look(core, Path(folder), page)] for name, page in PAGES.items()]
            core.journal.close()
        print_table(
            f"Pages of {vehicles:,} vehicles (ms until the answer is whole; again: best of three)",
            ["", "kB", "first", "its processor", "again", "its processor"],
            rows,
        )


def _filled(vehicles: int, folder: Path) -> Coordinator:
    """Return a coordinator that knows all of it."""
    bench = Bench(vehicles, folder)
    core, agents = bench.core, bench.agents
    bench.send("births", bench.state("up", "1", agents))
    policy = RoundPolicy(min_agents=1.0, gather_agents=vehicles, deadline=DEADLINE)
    core.start_run(RunSpec(run="r", scheme="frt", model="m", policy=policy, participation="elastic"))
    for _ in range(CLOSED):
        bench.send("answers", bench.answers(agents))
    document = core.runs.document("r")
    assert len(document["rounds"]) == CLOSED, document["reason"]
    scheme = catalogue.load("frt")
    domain = core.runs.live["r"].domain
    assert domain is not None
    model = federated(scheme, scheme.Parameters(max_depth=2), domain, {"v": bench.data}).model.to_document()
    digest = document_digest(model)
    ended = {"state": "ended", "outcome": "finished", "phase": "finished", "open": None, "ended": document["started"]}
    for run in (f"past{number}" for number in range(PAST)):
        core.journal.close_run(run, {**document, **ended, "run": run}, 0.0)
    about = {"name": "m", "scheme": "frt", "fleet": "bench", "cohort": agents, "created": document["started"]}
    for number in range(VERSIONS):
        run = f"past{number}"

        def made(version: int, run: str = run) -> tuple[str, bytes]:
            which = {"run": run, "version": version, "document": model, "digest": digest}
            return digest, ModelRecord.model_validate({**about, **which}).to_bytes()

        version = core.journal.add_model("m", run, made).version
        scores = Evaluation(name="m", version=version, digest=digest, metric="rmse", federated=1, local=2, rows=9)
        for agent in agents:
            core.fleet.evaluated(agent, scores)
    return core


def _look(core: Coordinator, folder: Path, page: str) -> list[str]:
    """Return the kB of an answer, and ms until it is whole and of the processor: right after a start, and again."""
    with _served(core, folder) as client:

        def taken() -> tuple[float, float]:
            begun, used = time.perf_counter(), time.process_time()
            client.get(page).raise_for_status()
            return time.perf_counter() - begun, time.process_time() - used

        first, again = taken(), min(taken() for _ in range(3))
        size = len(client.get(page).content)
    return [f"{size / 1000:.0f}", *map(ms, (*first, *again))]


@contextmanager
def _served(core: Coordinator, folder: Path) -> Iterator[httpx.Client]:
    """Give a client of a web server that has just begun: nothing is remembered of earlier looks."""
    runs = replace(core.runs)
    runs.replace_states(core.runs.live, {})
    service = Service(CoordinatorConfig(fleet="bench", state_dir=folder), replace(core, runs=runs))
    server = ApiServer(folder, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.start(service), trust_env=False, timeout=60) as client:
            token = read_or_make_token(folder)
            assert client.post("/sign-in", data={"token": token}).status_code == 303
            yield client
    finally:
        server.stop()
