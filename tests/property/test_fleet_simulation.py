"""Whole fleets under seeded schedules of faults, in virtual time. A failing seed is in the test's name and can be
replayed.

``GLASSFLEET_SCHEDULES`` sets how many schedules are tried (default 12).
"""

import os
import random
import shutil
from typing import Any

import numpy as np
import pytest

from broker.memory import Faults
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import pooled_domain
from schemas import limits
from tests.support.schedules import assert_promises, schedule_fault
from tests.support.simulation import Simulation, central_digest, empty_like

SCHEDULES = int(os.environ.get("GLASSFLEET_SCHEDULES", "12"))
EXACT = {"nullify": False, "min_rows": 1, "max_depth": 2}


pytestmark = pytest.mark.usefixtures("quiet_logs")


@pytest.fixture
def small_messages(monkeypatch):
    """Let messages be so small that these little trees need parts and blobs."""
    monkeypatch.setattr(limits, "MIN_MESSAGE_BYTES", 1024)


def rows(seed: int, count: int) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((count, 3))
    return Dataset(("a", "b", "c"), "y", X, X[:, 0] * 2 + np.sin(3 * X[:, 1]) * X[:, 2])


def train_only(data: Dataset) -> Source:
    return Source(data, empty_like(data))


SOURCES = {f"v{index}": train_only(rows(index, 30 + index)) for index in range(5)}
POOLED = pool([source.train for source in SOURCES.values()])
DOMAIN = pooled_domain(POOLED.features, "y", POOLED.X, POOLED.y)


def spec(**changes: Any) -> Any:
    policy = changes.pop("policy", RoundPolicy(min_agents=2, deadline=5, gather_agents=2))
    return RunSpec(**{"run": "r1", "scheme": "frt", "parameters": EXACT, "domain": DOMAIN, "policy": policy, **changes})


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_fleet_ends_by_name_and_counts_once_and_equals_central_under_faults(seed, state_dir, small_messages):
    chance = random.Random(seed)
    faults = Faults(
        delay=(0.0, chance.choice([0.0, 0.2, 1.0])),
        duplicate=chance.choice([0.0, 0.1, 0.3]),
        loss=chance.choice([0.0, 0.02, 0.05]),
        reconnect=(0.2, 2.0),
    )
    sim = Simulation(
        SOURCES,
        state_dir,
        seed=seed,
        faults=faults,
        settings={"v4": {"slow": chance.choice([0.0, 2.0, 7.0])}},
        broker_limit=chance.choice([1024, 128 * 1024]),
    )
    sim.start_coordinator()
    for name in SOURCES:
        sim.start_agent(name)
    sim.advance(2)
    participation = chance.choice(["cohort", "cohort", "elastic"])
    sim.start_run(spec(domain=chance.choice([None, DOMAIN]), participation=participation))
    for _ in range(chance.randrange(9)):
        schedule_fault(sim, chance, list(SOURCES), within=15, gone=12, returns=0.7)
    sim.at(sim.hub.now + 60, sim.heal_everything)

    document = sim.run_until_ended("r1", within=600)

    assert_promises(sim, document, SOURCES, model=participation == "cohort", rest=150)


def quiet_fleet(state_dir: Any, **settings: Any) -> Any:
    sim = Simulation(SOURCES, state_dir, settings=settings)
    sim.start_coordinator()
    for name in SOURCES:
        sim.start_agent(name)
    sim.advance(1)
    return sim


def test_agent_costs_one_deadline_when_it_vanishes_in_the_first_round(state_dir):
    sim = quiet_fleet(state_dir)
    sim.start_run(spec())
    sim.kill_agent("v0")
    document = sim.run_until_ended("r1", within=60)
    assert document["outcome"] == "finished"
    assert sim.record("model").cohort == ["v1", "v2", "v3", "v4"]
    assert sim.record("model").digest == central_digest(sim.record("model"), SOURCES)


