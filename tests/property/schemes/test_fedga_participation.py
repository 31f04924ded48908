"""FedGA under any participation: it ends, its trees are valid, and a repetition gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.crisp import Forest
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from glassfleet.scheme import personal_model
from glassfleet.schemes.fedga import SCHEME, Parameters
from schemas.documents import document_digest

FEATURES = tuple(Variable(name=name, low=0.0, high=1.0) for name in "abcd")


def _fleet(sizes: list[int], classes: int, seed: int) -> tuple[Domain, dict[str, Dataset]]:
    rng = np.random.default_rng(seed)
    labels = tuple(f"k{k}" for k in range(classes))
    domain = (
        Domain(features=FEATURES, label="y", classes=labels)
        if classes
        else Domain(features=FEATURES, target=Variable(name="y", low=0.0, high=1.0))
    )
    fleet = {}
    for number, rows in enumerate(sizes):
        X = np.round(rng.random((rows, 4)), 1)
        signal = (X[:, 0] + X[:, 1] * X[:, 2]) / 2
        y: Any = np.array(labels)[np.minimum((signal * classes).astype(int), classes - 1)] if classes else signal
        fleet[f"v{number}"] = Dataset(("a", "b", "c", "d"), "y", X, y)
    return domain, fleet


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    classes=st.sampled_from([0, 2, 3]),
    depth=st.sampled_from([None, 1, 2, 5]),
    population=st.integers(2, 6),
    seed=st.integers(0, 2**40),
    data=st.data(),
)
def test_fleet_learns_valid_trees_and_the_same_ones_again_whoever_answers(
    *, sizes: list[int], classes: int, depth: int | None, population: int, seed: int, data: Any
) -> None:
    domain, fleet = _fleet(sizes, classes, seed)
    parameters = Parameters(generations=4, population=population, depth=depth, max_depth=6)
    with_rows = [name for name, rows in fleet.items() if rows.rows]
    schedule = [
        sorted({*data.draw(st.sets(st.sampled_from(sorted(fleet)))), data.draw(st.sampled_from(with_rows))})
        for _ in range(2 + 1 + 4)
    ]
    models = [
        federated(SCHEME, parameters, domain, fleet, seed, present=lambda number, _: schedule[number - 1]).model
        for _ in range(2)
    ]
    assert document_digest(models[0].to_document()) == document_digest(models[1].to_document())
    forest: Forest = models[0].forest
    forest.check(models[0].depth)
    assert forest.size <= population
    assert list(models[0].fitness) == sorted(models[0].fitness, reverse=True)
    for name in with_rows:
        tree = personal_model(SCHEME, models[0], fleet[name])
        predicted = tree.predict(fleet[name].X)
        if classes:
            assert set(predicted.tolist()) <= set(domain.classes)
        else:
            assert float(predicted.min()) >= -1e-9
            assert float(predicted.max()) <= 1 + 1e-9
