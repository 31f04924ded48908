"""Thirty scheduled nights in virtual time, an hour apart, while everything is killed and clocks jump.

No night is doubled, none is lost without a word, there are never two champions, and no vehicle ever uses a version that
no gate passed.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.models.aliases import CURRENT
from coordinator.specification.run import RoundPolicy, RunSpec
from coordinator.specification.schedule import Schedule
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset
from lab.protocols.paper import pooled_domain
from schemas.envelope import Envelope
from schemas.record import ModelRecord
from tests.support.schedules import schedule_fault
from tests.support.simulation import COORDINATOR, FLEET, Simulation

pytestmark = [pytest.mark.usefixtures("quiet_logs"), pytest.mark.slow, pytest.mark.timeout(3000)]

HOUR, NIGHTS = 3600.0, 30
BEGIN = 1_795_824_000.0 + 600.0
VEHICLES = [f"v{number}" for number in range(5)]


def rows(vehicle: int, night: int, count: int) -> Dataset:
    rng = np.random.default_rng((vehicle, night, count))
    X = rng.uniform(size=(count, 2))
    y = X[:, 0] + (night >= NIGHTS // 2) * X[:, 1] + 0.1 * rng.normal(size=count)
    return Dataset(("a", "b"), "y", X, y)


def source(vehicle: int, night: int) -> Source:
    return Source(rows(vehicle, night, 60), rows(vehicle, night, 40))


def in_use(sim: Simulation) -> dict[str, str]:
    """Return the digest of the model on each vehicle's disk."""
    files = {name: sim._state_dir / "agents" / FLEET / name / "models" / "m.json" for name in VEHICLES}
    return {name: ModelRecord.from_bytes(path.read_bytes()).digest for name, path in files.items() if path.exists()}


def begun(state_dir: Path, seed: int) -> Simulation:
    first = [rows(place, 0, 60) for place in range(len(VEHICLES))]
    X, y = np.concatenate([each.X for each in first]), np.concatenate([each.y for each in first])
    sim = Simulation(
        {name: source(place, 0) for place, name in enumerate(VEHICLES)}, state_dir, seed=seed, calendar=BEGIN
    )
    sim.begin(5)
    spec = RunSpec(
        run="template",
        model="m",
        scheme="frt",
        parameters={"nullify": False, "min_rows": 1, "max_depth": 2},
        domain=pooled_domain(("a", "b"), "y", X, y),
        rounds=RoundPolicy(min_agents=2, deadline=5, gather_agents=2, gather_timeout=120),
    )
    document = spec.to_document() | {"run": ""}
    sim.cloud.add_schedule(Schedule.from_document({"name": "nightly", "at": "0 * * * *", "spec": document}))
    return sim


def shaken(sim: Simulation, chance: random.Random, night: int) -> tuple[int, int]:
    """Let a night pass; return how many faults there were, and jumps of the coordinator's clock."""
    for place, name in enumerate(VEHICLES):
        sim.kill_agent(name)  # and has the rows of the day after it
        sim.sources[name] = source(place, night)
        sim.start_agent(name)
    sim.advance(HOUR - 600.0 - 30.0)  # half a minute before
    faults = chance.randrange(4)
    for _ in range(faults):
        schedule_fault(sim, chance, VEHICLES, within=90, gone=60, returns=1.0)
    jumps = chance.random() < 0.2
    if jumps:
        sim.set_clock(COORDINATOR, chance.choice([-2.0, -0.5, 0.5, 2.0]) * HOUR)
    if chance.random() < 0.2:
        sim.set_clock(chance.choice(VEHICLES), chance.choice([-40, 40]) * 86_400.0)
    sim.advance(330.0)
    sim.heal_everything()
    sim.advance(300.0)
    return faults, jumps


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thirty_nights_under_faults_keep_their_promises(seed, state_dir):
    chance, sim, faults, jumps = random.Random(seed), begun(state_dir, seed), 0, 0
    pointers: list[Any] = []
    for night in range(1, NIGHTS + 1):
        more = shaken(sim, chance, night)
        faults, jumps = faults + more[0], jumps + more[1]
        retained = sim.hub.retained.get(sim.topics.model_current("m"))
        if retained is not None:
            pointers.append(Envelope.from_bytes(retained, fleet=FLEET).body)
        passed = {each.body["digest"] for each in sim.cloud.registry.journal.decisions("m") if each.kind == CURRENT}
        assert set(in_use(sim).values()) <= passed, f"night {night}: in use, though no gate passed it"
    assert faults > NIGHTS
    assert_one_champion(sim, pointers)
    assert_nights(sim, jumps)
    assert sim.counted_twice() == []


def assert_one_champion(sim: Simulation, pointers: Sequence[Any]) -> None:
    decisions = [each for each in sim.cloud.registry.journal.decisions("m") if each.kind == CURRENT]
    assert {each.body["cause"] for each in decisions} <= {"published", "promoted", "returned"}
    sequences = [each.body["sequence"] for each in decisions]
    assert sequences == sorted(set(sequences)), "two champions at a time"
    assert [each.sequence for each in pointers] == sorted(each.sequence for each in pointers), "the pointer went back"
    assert pointers[-1].digest == decisions[-1].body["digest"]
    assert set(in_use(sim).values()) == {pointers[-1].digest}


def assert_nights(sim: Simulation, jumps: int) -> None:
    nights = sim.cloud.schedules.document("nightly")["nights"]
    started = [each["run"] for each in nights if each["outcome"] == "started"]
    assert max(Counter(started).values()) == 1, "a night was doubled"
    runs = [run for run in (*sim.cloud.runs.live, *sim.cloud.runs.past) if run.startswith("nightly-")]
    assert sorted(runs) == sorted(started), "a run without a night, or a night without its run"
    ends = [sim.cloud.runs.document(run) for run in runs]
    assert all(each["outcome"] == "finished" or (each["outcome"] == "failed" and each["reason"]) for each in ends)
    assert all(each["reason"] for each in nights if each["outcome"] != "started"), "lost without a word"
    if not jumps:
        assert sum(each["count"] for each in nights) == NIGHTS
    assert sum(each["outcome"] == "finished" for each in ends) >= NIGHTS // 2, nights
