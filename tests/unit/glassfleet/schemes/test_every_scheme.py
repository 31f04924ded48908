"""Every scheme of the catalogue learns through coordinator, agents and journal though a vehicle is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog

from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source, read_source
from glassfleet import catalogue
from glassfleet.scheme import is_personal
from schemas.record import ModelRecord
from tests.support.simulation import Simulation, quiet

SMALL = {
    "bmt": {"max_rules": 3},
    "dp_tree": {"noise": "none"},
    "fedavg_mlp": {"rounds": 2, "epochs": 2, "hidden": [4]},
    "fedga": {"generations": 2, "population": 4, "max_depth": 4, "folds": 2},
    "fmt": {"max_rules": 3, "other_sets": []},
    "tsk": {"n_clusters": 4, "max_rounds": 5},
}
"""Settings with which a run takes a moment; the others have them by default."""

AGENTS = ("v1", "v2", "v3", "v4")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    quiet()
    yield
    structlog.reset_defaults()


def source(path: Path, seed: int, *, labels: bool) -> Source:
    rng = np.random.default_rng(seed)
    lines = ["a,b,y,split"]
    for number, (a, b) in enumerate(rng.random((120, 2)).tolist()):
        target = ("high" if a + b > 1 else "low") if labels else f"{2 * a + (b > 0.5):.4f}"
        lines.append(f"{a:.4f},{b:.4f},{target},{'test' if number % 4 == 0 else 'train'}")
    path.write_text("\n".join(lines) + "\n")
    return read_source(path, target="y", labels=labels)


PURPOSES = [(name, purpose) for name in catalogue.names() for purpose in sorted(catalogue.load(name).purpose)]


@pytest.mark.parametrize(("name", "purpose"), PURPOSES)
def test_fleet_learns_with_every_scheme_when_a_vehicle_is_killed_midway(
    tmp_path: Path, name: str, purpose: str
) -> None:
    scheme = catalogue.load(name)
    labels = purpose == "classification"
    sources = {agent: source(tmp_path / f"{agent}.csv", seed, labels=labels) for seed, agent in enumerate(AGENTS)}
    sim = Simulation(sources, tmp_path / "state")
    sim.heal_everything()
    participation = "cohort" if "cohort" in scheme.participation else "elastic"
    policy = RoundPolicy(min_agents=2, deadline=5, gather_agents=len(AGENTS), extensions=0)
    spec = RunSpec(scheme=name, parameters=SMALL.get(name, {}), policy=policy, participation=participation, model="m")
    run = sim.start_run(spec)
    # Two publishes answer the domain's rounds; the one after them never leaves.
    sim.crash_agent_at_publish("v4", 3)

    document = sim.run_until_ended(run, within=600)

    assert document["outcome"] == "finished", document["reason"]
    assert "v4" not in sim.agents, "the fault did strike"
    record = sim.record("m")
    assert isinstance(record, ModelRecord)
    assert {"v1", "v2", "v3"} <= set(record.cohort)
    model = scheme.from_document(record.document)
    assert model.explain(sources["v1"].test.X[0]) is not None
    sim.advance(10)
    assert sim.coordinator is not None
    gates = {key: count for key, count in sim.coordinator.metrics.items() if key.startswith("gates.")}
    # Some of these small models are no better than the constant; of a personal one each vehicle makes its own.
    assert list(gates.values()) == ([] if is_personal(scheme) else [1])
    # Once as the candidate, and once more when it has become the current model.
    scored = 1 + gates.get("gates.promoted", 0)
    assert {agent: sim.agents[agent].counts["evaluations"] for agent in AGENTS[:3]} == dict.fromkeys(AGENTS[:3], scored)
    assert sim.counted_twice() == []
    assert sim.leaked() == []
