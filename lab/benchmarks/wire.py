"""Rounds over a real broker: a coordinator process with its journal, and many agents in one process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from broker.servers.launch import launch
from broker.servers.mosquitto import find_mosquitto
from console.client import CoordinatorClient, CoordinatorError
from edge_agent.sources import Source
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.simulation import federated
from lab.benchmarks.measure import made_up, ms, print_table, wait
from lab.fleet import Fleet
from lab.processes import Process, ProcessFleet
from schemas.codec import document_digest
from schemas.log import Log, LogWriter

ROWS = 500
"""Rows per agent: few, so that the broker and the coordinator are measured and not the arithmetic."""

PATIENCE = 120.0


def wire() -> None:
    """Round trips with 15 and 100 agents on each broker that is here."""
    Log.write = LogWriter("error")
    kinds = ["embedded", *(["mosquitto"] if find_mosquitto() else [])]
    rows = [measure(kind, agents) for kind in kinds for agents in (15, 100)]
    print_table(
        f"A round over a broker on loopback: {ROWS} rows x 15 inputs per agent, coordinator with SQLite journal (ms)",
        ["broker", "agents", "rounds", "median round", "slowest round", "kB per agent and round", "whole run (s)"],
        rows,
    )


def measure(kind: str, agents: int) -> list[Any]:
    """Return a line of the table: a run on a broker of a kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassfleet-bench-")))
        broker = launch(kind, state_dir=folder / "broker")
        stack.callback(broker.stop)
        sources = {f"v{index:03d}": _source(index) for index in range(agents)}
        fleet = Fleet(sources, broker=broker.url, state_dir=folder / "agents", evaluate=False, log_level="error")
        stack.enter_context(fleet)
        api, _ = stack.enter_context(coordinator_process(broker.url, folder / "coordinator"))
        policy = {"gather_agents": agents, "gather_timeout": PATIENCE, "min_agents": agents, "deadline": PATIENCE}
        started = time.perf_counter()
        run = api.post("/api/runs", {"scheme": "frt", "model": "bench", "rounds": policy})["run"]
        record = ended(api, run, 0.05)
        seconds = time.perf_counter() - started
    rounds = record["rounds"]
    times = [number["seconds"] for number in rounds]
    sent = sum(number["bytes"] for number in rounds) / len(rounds) / agents / 1000
    return [kind, agents, len(rounds), ms(median(times)), ms(max(times)), f"{sent:.1f}", f"{seconds:.1f}"]


def _source(index: int) -> Source:
    data = made_up(ROWS, seed=index)
    nothing = Dataset(data.features, data.target, data.X[:0], np.empty(0))
    return Source(data, nothing)


@contextmanager
def coordinator_process(broker: str, folder: Path, **settings: str) -> Iterator[tuple[CoordinatorClient, Process]]:
    """Start a coordinator process whose state is in `folder`; give its API and the process."""
    environment = {"GLASSFLEET_BROKER": broker, "GLASSFLEET_LOG_LEVEL": "error", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessFleet(folder) as processes:
        process = processes.add(
            "coordinator", ["coordinator", "--state-dir", str(folder), "--api-port", "0"], environment | settings
        )
        process.start()
        while not (folder / "api-url").exists():
            process.check()
            time.sleep(0.02)
        yield CoordinatorClient(None, None, folder), process


def ended(api: CoordinatorClient, run: str, pause: float = 0.5) -> dict[str, Any]:
    """Return a run once it has finished; only then all of it, as each look at a long run costs the coordinator time."""
    wait(lambda: run in [each["run"] for each in api.get("/api/runs") if each["state"] == "ended"], pause)
    record = api.run(run)
    if record["outcome"] != "finished":
        raise SystemExit(f"{record['outcome']}: {record['reason']}")
    return record


def is_equal(record: dict[str, Any], rows: Callable[[str], Dataset], scheme: Scheme | None = None) -> bool:
    """Whether a run's model is what its cohort learns in one process, by their digests.

    `rows` are those of an agent; `scheme` learns in place of the run's.
    """
    scheme, spec = scheme or catalogue.load(record["scheme"]), record["spec"]
    outcome = federated(
        scheme,
        scheme.Parameters.model_validate(spec["parameters"]),
        Domain.from_document(record["domain"]),
        {agent: rows(agent) for agent in record["cohort"]},
        spec["seed"],
        max_rows_each=record["max_rows_each"] or 0,
    )
    return bool(document_digest(outcome.model.to_document()) == record["model"]["digest"])


def answers(api: CoordinatorClient) -> bool:
    """Whether a coordinator that was started again answers."""
    api.look_again()
    try:
        api.get("/api/runs")
    except CoordinatorError:
        return False
    return True
