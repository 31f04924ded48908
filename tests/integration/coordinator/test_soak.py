"""Long runs: two hundred trainings on one coordinator process. Memory flat, journal bounded, nothing left on topics.

``GLASSFLEET_SOAK_RUNS`` sets how many (default 200).
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from broker.servers.launch import launch
from lab.chaos.audit import read_retained
from lab.fleet import Fleet
from schemas.topics import Topics
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, ended, spec
from tests.support.processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
RUNS = int(os.environ.get("GLASSFLEET_SOAK_RUNS", "200"))
WARM_UP = RUNS // 4
KEPT = WARM_UP // 2
KEEPS = {"RECORDS_DAYS": "0", "KEPT_RUNS": str(KEPT), "RETAINED_VERSIONS": "3"}
"""Ended runs that the coordinator is told to remember: the journal is as large as it gets before the half is over."""


def journal_size(state_dir: Path) -> tuple[int, int]:
    """Bytes of the database and of its write-ahead log."""
    log = state_dir / "journal.sqlite-wal"
    return (state_dir / "journal.sqlite").stat().st_size, log.stat().st_size if log.exists() else 0


def test_coordinator_stays_as_it_is_over_two_hundred_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = launch(state_dir=tmp_path / "broker")
    coordinator = CoordinatorProcess(
        broker.url,
        tmp_path / "coordinator",
        environment={f"GLASSFLEET_COORDINATOR_{name}": value for name, value in KEEPS.items()},
    )
    memory: list[float] = []
    sizes: list[tuple[int, int]] = []
    try:
        with (
            Fleet(SOURCES, broker=broker.url, state_dir=tmp_path / "agents", evaluate=False) as fleet,
            coordinator.api() as api,
        ):
            for number in range(RUNS):
                run = f"soak-{number:04d}"
                changes = {"parameters": {"nullify": False, "min_rows": 1, "max_depth": 2}}
                begin_run(api, spec(run, **changes))
                assert ended(api, run)["outcome"] == "finished"
                memory.append(psutil.Process(coordinator.pid).memory_info().rss / 2**20)  # MiB
                sizes.append(journal_size(tmp_path / "coordinator"))
            metrics = api.get("/api/metrics").json()
            listed = [each["run"] for each in api.get("/api/runs").json()]
            versions = [each["version"] for each in api.get("/api/models/model").json()]
            eventually(lambda: not any(agent.session.busy for agent in fleet.agents.values()))
            retained = read_retained(broker.url, "fleet")
            contents = [agent.outbox.contents() for agent in fleet.agents.values()]
            frozen = [path for path in (tmp_path / "agents").glob("agents/fleet/*/runs/*") if path.is_dir()]
            known = [len(agent.session.runs) for agent in fleet.agents.values()]
        code = coordinator.end()
    finally:
        coordinator.kill()
        broker.stop()
    assert code == 0, coordinator.logged()
    with capsys.disabled():
        print(  # the numbers that docs/explanation/failure-model.md cites
            f"\nsoak: {RUNS} runs; memory {memory[0]:.1f}, {memory[WARM_UP]:.1f}, {memory[-1]:.1f} MiB at the first, "
            f"{WARM_UP}th and last run; journal {sizes[0]}, {sizes[WARM_UP]}, {sizes[-1]} bytes; "
            f"{len(retained)} retained topics"
        )
    assert metrics["runs.finished"] == RUNS
    assert metrics.get("queue.dropped", 0) == 0

    # Memory: what a run needs is given back; a leak of one run's answers would show as far more than this.
    assert memory[-1] - memory[WARM_UP] < 8.0, [round(each, 1) for each in memory[:: max(1, RUNS // 20)]]
    # The journal: what is forgotten makes room for what comes. SQLite's write-ahead log is a part of what is measured:
    # it grows to about 4 MiB before it is written back, and is then used again.
    database, log = sizes[-1]
    assert database < 1.25 * max(size for size, _ in sizes[WARM_UP : 2 * WARM_UP]), sizes[:: max(1, RUNS // 20)]
    assert log < 6 * 2**20
    assert listed == [f"soak-{number:04d}" for number in range(RUNS - KEPT, RUNS)]
    assert versions == list(range(RUNS - KEPT + 1, RUNS + 1))

    # Topics: no request, no parts without a manifest, and of the model's versions only the newest.
    kinds = [Topics("fleet").parse(topic).kind for topic in retained]
    assert kinds.count("request") == 0
    assert kinds.count("model-version") == 3
    # Nothing is scored here, so that the newest version is a candidate.
    assert (kinds.count("model-candidate"), kinds.count("model-current")) == (1, 0)
    assert kinds.count("agent-state") == len(SOURCES)
    assert kinds.count("blob") == 0

    # The agents: nothing of an ended run is kept.
    assert [(each.pending, each.parked, each.ended) for each in contents] == [((), (), ())] * len(SOURCES)
    assert frozen == []
    assert known == [0] * len(SOURCES)
