"""What the dashboard's page of two versions is made from: rules added, gone, changed and kept, sizes and limits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from coordinator.http.dashboard.compare import difference
from coordinator.http.dashboard.library import Shelved
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central
from schemas.documents import document_digest
from schemas.record import ModelRecord, Training

FRT = catalogue.load("frt")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in ("a", "b")),
    target=Variable(name="y", low=0.0, high=3.0, unit="s"),
)


def shelved(version: int, *, depth: int, slope: float = 1.0, domain: Domain = DOMAIN) -> Shelved:
    X = np.random.default_rng(3).random((400, 2))
    y = slope * X[:, 0] + (X[:, 1] > 0.5)
    parameters = FRT.Parameters.model_validate({"max_depth": depth, "min_rows": 1, "nullify": False})
    model: Any = central(FRT, parameters, domain, Dataset(("a", "b"), "y", X, y)).model
    document = model.to_document()
    record = ModelRecord(
        name="m",
        version=version,
        digest=document_digest(document),
        document=document,
        fleet="fleet",
        run=f"run-{version}",
        scheme="frt",
        cohort=["v1"],
        domain_contributors=[],
        parameters={"participation": "cohort"},
        training=Training(),
        created="2026-01-01T00:00:00+00:00",
        software="test",
    )
    return Shelved(record, model)


def test_nothing_differs_when_a_version_is_set_against_its_twin() -> None:
    found = difference(shelved(1, depth=2), shelved(2, depth=2))
    assert found.is_same
    assert (found.added, found.removed, found.changed, found.limits) == ((), (), (), ())
    assert found.counts == (0, 0, 0, len(shelved(1, depth=2).rules))


def test_rules_are_new_and_gone_when_a_version_is_deeper() -> None:
    before, after = shelved(1, depth=1), shelved(2, depth=2)
    found = difference(before, after)
    added, removed, changed, kept = found.counts
    assert not found.is_same
    assert added > removed > 0
    assert added + changed + kept == len(after.rules)
    assert removed + changed + kept == len(before.rules)
    heads = [{tuple((part.feature, part.term) for part in rule.conditions) for rule in each.rules}
             for each in (before, after)]  # fmt: skip
    assert all(tuple((p.feature, p.term) for p in rule.conditions) not in heads[0] for rule in found.added)
    assert all(tuple((p.feature, p.term) for p in rule.conditions) not in heads[1] for rule in found.removed)
    assert [rule.support for rule in found.added] == sorted((rule.support for rule in found.added), reverse=True)
    leaves = {name: (was, now) for name, was, now in found.complexity}["leaves"]
    assert leaves == (len(before.rules), len(after.rules))


def test_rules_have_changed_when_their_consequents_have() -> None:
    before, after = shelved(1, depth=1), shelved(2, depth=1, slope=1.5)
    found = difference(before, after)
    assert found.counts == (0, 0, len(before.rules), 0)
    for was, now in found.changed:
        assert was.conditions == now.conditions
        assert was.output != now.output


def test_limits_are_told_with_their_units_when_a_variable_has_others() -> None:
    assert DOMAIN.target is not None
    other = DOMAIN.model_copy(update={"target": DOMAIN.target.model_copy(update={"high": 4.0, "unit": "min"})})
    found = difference(shelved(1, depth=1), shelved(2, depth=1, domain=other))
    assert found.limits == (("y", "0 to 3 s", "0 to 4 min"),)


def redone(before: Shelved, version: int, **changes: Any) -> Shelved:
    """Return a version whose document has other parts."""
    document = {**copy.deepcopy(before.record.document), **changes}
    update = {"version": version, "document": document, "digest": document_digest(document)}
    return Shelved(before.record.model_copy(update=update), FRT.from_document(document))


def test_renamed_sets_are_told_when_nothing_else_differs() -> None:
    first = DOMAIN.features[0].model_copy(update={"terms": ("poor", "weak", "fair", "good", "superb")})
    renamed = DOMAIN.model_copy(update={"features": (first, *DOMAIN.features[1:])})
    before, after = shelved(1, depth=2), shelved(2, depth=2, domain=renamed)
    found = difference(before, after)
    assert found.counts == (0, 0, 0, len(before.rules))
    assert (found.limits, found.parameters, found.restated, found.is_same) == ((), (), 0, False)
    assert found.terms == (("a", "standard", "poor, weak, fair, good, superb"),)
    assert difference(after, before).terms == (("a", "poor, weak, fair, good, superb", "standard"),)


def test_parameters_of_scheme_and_run_are_told_when_they_differ() -> None:
    before, after = shelved(1, depth=1), shelved(2, depth=2)
    policy = {"participation": "elastic", "policy": {"deadline": 5.0, "target": None}}
    run = after.record.model_copy(update={"parameters": policy})
    assert set(difference(before, Shelved(run, after.model)).parameters) == {
        ("max_depth", "1", "2"),
        ("run: participation", "cohort", "elastic"),
        ("run: policy.deadline", "–", "5"),
        ("run: policy.target", "–", "none"),
    }


def test_parameter_of_the_scheme_is_told_when_the_run_has_one_of_the_same_name() -> None:
    before, after = shelved(1, depth=1), shelved(2, depth=2)
    same = {"participation": "cohort", "max_depth": "of the run"}
    old, new = (Shelved(s.record.model_copy(update={"parameters": same}), s.model) for s in (before, after))
    assert difference(old, new).parameters == (("max_depth", "1", "2"),)
    other = Shelved(new.record.model_copy(update={"parameters": {**same, "max_depth": 7}}), new.model)
    assert difference(old, other).parameters == (("max_depth", "1", "2"), ("run: max_depth", "of the run", "7"))


def test_numbers_are_told_in_full_when_they_differ_after_the_digits_shown_elsewhere() -> None:
    before = shelved(1, depth=1)
    old, new = (
        Shelved(before.record.model_copy(update={"parameters": {"rate": rate, "half": 0.5, "one": one}}), before.model)
        for rate, one in ((0.123456712, 1), (0.123456789, 1.0))
    )
    assert difference(old, new).parameters == (("run: rate", "0.123456712", "0.123456789"),)
    assert DOMAIN.target is not None
    other = DOMAIN.model_copy(update={"target": DOMAIN.target.model_copy(update={"high": 3.00001})})
    found = difference(before, shelved(2, depth=1, domain=other))
    assert found.limits == (("y", "0 to 3 s", "0 to 3.00001 s"),)


def test_rules_that_read_the_same_are_counted_when_their_support_differs() -> None:
    before = shelved(1, depth=1)
    inner = copy.deepcopy(before.record.document["model"])
    inner["rules"][0]["support"] /= 2
    found = difference(before, redone(before, 2, model=inner))
    assert found.counts == (0, 0, 0, len(before.rules))
    assert (found.restated, found.is_same) == (1, False)


def test_categories_are_told_when_a_variable_has_others() -> None:
    before = shelved(1, depth=1)
    domain = copy.deepcopy(before.record.document["domain"])
    domain["features"][0]["categories"] = ["dry", "wet"]
    assert difference(before, redone(before, 2, domain=domain)).limits == (("a", "0 to 1", "dry, wet"),)
