"""A private run learns the central model of the vehicles that stay, bit for bit, whoever is lost and whenever."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.local import central, federated
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import PrivateFleet, Vehicle
from glassfleet.scheme import private_parameters
from schemas.documents import document_digest
from schemas.errors import RunFailedError

PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "frt": {
        "n_sets": st.integers(2, 5),
        "order": st.sampled_from([0, 1]),
        "max_depth": st.sampled_from([None, 0, 2]),
        "prune": st.sampled_from([0.0, 0.5]),
    },
    "fmt": {
        "n_sets": st.integers(2, 6),
        "partition": st.sampled_from(["uniform", "quantile", "union"]),
        "max_rules": st.sampled_from([1, 3, 8]),
        "holdout": st.sampled_from([0.0, 0.2]),
    },
    "frbc": {
        "n_sets": st.integers(2, 5),
        "association": st.sampled_from(["strength", "strength*weight"]),
        "fraction_bits": st.sampled_from([48, 80]),
    },
    "tsk": {
        "n_sets": st.integers(2, 4),
        "n_clusters": st.integers(1, 8),
        "max_rounds": st.integers(1, 12),
        "prune": st.sampled_from([0.0, 0.5]),
    },
}


def terms_of(scheme: Any, parameters: Any) -> Terms:
    return Terms("fleet", "run", "nonce", scheme.name, parameters_digest(parameters))


@st.composite
def losses(draw: st.DrawFn, agents: list[str], latest: int = 40) -> dict[str, int]:
    """How many answers some vehicles give before they are lost."""
    lost = draw(st.lists(st.sampled_from(agents), max_size=len(agents) // 2, unique=True))
    return {agent: draw(st.integers(0, latest)) for agent in lost}


def met(terms: Terms, parts: dict[str, Dataset], left: dict[str, int], group: int, **options: Any) -> PrivateFleet:
    # Keys that are the same in every run of the tests: who is in which group follows from them.
    keys = {agent: RunKey(hashlib.sha256(agent.encode()).digest()) for agent in parts}
    vehicles = [Vehicle(agent, rows, keys[agent], left.get(agent)) for agent, rows in parts.items()]
    return PrivateFleet(terms, vehicles, group=group, **options)


def spread(rng: np.random.Generator, X: Any, y: Any, agents: int, *, sort: bool) -> dict[str, Dataset]:
    """Rows over `agents` vehicles, at random or in the order of the target; some vehicles have few or none."""
    owner = np.sort(rng.integers(0, agents, len(y))) if sort else rng.integers(0, agents, len(y))
    order = np.argsort(y, kind="stable")
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    ids = [f"a{i}" for i in rng.permutation(agents)]
    return {agent: Dataset(names, "y", X[order][owner == i], y[order][owner == i]) for i, agent in enumerate(ids)}


def numbers(draw: st.DrawFn) -> tuple[np.random.Generator, Any, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f = draw(st.integers(20, 200)), draw(st.integers(1, 4))
    X = rng.normal(0.5, 0.4, (n, f))
    if draw(st.booleans()):
        X = np.round(X * 4) / 4
    return rng, X, np.sin(3 * X[:, 0]) + X.sum(axis=1) ** 2 + rng.normal(0, 0.1, n)


@pytest.mark.parametrize("name", PARAMETERS)
@settings(max_examples=8)
@given(st.data())
def test_model_is_the_central_one_of_those_who_stay(name: str, data: st.DataObject) -> None:
    scheme = catalogue.load(name)
    rng, X, y = data.draw(st.composite(numbers)())
    parts = spread(rng, X, y, data.draw(st.integers(8, 24)), sort=data.draw(st.booleans()))
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    features = tuple(Variable(name=each, low=0.0, high=1.0) for each in names)
    domain = Domain(features=features, target=Variable(name="y", low=-1.0, high=5.0))
    if name == "frbc":
        classes = ("high", "low", "middle")
        domain = Domain(features=features, label="y", classes=classes)
        labels = np.array(["low", "middle", "high", "of no class"] if data.draw(st.booleans()) else ["low", "high"])
        parts = spread(rng, X, labels[np.arange(len(y)) % len(labels)], len(parts), sort=data.draw(st.booleans()))
        # A vehicle none of whose rows has a class of the run refuses: here it has no rows.
        parts = {
            agent: rows if set(rows.y) - {"of no class"} else Dataset(rows.features, "y", rows.X[:0], rows.y[:0])
            for agent, rows in parts.items()
        }
    chosen = scheme.Parameters(**data.draw(st.fixed_dictionaries(PARAMETERS[name])))
    parameters = private_parameters(scheme, chosen)
    fleet = met(terms_of(scheme, parameters), parts, data.draw(losses(sorted(parts))), data.draw(st.integers(8, 12)))

    try:
        outcome = fleet.learn(scheme, parameters, domain)
    except RunFailedError as fault:
        if "too-few-for-privacy" in str(fault):
            assert len(fleet.cohort) == 0
            return
        rows = pool([parts[agent] for agent in fleet.cohort])
        with pytest.raises(RunFailedError, match=re.escape(str(fault))):
            central(scheme, parameters, domain, rows)
        return

    alone = central(scheme, parameters, domain, pool([parts[agent] for agent in outcome.cohort]))
    assert document_digest(outcome.model.to_document()) == document_digest(alone.model.to_document())
    assert outcome.summary["sums_digest"] == alone.summary["sums_digest"]
    assert {*outcome.cohort, *outcome.lost, *outcome.company} == set(parts)


@settings(max_examples=4)
@given(st.data())
def test_averaged_network_is_that_of_those_who_stay(data: st.DataObject) -> None:
    scheme = catalogue.load("fedavg_mlp")
    rng, X, y = data.draw(st.composite(numbers)())
    parts = spread(rng, X, y, data.draw(st.integers(8, 20)), sort=False)
    features = tuple(Variable(name=f"x{i}", low=0.0, high=1.0) for i in range(X.shape[1]))
    domain = Domain(features=features, target=Variable(name="y", low=-1.0, high=5.0))
    parameters = private_parameters(scheme, scheme.Parameters(hidden=(3,), rounds=2, epochs=1))
    fleet = met(terms_of(scheme, parameters), parts, data.draw(losses(sorted(parts), 3)), 8)
    try:
        outcome = fleet.learn(scheme, parameters, domain, 5)
    except RunFailedError as fault:
        assert "too-few-for-privacy" in str(fault)  # noqa: PT017 - the other outcome is as good
        return
    plain = federated(scheme, parameters, domain, {agent: parts[agent] for agent in outcome.cohort}, 5)
    assert document_digest(outcome.model.to_document()) == document_digest(plain.model.to_document())


@settings(max_examples=8)
@given(st.data())
def test_domain_is_that_of_those_who_stay_and_the_model_over_it_too(data: st.DataObject) -> None:
    rng, X, y = data.draw(st.composite(numbers)())
    parts = spread(rng, X, y, data.draw(st.integers(8, 20)), sort=False)
    guarded = data.draw(st.booleans())
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    asked = DISCOVERY.private(DiscoveryParameters(features=names, target="y", guarded=guarded))
    scheme = catalogue.load("frt")
    parameters = private_parameters(scheme, scheme.Parameters(max_depth=1))
    left = data.draw(losses(sorted(parts), 6))
    fleet = met(terms_of(scheme, parameters), parts, left, data.draw(st.integers(8, 12)))
    try:
        found = fleet.learn(DISCOVERY, asked, None)
        # Nobody can weigh down one vehicle's part of a sum: where nobody has far more rows than others it is the same.
        rows = [parts[agent].rows for agent in found.cohort]
        if not guarded or max(rows) <= 4 * np.median(rows):
            assert found.model == discover(asked, [parts[agent] for agent in found.cohort])
        assume(all(variable.high > variable.low for variable in (*found.model.features, found.model.target)))
        outcome = fleet.learn(scheme, parameters, found.model)
    except RunFailedError as fault:
        assert "too-few-for-privacy" in str(fault)  # noqa: PT017 - the other outcome is as good
        return
    alone = central(scheme, parameters, found.model, pool([parts[agent] for agent in outcome.cohort]))
    assert document_digest(outcome.model.to_document()) == document_digest(alone.model.to_document())


def test_a_run_of_sixty_four_vehicles_has_two_groups_and_loses_a_third_of_them() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(0.5, 0.3, (2000, 3))
    parts = spread(rng, X, X.sum(axis=1), 64, sort=False)
    features = tuple(Variable(name=f"x{i}", low=0.0, high=1.0) for i in range(3))
    domain = Domain(features=features, target=Variable(name="y", low=-1.0, high=5.0))
    scheme = catalogue.load("fmt")
    parameters = private_parameters(scheme, scheme.Parameters(max_rules=6))
    left = dict.fromkeys(sorted(parts)[::3], 6)
    fleet = met(terms_of(scheme, parameters), parts, left, 32)
    outcome = fleet.learn(scheme, parameters, domain)
    assert set(outcome.lost) == set(left)
    assert len(outcome.cohort) == 42, "nobody needs to go with so many"
    alone = central(scheme, parameters, domain, pool([parts[agent] for agent in outcome.cohort]))
    assert document_digest(outcome.model.to_document()) == document_digest(alone.model.to_document())