def test_agent_that_is_no_member_of_the_cohort_answers_once_in_each_life_and_is_silent(state_dir):
    sim = Simulation(SOURCES, state_dir, settings={name: {"slow": 1.0} for name in SOURCES if name != "v0"})
    sim.start_coordinator()
    for name in SOURCES:
        if name != "v0":
            sim.start_agent(name)
    sim.advance(1)
    sim.start_run(spec(parameters={**EXACT, "max_depth": 4}))
    sim.advance(1.5)
    assert sim.coordinator is not None
    assert sim.coordinator.runs.live["r1"].phase == "learning"
    sim.start_agent("v0")
    sim.advance(1)
    first = sim.agents["v0"]
    sim.advance(1)
    assert (first.counts["answers"], first.counts["receipt-rejected"]) == (1, 1), "two requests were seen"
    assert first.counts["requests"] > 1
    sim.kill_agent("v0")
    sim.start_agent("v0")
    assert sim.run_until_ended("r1", within=60)["outcome"] == "finished"
    assert sim.agents["v0"].counts["answers"] <= 1
    record = sim.record("model")
    assert record is not None
    assert record.cohort == ["v1", "v2", "v3", "v4"]
    assert record.digest == central_digest(record, SOURCES)


def test_agent_gets_data_changed_when_its_rows_change_within_a_run_and_the_snapshot_is_gone(state_dir):
    sim = quiet_fleet(state_dir, v0={"slow": 1.0})
    sim.start_run(spec())
    sim.advance(1.5)
    sim.kill_agent("v0")
    shutil.rmtree(state_dir / "agents" / "sim" / "v0" / "runs")
    sim.sources["v0"] = train_only(rows(99, 30))
    sim.start_agent("v0")
    document = sim.run_until_ended("r1", within=60)
    assert "v0" not in sim.record("model").cohort
    assert document["agents"]["v0"]["reason"].startswith("data-changed")


def test_agent_answers_from_its_frozen_rows_when_its_file_changed_before_a_restart(state_dir):
    sim = quiet_fleet(state_dir, v0={"slow": 1.0})
    sim.start_run(spec())
    sim.advance(1.5)
    sim.kill_agent("v0")
    sim.sources["v0"] = train_only(rows(99, 30))
    sim.start_agent("v0")
    document = sim.run_until_ended("r1", within=60)
    assert document["outcome"] == "finished"
    assert sim.record("model").cohort == sorted(SOURCES)
    assert sim.record("model").digest == central_digest(sim.record("model"), SOURCES)


def spread(chance: random.Random) -> dict[str, Source]:
    """Cut the pooled rows into vehicles at random: some get one row, some get none."""
    count = chance.randrange(1, 8)
    order = np.array(chance.sample(range(POOLED.rows), POOLED.rows))
    cuts = sorted(chance.randrange(POOLED.rows + 1) for _ in range(count - 1))
    parts = np.split(order, cuts)
    return {
        f"v{index}": train_only(Dataset(POOLED.features, POOLED.target, POOLED.X[part], POOLED.y[part]))
        for index, part in enumerate(parts)
    }


@pytest.mark.parametrize("seed", range(SCHEDULES // 2))
def test_fleet_learns_the_central_model_of_its_cohort_when_rows_are_spread_at_random_and_the_domain_is_found(
    seed, state_dir
):
    chance = random.Random(seed)
    sources = spread(chance)
    sim = Simulation(sources, state_dir, seed=seed, faults=Faults(delay=(0, 2), duplicate=0.2))
    sim.start_coordinator()
    for name in sources:
        sim.start_agent(name)
    sim.advance(5)
    policy = RoundPolicy(deadline=10, gather_agents=len(sources))
    sim.start_run(spec(domain=None, policy=policy))
    lost = chance.choice([None, *sources]) if len(sources) > 2 else None
    if lost is not None:
        sim.at(sim.hub.now + chance.uniform(0, 12), lambda: sim.kill_agent(lost))

    document = sim.run_until_ended("r1", within=300)

    rows_left = sum(source.train.rows for name, source in sources.items() if name != lost)
    if rows_left == 0:
        assert document["reason"].startswith("no-rows: ")
        return
    assert document["outcome"] == "finished", document["reason"]
    record = sim.record("model")
    assert record is not None
    assert set(sources) - {lost} <= set(record.cohort)
    assert record.digest == central_digest(record, sources)
