"""A fleet whose input moves tells so with the next run, in its record and in words; in virtual time, over kills."""

import numpy as np
import pytest

from coordinator.models.registry import moved_since
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset
from lab.protocols.paper import pooled_domain
from schemas.record import ModelRecord
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("quiet_logs")

VEHICLES = [f"v{number}" for number in range(8)]


def rows(vehicle: int, night: int, count: int = 60) -> Dataset:
    rng = np.random.default_rng((vehicle, night, count))
    X = rng.normal(size=(count, 2)) - np.array([0.0, 1.5 * (night >= 3)])
    return Dataset(("a", "b"), "y", X, X[:, 0] + 0.2 * rng.normal(size=count))


def test_fleet_tells_with_the_next_run_that_an_input_moved(state_dir):
    sources = {name: Source(rows(place, 0), rows(place, 0, 80)) for place, name in enumerate(VEHICLES)}
    first = [source.train for source in sources.values()]
    X, y = np.concatenate([each.X for each in first]), np.concatenate([each.y for each in first])
    domain = pooled_domain(("a", "b"), "y", X, y)
    sim = Simulation(sources, state_dir)
    sim.begin(2)
    drifts = []
    for night in range(4):
        for place, name in enumerate(VEHICLES):  # killed each night, with the rows of that day after it
            sim.kill_agent(name)
            sim.sources[name] = Source(rows(place, night), rows(place, night, 80))
            sim.start_agent(name)
        sim.advance(5)
        spec = RunSpec(
            run=f"night-{night}",
            model="m",
            scheme="frt",
            parameters={"nullify": False, "min_rows": 1, "max_depth": 2},
            domain=domain,
            rounds=RoundPolicy(min_agents=2, deadline=5, gather_agents=8),
        )
        assert sim.run_until_ended(sim.start_run(spec), within=100)["phase"] == "finished"
        sim.advance(130)  # the gate
        record = sim.record("m")
        drifts.append(record.parameters.get("drift", {}))
    assert drifts[0] == {}, "there is no model yet"
    assert drifts[1]["moved"] == drifts[2]["moved"] == []
    assert any(each.startswith("b is lower by 1") for each in drifts[3]["moved"]), drifts[3]
    assert not any(each.startswith("a ") for each in drifts[3]["moved"])
    assert all(line[0] <= len(VEHICLES) for line in drifts[3]["sums"])
    known = {each.digest: ModelRecord.load(each.record) for each in sim.journal.models("m")}
    assert moved_since(sim.cloud.registry, known[drifts[3]["of"]]) == drifts[3]["moved"]
    assert len(str(drifts[3])) < 1200
