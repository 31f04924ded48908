"""FedGA: strings of genes, survival, participation and replay; crisp trees and their documents; columns of text."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.engine.learning import discovery_of
from edge_agent.models.evaluation import Evaluator
from edge_agent.sources import read_source
from glassfleet.contract.catalogue import load
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import personal_model
from glassfleet.crisp import Columns, Forest
from glassfleet.crisp.fit import fit_tree
from glassfleet.crisp.grow import grow_tree
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError, TaskError
from glassfleet.schemes.fedga import SCHEME, FedgaParameters, PersonalTree, Population
from glassfleet.schemes.fedga.evolution import (
    begin,
    flip,
    length_of,
    random_strings,
    string_of,
    structures_of,
    swap,
    swap_substrings,
)
from glassfleet.simulation import federated
from schemas.codec import document_digest
from schemas.errors import RunFailedError
from tests.support.sample_models import class_domain

CLASSES = class_domain("abc", "kind", "no", "yes")
NUMBER = Domain(features=CLASSES.features, target=Variable(name="kind", low=0.0, high=2.0))
SMALL = FedgaParameters(generations=6, population=6)


def _fleet(domain: Domain, agents: int = 5, rows: int = 60) -> dict[str, Dataset]:
    fleet = {}
    for number in range(agents):
        rng = np.random.default_rng(number)
        X = rng.random((rows, 3))
        signal = X[:, 0] + (X[:, 1] > 0.4) * X[:, 2] + rng.normal(0, 0.05, rows)
        y: Any = np.where(signal > 0.9, "yes", "no") if domain.classes else signal
        fleet[f"v{number}"] = Dataset(("a", "b", "c"), "kind", X, y)
    return fleet


def _answers(task: Task, fleet: dict[str, Dataset]) -> list[Contribution]:
    result = []
    for name, data in fleet.items():
        given = SCHEME.client.contribute(task, data, np.random.default_rng(7))
        SCHEME.server.check(task, given)
        result.append(Contribution(given.kind, given.rows, given.sums, given.values, given.nullified, name))
    return result


# --- strings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 6, 9])
def test_string_and_structure_say_the_same_when_one_becomes_the_other(depth: int) -> None:
    rng = np.random.default_rng(depth)
    strings = random_strings(10, depth, 4, 0.2, rng)
    assert strings.shape == (10, length_of(depth))
    for genes in structures_of(strings, depth):
        Forest.of([genes]).check(depth)
        (again,) = structures_of(string_of(genes, depth), depth)
        assert again.tolist() == genes.tolist()


@pytest.mark.parametrize("mutate", [flip, swap, swap_substrings])
def test_mutation_changes_strings_and_keeps_their_genes_valid(mutate: Any) -> None:
    strings = random_strings(30, 5, 4, 0.2, np.random.default_rng(1))
    before = strings.copy()
    changed = mutate(strings, 4, 0.2, np.random.default_rng(2))
    assert np.array_equal(strings, before)
    assert not np.array_equal(changed, before)
    assert changed.shape == before.shape
    assert changed.min() >= -1
    assert changed.max() < 4
    if mutate is not flip:  # exchanged, nothing lost
        assert np.array_equal(np.sort(changed, axis=1), np.sort(before, axis=1))


# --- survival -----------------------------------------------------------------------------------------------------


def _evolution(scores: Any, known: Any, weights: Any) -> Any:
    size, agents = np.shape(scores)
    strings = [string_of(np.array([f % 3, -1, (f // 3) % 3, -1, -1], dtype=np.int32), 2) for f in range(size)]
    first = begin(FedgaParameters(), depth=2, n_features=3, size=1, own=strings, rng=np.random.default_rng(0))
    first = first.take(np.arange(size), 0)
    names = [f"v{a}" for a in range(agents)]
    first = first.with_agents(names, weights)
    for a, name in enumerate(names):
        asked = np.flatnonzero(np.array(known)[:, a])
        first = first.with_scores(asked, {name: np.array(scores, dtype=np.float64)[asked, a]})
    return first


def test_best_survive_and_each_structure_once() -> None:
    evolution = _evolution([[0.1], [0.9], [0.5], [0.7]], [[True]] * 4, [1.0])
    doubled = evolution.take(np.array([0, 1, 2, 3, 1]), 2)
    kept = doubled.survive(3, elitism=True)
    assert kept.fitness.tolist() == [0.9, 0.7, 0.5]
    assert kept.settled == 3


# --- runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [CLASSES, NUMBER])
def test_run_gives_each_vehicle_a_tree_and_the_registry_a_population(domain: Domain) -> None:
    fleet = _fleet(domain)
    outcome = federated(SCHEME, SMALL, domain, fleet, 3)
    assert outcome.rounds == 2 + 1 + SMALL.generations
    assert isinstance(outcome.model, Population)
    history = outcome.summary["history"]
    if outcome.summary["elitism"]:
        assert history == sorted(history)
    trees = [personal_model(SCHEME, outcome.model, data) for data in fleet.values()]
    for tree in trees:
        assert isinstance(tree, PersonalTree)
        assert any(  # a structure of the population, perhaps cut short where rows were of one kind
            len(genes) >= tree.tree.size and genes[0] == tree.tree.feature[0]
            for genes in outcome.model.forest.structures()
        )
    assert len({document_digest(tree.to_document()) for tree in trees}) == len(trees)  # personal indeed


def test_newcomer_brings_its_structure_when_it_first_appears() -> None:
    fleet = _fleet(CLASSES)
    late = fleet.pop("v4")
    step: Any = SCHEME.server.start(SMALL.model_copy(update={"depth": 4}), CLASSES, 0)
    for _ in range(3):
        step = SCHEME.server.reduce(step.state, _answers(step.task, fleet))
    everybody = {**fleet, "v4": late}
    answers = _answers(step.task, everybody)
    own = answers[-1].values["structure"].tolist()

    def proposed(task: Task) -> list[Any]:
        value = task.body["structures"]
        return [part.tolist() for part in np.split(value["genes"], value["starts"][1:])]

    assert own not in proposed(step.task)
    assert step.state["evolution"]["introduced"] == ["v0", "v1", "v2", "v3"]
    step = SCHEME.server.reduce(step.state, answers)
    assert own in proposed(step.task)
    assert step.state["evolution"]["introduced"] == ["v0", "v1", "v2", "v3", "v4"]


def test_row_counts_carry_noise_of_the_vehicles_generator_and_are_at_least_one() -> None:
    data = _fleet(CLASSES, 1)["v0"]
    task = SCHEME.server.start(SMALL, CLASSES, 0).task
    weights = [
        SCHEME.client.contribute(task, data, np.random.default_rng(seed)).values["weight"] for seed in range(300)
    ]
    assert abs(float(np.mean(weights)) - 60.0) < 0.5  # deviation of the mean: 0.08
    assert 0.8 < float(np.mean(np.abs(np.array(weights) - 60.0))) < 1.25  # scale 1
    quiet = SCHEME.server.start(SCHEME.exact(SMALL), CLASSES, 0).task
    assert SCHEME.client.contribute(quiet, data, np.random.default_rng(0)).values["weight"] == 60.0
    tiny = Dataset(data.features, "kind", data.X[:1], data.y[:1])
    for seed in range(50):
        assert SCHEME.client.contribute(task, tiny, np.random.default_rng(seed)).values["weight"] >= 1.0


@pytest.mark.parametrize("weight", [1e9, -5.0, 0.0, True, "many", None])
def test_server_refuses_a_weight_that_noise_cannot_explain(weight: Any) -> None:
    task = SCHEME.server.start(SMALL, CLASSES, 0).task
    given = SCHEME.client.contribute(task, _fleet(CLASSES, 1)["v0"], np.random.default_rng(0))
    with pytest.raises(ContributionError, match="weight"):
        SCHEME.server.check(task, Contribution("depth", given.rows, given.sums, {**given.values, "weight": weight}))


def _columns(rows: int = 200, classes: int = 2, seed: int = 0, features: int = 5) -> Columns:
    rng = np.random.default_rng(seed)
    X = np.round(rng.random((rows, features)), 2)  # repeated values
    signal = X[:, 0] * 2 + (X[:, 1] > 0.5) - X[:, 2] + rng.normal(0, 0.2, rows)
    if classes:
        y = np.clip(np.floor((signal - signal.min()) / np.ptp(signal) * classes), 0, classes - 1).astype(np.int64)
    else:
        y = np.rint((signal - signal.min()) / np.ptp(signal) * 2**30).astype(np.int64)
    return Columns.of(X, y, classes)


def _impurity(columns: Columns, rows: Any) -> float:
    y = columns.y[rows]
    if columns.classes:
        share = np.bincount(y, minlength=columns.classes) / max(len(y), 1)
        return len(y) * (1 - float((share**2).sum()))
    return float(((y - y.mean()) ** 2).sum()) / 4.0**30 if len(y) else 0.0


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_tree_takes_the_best_cut_of_all_when_it_splits(classes: int) -> None:
    columns = _columns(60, classes)
    tree = grow_tree(columns, np.arange(60), 1)
    tried = {
        (feature, float(low + high) / 2): _impurity(columns, np.flatnonzero(column <= low))
        + _impurity(columns, np.flatnonzero(column > low))
        for feature, column in enumerate(columns.X.T)
        for values in [np.unique(column)]
        for low, high in pairwise(values)
    }
    left = columns.X[:, tree.feature[0]] <= tree.threshold[0]
    got = _impurity(columns, np.flatnonzero(left)) + _impurity(columns, np.flatnonzero(~left))
    assert got == pytest.approx(min(tried.values()), rel=1e-9)
    assert any(
        feature == tree.feature[0] and threshold == pytest.approx(tree.threshold[0]) for feature, threshold in tried
    )


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_structure_of_a_tree_becomes_that_tree_when_it_is_fitted_to_the_same_rows(classes: int) -> None:
    columns, train = _columns(classes=classes), np.arange(150)
    tree = grow_tree(columns, train, 5)
    again = fit_tree(columns, Forest.of([tree.feature]), train)
    for part in ("feature", "threshold", "right", "value", "rows", "impurity"):
        assert np.array_equal(getattr(tree, part), getattr(again, part)), part


@pytest.mark.parametrize(
    ("genes", "reason"),
    [
        ([-1], "does not split at its root"),
        ([0, -1], "incomplete"),
        ([0, -1, -1, -1], "incomplete|followed"),
        ([0, 1, 2, -1, -1, -1, -1], "deeper than 2"),
        ([], "incomplete|structures"),
    ],
)
def test_forest_is_refused_when_a_structure_is_malformed(genes: list[int], reason: str) -> None:
    value = {"genes": np.array(genes).astype(np.int8).view(np.uint8), "starts": np.zeros(1, dtype=np.int32)}
    with pytest.raises(ValueError, match=reason):
        Forest.from_value(value, 5, 2, 10)


RNG = np.random.default_rng(0)


def _file(
    folder: Path, name: str, fuels: tuple[str, ...], *, rows: int = 60, seed: int = 0, number: bool = False
) -> Path:
    rng = np.random.default_rng(seed)
    lines = ["speed,fuel,split,use"]
    for row in range(rows):
        speed, fuel = rng.uniform(0, 100), fuels[int(rng.integers(0, len(fuels)))]
        van = fuel == "diesel" and speed < 60
        use = f"{speed / 10 + 5 * (fuel == 'diesel'):.3f}" if number else ("van" if van else "car")
        lines.append(f"{speed:.2f},{fuel},{'test' if row % 5 == 0 else 'train'},{use}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _parts(folder: Path, **options: Any) -> dict[str, Dataset]:
    texts = (("diesel", "petrol"), ("diesel", "electric"), ("gas", "petrol"))
    return {
        f"v{n}": read_source(
            _file(folder, f"v{n}", fuels, seed=n, **options), labels=not options.get("number"), categories=True
        ).train
        for n, fuels in enumerate(texts)
    }


@pytest.mark.parametrize("number", [False, True])
def test_fleet_finds_categories_and_whether_the_target_is_a_class(tmp_path: Path, number: bool) -> None:
    parts = _parts(tmp_path, number=number)
    server, wanted = DISCOVERY.server, discovery_of(("speed", "fuel"), "use", {}, load("fedga"))
    assert server is not None
    domain = discover(wanted, list(parts.values()))
    assert domain.variable("fuel").categories == ("diesel", "electric", "gas", "petrol")
    assert (domain.variable("fuel").low, domain.variable("fuel").high) == (0.0, 3.0)
    if number:
        low, high = (f([f(part.y) for part in parts.values()]) for f in (min, max))
        assert domain.target is not None
        assert low - 0.2 < domain.target.low <= low + 2.0
        assert high - 2.0 <= domain.target.high < high + 0.2
        assert domain.classes == ()
    else:
        assert domain.classes == ("car", "van")
        assert domain.target is None
    again = Domain.from_document(domain.to_document())
    assert again == domain


def test_category_stays_at_home_when_it_is_rare() -> None:
    codes = np.array([0.0] * 5 + [1.0] * 2 + [2.0] * 9)
    data = Dataset(("f",), "y", codes[:, None], np.arange(16.0), categories={"f": ("a", "rare", "z")})
    wanted = DiscoveryParameters(features=("f",), target="y", categories=True)
    assert discover(wanted, [data]).variable("f").categories == ("a", "z")
    assert discover(wanted.exact(), [data]).variable("f").categories == ("a", "rare", "z")
    few = Dataset(("f",), "y", codes[5:7, None], np.arange(2.0), categories={"f": ("a", "rare", "z")})
    with pytest.raises(RunFailedError, match="no-categories"):
        discover(wanted, [few])


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"other": ["a"]},
        {"f": ["b", "a"]},
        {"f": ["a", "a"]},
        {"f": [""]},
        {"f": [1]},
        {"f": list("abcdefgh")},
    ],
)
def test_server_refuses_categories_that_cannot_be_true(result: Any) -> None:
    data = Dataset(("f",), "y", np.zeros((6, 1)), np.arange(6.0), categories={"f": ("a",)})
    step = DISCOVERY.server.start(DiscoveryParameters(features=("f",), target="y", categories=True))
    given = DISCOVERY.client.contribute(step.task, data, RNG)
    DISCOVERY.server.check(step.task, given)
    with pytest.raises(ContributionError):
        DISCOVERY.server.check(step.task, Contribution(given.kind, given.rows, given.sums, {"categories": result}))


def test_vehicle_scores_its_own_tree_when_the_model_is_a_population(tmp_path: Path) -> None:
    path = _file(tmp_path, "v", ("diesel", "petrol"), rows=300)
    source = read_source(path, labels=True, categories=True)
    scheme: Any = load("fedga")
    wanted = discovery_of(("speed", "fuel"), "use", {}, scheme)
    domain = discover(wanted, [source.train])
    model = federated(scheme, scheme.Parameters(generations=3, population=4), domain, {"v": source.train}).model

    class Record:
        scheme = "fedga"
        document = model.to_document()

    record: Any = Record()
    *_, scores = Evaluator(source.train, source.test).steps(record)
    assert scores is not None
    assert scores.metric == "f1"
    assert scores.federated > 0.9  # the population alone would say "car" to all: below 0.5
    assert scores.local > 0.9


def test_vehicle_refuses_the_task_when_all_its_classes_are_unknown() -> None:
    task = SCHEME.server.start(SMALL, CLASSES, 0).task
    data = Dataset(("a", "b", "c"), "kind", np.ones((4, 3)), np.array(["maybe"] * 4))
    with pytest.raises(TaskError, match="no row"):
        SCHEME.client.contribute(task, data, np.random.default_rng(0))
