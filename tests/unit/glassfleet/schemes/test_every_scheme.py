"""Every scheme: found, learned in one place or by a fleet; averaged networks, and outlines of growing trees."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source, read_source
from glassfleet.contract import catalogue
from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.simulation import federated
from schemas.errors import NotFoundError, UsageError
from schemas.record import ModelRecord
from tests.support.simulation import Simulation

SMALL = {
    "tree": {"max_rules": 3},
    "dp_tree": {"noise": "none"},
    "fedavg_mlp": {"rounds": 2, "epochs": 2, "hidden": [4]},
    "fedga": {"generations": 2, "population": 4, "max_depth": 4, "folds": 2},
    "tsk": {"n_clusters": 4, "max_rounds": 5},
}
"""Settings with which a run takes a moment; the others have them by default."""

AGENTS = ("v1", "v2", "v3", "v4")


pytestmark = pytest.mark.usefixtures("structlog_defaults")


def source(path: Path, seed: int, *, labels: bool) -> Source:
    rng = np.random.default_rng(seed)
    lines = ["a,b,y,split"]
    for number, (a, b) in enumerate(rng.random((60, 2)).tolist()):
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
    spec = RunSpec(scheme=name, parameters=SMALL.get(name, {}), rounds=policy, participation=participation, model="m")
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
    gates = {key: count for key, count in sim.cloud.metrics.items() if key.startswith("gates.")}
    # Some of these small models are no better than the constant; of a personal one each vehicle makes its own.
    assert list(gates.values()) == ([] if scheme.abilities.personalise is not None else [1])
    # Once as the candidate, and once more when it has become the current model.
    scored = 1 + gates.get("gates.promoted", 0)
    assert {agent: sim.agents[agent].counts["evaluations"] for agent in AGENTS[:3]} == dict.fromkeys(AGENTS[:3], scored)
    assert sim.counted_twice() == []
    assert sim.leaked() == []


NAMES = ("a", "b", "c")
FEATURES = tuple(Variable(name=name, low=0.0, high=10.0) for name in NAMES)
DOMAIN = Domain(features=FEATURES, target=Variable(name="y", low=0.0, high=30.0))
CLASSES = Domain(features=FEATURES, label="y", classes=("high", "low", "middle"))


def rows(count: int, seed: int, *, labels: bool = False) -> Dataset:
    X = np.random.default_rng(seed).uniform(0, 10, (count, 3))
    y: Any = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    if labels:
        y = np.where(y > 15, "high", np.where(y > 8, "middle", "low"))
    return Dataset(NAMES, "y", X, y)


def test_client_of_one_class_only_and_of_a_foreign_class_answers() -> None:
    pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")
    scheme = catalogue.load("fedavg_mlp")
    whole = rows(200, 1, labels=True)
    one = whole.y == "low"
    foreign = Dataset(NAMES, "y", whole.X[:20], np.array(["unheard"] * 20))
    fleet = {"all": whole, "one": Dataset(NAMES, "y", whole.X[one], whole.y[one]), "foreign": foreign}
    outcome = federated(scheme, scheme.Parameters(rounds=20, epochs=5), CLASSES, fleet)
    assert outcome.summary["rows"] == 200 + int(one.sum())
    test = rows(500, 99, labels=True)
    assert np.mean(outcome.model.predict(test.X) == test.y) > 0.6


def test_network_of_too_many_weights_is_refused() -> None:
    pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")
    scheme = catalogue.load("fedavg_mlp")
    with pytest.raises(UsageError, match="at most 1048576"):
        scheme.server.start(scheme.Parameters(hidden=(1024, 1024, 1024)), DOMAIN, 0)


@pytest.fixture
def others(monkeypatch, tmp_path):
    """Offer more modules beside ours: good ones and bad ones."""
    good, needy, empty = (ModuleType(f"{name}_scheme") for name in ("good", "needy", "empty"))
    vars(good)["SCHEME"] = object()
    vars(needy).update(SCHEME=object(), REQUIRES=("no_such_package_here", "no_such.part"))
    for module in (good, needy, empty):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules = {"frt": "glassfleet.schemes.frt", "good": "good_scheme", "needy": "needy_scheme"}
    modules |= {"empty": "empty_scheme", "broken": "not_there_at_all", "faulty": "faulty_scheme"}
    (tmp_path / "faulty_scheme.py").write_text("SCHEME = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(catalogue, "_modules", lambda: modules)
    catalogue._reason.cache_clear()
    yield good
    catalogue._reason.cache_clear()


@pytest.mark.usefixtures("others")
def test_catalogue_tells_why_a_scheme_is_unavailable():
    assert catalogue.names() == ["frt", "good"]
    reasons = catalogue.unavailable()
    assert set(reasons) == {"needy", "empty", "broken", "faulty"}
    assert "no_such_package_here" in reasons["needy"]
    assert "not_there_at_all" in reasons["broken"]
    assert "SCHEME" in reasons["empty"]
    assert "ZeroDivisionError" in reasons["faulty"]
    assert "no_such.part" in reasons["needy"]
    with pytest.raises(NotFoundError, match="no_such_package_here"):
        catalogue.load("needy")


def test_scheme_of_another_package_is_known_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, add_schemes: Callable[[Path], None], tmp_path: Path
) -> None:
    theirs = [EntryPoint("theirs", "glassfleet.schemes.frt", catalogue.GROUP)]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: theirs if group == catalogue.GROUP else [])
    add_schemes(tmp_path)
    assert catalogue.load("theirs") is catalogue.load("frt")


def test_outline_and_lines_say_the_same_when_a_tree_grows() -> None:
    result = outlined([OutlineNode(0), OutlineNode(1, "a", "Low", open=True), OutlineNode(1, "a", "High")], 3)
    assert result["lines"] == ["everything", "  a is Low ?", "  a is High"]
    assert result["more"] == 0
    assert result["outline"] == [
        {"depth": 0, "feature": "", "term": "", "open": False},
        {"depth": 1, "feature": "a", "term": "Low", "open": True},
        {"depth": 1, "feature": "a", "term": "High", "open": False},
    ]
