"""FedGA's coordinator: strings of genes, survival, participation, replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.crisp import Forest
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.local import federated
from glassfleet.scheme import Contribution, Task, personal_model
from glassfleet.schemes.fedga import SCHEME, Parameters, PersonalTree, Population
from glassfleet.schemes.fedga.evolution import begin
from glassfleet.schemes.fedga.genetics import (
    breed,
    flip,
    length_of,
    random_strings,
    string_of,
    structures_of,
    swap,
    swap_substrings,
)
from schemas.documents import document_digest

CLASSES = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in "abc"), label="kind", classes=("no", "yes")
)
NUMBER = Domain(features=CLASSES.features, target=Variable(name="kind", low=0.0, high=2.0))
SMALL = Parameters(generations=6, population=6)


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
    found = []
    for name, data in fleet.items():
        given = SCHEME.client.contribute(task, data, np.random.default_rng(7))
        SCHEME.server.check(task, given)
        found.append(Contribution(given.kind, given.rows, given.sums, given.values, given.nullified, name))
    return found


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


def test_children_have_the_genes_of_their_parents_when_nothing_mutates() -> None:
    parents = np.stack([np.full(15, feature) for feature in range(4)]).astype(np.int16)
    fitness = np.array([0.1, 0.9, 0.2, 0.3])
    children = breed(parents, fitness, 4, Parameters(mutation_rate=0.0, tournament=20), np.random.default_rng(3))
    assert children.shape == parents.shape
    assert (children == 1).all()  # with so many entrants the best always wins


# --- survival -----------------------------------------------------------------------------------------------------


def _evolution(scores: Any, known: Any, weights: Any) -> Any:
    size, agents = np.shape(scores)
    strings = [string_of(np.array([f % 3, -1, (f // 3) % 3, -1, -1], dtype=np.int32), 2) for f in range(size)]
    first = begin(Parameters(), depth=2, n_features=3, size=1, own=strings, rng=np.random.default_rng(0))
    first = first.take(np.arange(size), 0)
    names = [f"v{a}" for a in range(agents)]
    first = first.with_agents(names, weights)
    for a, name in enumerate(names):
        asked = np.flatnonzero(np.array(known)[:, a])
        first = first.with_scores(asked, {name: np.array(scores, dtype=np.float64)[asked, a]})
    return first


def test_fitness_divides_by_those_who_scored_and_not_by_all() -> None:
    evolution = _evolution([[0.8, 0.4], [0.6, 0.0]], [[True, True], [True, False]], [10.0, 30.0])
    assert evolution.fitness.tolist() == pytest.approx([(8 + 12) / 40, 0.6])


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


def test_parents_are_scored_again_when_only_some_answer() -> None:
    fleet = _fleet(CLASSES)
    step: Any = SCHEME.server.start(SMALL, CLASSES, 0)
    for _ in range(3):
        step = SCHEME.server.reduce(step.state, _answers(step.task, fleet))
    children = Task.from_value(step.task.to_value()).body["structures"]["starts"]
    assert len(children) <= 6
    some = {name: fleet[name] for name in ("v0", "v3")}
    step = SCHEME.server.reduce(step.state, _answers(step.task, some))
    assert len(step.task.body["structures"]["starts"]) > 6


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


def test_run_ends_when_every_structure_has_been_seen() -> None:
    parameters = Parameters(generations=4, population=5, depth=1)  # three structures in all
    outcome = federated(SCHEME, parameters, CLASSES, _fleet(CLASSES), 0)
    assert outcome.model.forest.size == 3


def test_vehicle_refuses_the_task_when_all_its_classes_are_unknown() -> None:
    task = SCHEME.server.start(SMALL, CLASSES, 0).task
    data = Dataset(("a", "b", "c"), "kind", np.ones((4, 3)), np.array(["maybe"] * 4))
    with pytest.raises(TaskError, match="no row"):
        SCHEME.client.contribute(task, data, np.random.default_rng(0))


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
