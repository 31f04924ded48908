"""Schemes that learn numbers and classes alike: the agents' ``labels`` decides, from the file to the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from coordinator.spec.run import RoundPolicy, RunSpec
from edge_agent.sources import read_source
from glassfleet import catalogue
from schemas.record import ModelRecord
from tests.support.simulation import Simulation, quiet

BOTH = {
    "fedga": {"generations": 2, "population": 4, "max_depth": 4, "folds": 2},
    "fedavg_mlp": {"rounds": 2, "epochs": 2, "hidden": [4]},
}
AGENTS = ("v1", "v2", "v3")


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    quiet()
    yield
    structlog.reset_defaults()


def write(path: Path, seed: int) -> Path:
    """A file of two inputs and a target that looks a number: 0, 1 or 2."""
    rng = np.random.default_rng(seed)
    table = rng.random((80, 2))
    lines = [
        f"{a:.4f},{b:.4f},{int(a > 0.5) + int(b > 0.7)},{'test' if n % 4 == 0 else 'train'}"
        for n, (a, b) in enumerate(table.tolist())
    ]
    path.write_text("a,b,kind,split\n" + "\n".join(lines) + "\n")
    return path


def learn(tmp_path: Path, scheme: str, labels: dict[str, bool]) -> tuple[Simulation, dict[str, Any]]:
    sources = {
        name: read_source(write(tmp_path / f"{name}.csv", seed), target="kind", labels=labels[name])
        for seed, name in enumerate(AGENTS)
    }
    sim = Simulation(sources, tmp_path / "state")
    sim.heal_everything()
    policy = RoundPolicy(min_agents=2, deadline=5, gather_agents=3)
    spec = RunSpec(scheme=scheme, parameters=BOTH[scheme], policy=policy, participation="elastic", model="m")
    return sim, sim.run_until_ended(sim.start_run(spec), within=300)


@pytest.mark.parametrize("scheme", BOTH)
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "numbers"])
def test_fleet_learns_classes_when_its_agents_read_labels_and_numbers_when_not(
    tmp_path: Path, scheme: str, labels: bool
) -> None:
    sim, document = learn(tmp_path, scheme, dict.fromkeys(AGENTS, labels))
    assert document["outcome"] == "finished", document["reason"]
    record = sim.record("m")
    assert isinstance(record, ModelRecord)
    domain = catalogue.load(scheme).from_document(record.document).domain
    assert domain.target_name == "kind"
    assert domain.classes == (("0", "1", "2") if labels else ())
    assert (domain.target is None) == labels
    sim.advance(5)
    assert {name: agent.counts["evaluations"] for name, agent in sim.agents.items()} == dict.fromkeys(AGENTS, 1)


@pytest.mark.parametrize("scheme", BOTH)
def test_fleet_goes_on_without_the_agent_that_reads_numbers_where_the_others_read_labels(
    tmp_path: Path, scheme: str
) -> None:
    sim, document = learn(tmp_path, scheme, {"v1": True, "v2": True, "v3": False})
    assert document["outcome"] == "finished", document["reason"]
    record = sim.record("m")
    assert isinstance(record, ModelRecord)
    assert catalogue.load(scheme).from_document(record.document).domain.classes == ("0", "1", "2")
    assert record.cohort == ["v1", "v2"]
