"""Whoever searches the logs for a run and a round finds every line about them, the coordinator's and the vehicles'."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from broker.memory import Faults
from coordinator.specification.run import RoundPolicy, RunSpec
from coordinator.telemetry import logs
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import pooled_domain
from tests.support.simulation import Simulation, empty_like

NAMES = ("v1", "v2", "v3")
OF_AGENTS = {"answered", "resent", "receipt", "refused", "outbox-full"}
OF_COORDINATOR = {"run-started", "run-resumed", "round-opened", "round-closed", "model-published", "run-ended"}


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def rows(seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((40, 3))
    return Dataset(("a", "b", "c"), "y", X, X[:, 0] * 2 + np.sin(3 * X[:, 1]) * X[:, 2])


def spec(data: dict[str, Dataset], *, deadline: float = 20.0) -> RunSpec:
    pooled = pool(list(data.values()))
    domain = pooled_domain(pooled.features, "y", pooled.X, pooled.y)
    return RunSpec(
        run="r1",
        scheme="frt",
        model="m",
        domain=domain,
        parameters={"nullify": False, "min_rows": 1, "max_depth": 2},
        policy=RoundPolicy(deadline=deadline, gather_agents=3, gather_timeout=30, min_agents=1),
    )


def fleet(folder: Path, **more: Any) -> tuple[Simulation, dict[str, Dataset]]:
    data = {name: rows(number) for number, name in enumerate(NAMES)}
    sources = {name: Source(each, empty_like(each)) for name, each in data.items()}
    there = Simulation(sources, folder, **more)
    there.start_coordinator()
    for name in NAMES:
        there.start_agent(name)
    there.advance(2.0)
    return there, data


def about(lines: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Lines that concern a run: they name it, or they are of a kind that only a run causes."""
    return [line for line in lines if "run" in line or line["event"] in OF_AGENTS | OF_COORDINATOR]


def test_every_line_about_a_run_names_run_and_round_when_the_network_is_bad_and_processes_die(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        there, data = fleet(
            tmp_path, seed=3, faults=Faults(delay=(0.0, 0.5), duplicate=0.2, loss=0.1, reconnect=(0.2, 2.0))
        )
        there.start_run(spec(data))
        there.advance(1.0)
        there.kill_agent("v2")
        there.start_agent("v2")
        there.kill_coordinator()
        there.start_coordinator()
        there.run_until_ended("r1", within=600.0)
    told = about(lines)
    # By the coordinator and by vehicles: an answer's receipt is a line of both.
    assert {line["event"] for line in told} >= OF_COORDINATOR | {"answered", "resent", "receipt"}
    assert [line for line in told if line.get("run") != "r1"] == []
    # Of a run that has ended, nobody remembers which task was of which round.
    of_live = [line for line in told if line.get("reason") != "the run has ended" or line["event"] != "answered"]
    assert [line for line in of_live if not isinstance(line.get("round"), int)] == []
    assert {line["round"] for line in of_live} >= {1, 2}
    of_agents = [line for line in told if line["event"] in OF_AGENTS]
    assert [line for line in of_agents if line.get("agent") not in NAMES] == []
    assert {line["agent"] for line in of_agents} == set(NAMES)


def test_receipt_line_names_the_round_of_its_answer_not_the_one_that_opened_meanwhile(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        there, data = fleet(tmp_path)
        there.start_run(spec(data))
        there.run_until_ended("r1", within=600.0)
    answered = {(line["agent"], line["task"]): line["round"] for line in lines if "rows" in line and "kind" in line}
    assert len(answered) >= 2 * len(NAMES), "several rounds"
    receipts = [line for line in lines if line["event"] == "receipt"]
    assert {(line["agent"], line["task"]): line["round"] for line in receipts} == answered
    of_coordinator = [line for line in lines if line["event"] == "answered" and "outcome" in line]
    assert {(line["agent"], line["task"][:8]): line["round"] for line in of_coordinator} == answered
    ended = [line for line in lines if line["event"] == "run-ended"]
    assert [line["round"] for line in ended] == [max(answered.values())]


def test_log_tells_of_a_flood_in_bounded_lines_and_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    log = structlog.get_logger("coordinator")
    for number in range(1000):
        log.info("answered", run=f"r{number}", agent="v1", outcome="unknown-run", reason="")
        log.info("run-ended", run=f"r{number}")
    lines = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert (lines.count("answered"), lines.count("run-ended")) == (logs.LINES_EACH, 1000)
