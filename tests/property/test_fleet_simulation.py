"""Whole fleets under seeded schedules of faults, in virtual time. A failing seed is in the test's name and can be
replayed.

``GLASSFLEET_SCHEDULES`` sets how many schedules are tried (default 12).
"""

import os
import random
import shutil
from typing import Any

import pytest

from coordinator.specification.run import RoundPolicy, RunSpec
from glassfleet.data.dataset import pool
from schemas import limits
from tests.support.agent_bench import domain_of, rows
from tests.support.memory_broker import Faults
from tests.support.schedules import assert_promises, central_digest, schedule_fault, train_only
from tests.support.simulation import Simulation

SCHEDULES = int(os.environ.get("GLASSFLEET_SCHEDULES", "12"))
EXACT = {"nullify": False, "min_rows": 1, "max_depth": 2}


pytestmark = pytest.mark.usefixtures("quiet_logs")


@pytest.fixture
def small_messages(monkeypatch):
    """Let messages be so small that these little trees need parts and blobs."""
    monkeypatch.setattr(limits, "MIN_MESSAGE_BYTES", 1024)


SOURCES = {f"v{index}": train_only(rows(index, 30 + index)) for index in range(5)}
DOMAIN = domain_of(pool([source.train for source in SOURCES.values()]))


def spec(**changes: Any) -> Any:
    policy = changes.pop("rounds", RoundPolicy(min_agents=2, deadline=5, gather_agents=2))
    return RunSpec(**{"run": "r1", "scheme": "frt", "parameters": EXACT, "domain": DOMAIN, "rounds": policy, **changes})


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
    sim.begin(2)
    participation = chance.choice(["cohort", "cohort", "elastic"])
    sim.start_run(spec(domain=chance.choice([None, DOMAIN]), participation=participation))
    for _ in range(chance.randrange(9)):
        schedule_fault(sim, chance, list(SOURCES), within=15, gone=12, returns=0.7)
    sim.at(sim.hub.now + 60, sim.heal_everything)

    document = sim.run_until_ended("r1", within=600)

    assert_promises(sim, document, SOURCES, model=participation == "cohort", rest=150)


def test_agent_costs_one_deadline_when_it_vanishes_in_the_first_round(state_dir):
    sim: Any = Simulation(SOURCES, state_dir)
    sim.begin(1)
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
    assert sim.cloud.runs.live["r1"].phase == "learning"
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
    assert record.cohort == ["v1", "v2", "v3", "v4"]
    assert record.digest == central_digest(record, SOURCES)


def test_agent_gets_data_changed_when_its_rows_change_within_a_run_and_the_snapshot_is_gone(state_dir):
    sim: Any = Simulation(SOURCES, state_dir, settings={"v0": {"slow": 1.0}})
    sim.begin(1)
    sim.start_run(spec())
    sim.advance(1.5)
    sim.kill_agent("v0")
    shutil.rmtree(state_dir / "agents" / "sim" / "v0" / "runs")
    sim.sources["v0"] = train_only(rows(99, 30))
    sim.start_agent("v0")
    document = sim.run_until_ended("r1", within=60)
    assert "v0" not in sim.record("model").cohort
    assert document["agents"]["v0"]["reason"].startswith("data-changed")
