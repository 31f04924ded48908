"""Where equality with central learning is promised, and that a broken promise does not pass for a kept one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.scheme import promises_central
from lab.demo.command import keep_promise
from lab.demo.reference import Verdict, judge
from lab.demo.vehicles import VehicleRows
from schemas.errors import VerificationError
from tests.support.fake_coordinator import record_of

FEATURES = (Variable(name="a", low=0, high=1), Variable(name="b", low=0, high=1))


def _fleet(scheme: Any) -> dict[str, VehicleRows]:
    rng = np.random.default_rng(3)
    fleet = {}
    for number in range(3):
        X = rng.uniform(0, 1, (80, 2))
        y: Any = X[:, 0] ** 2 + 0.3 * X[:, 1]
        if "classification" in scheme.purpose:
            y = np.where(y > 0.4, "Good", "Poor")
        part = Dataset(("a", "b"), "q", X, y)
        fleet[f"v{number}"] = VehicleRows(part, part)
    return fleet


def _verdict(name: str, *, rows_lost: int = 0, **parameters: Any) -> Verdict:
    """Judge what the fleet learned; `rows_lost`: rows of the first vehicle that did not count, by some fault."""
    scheme = catalogue.load(name)
    fleet = _fleet(scheme)
    domain = (
        Domain(features=FEATURES, label="q", classes=("Good", "Poor"))
        if "classification" in scheme.purpose
        else Domain(features=FEATURES, target=Variable(name="q", low=0, high=2))
    )
    train = {vehicle: rows.train for vehicle, rows in fleet.items()}
    first = train["v0"]
    train["v0"] = Dataset(first.features, first.target, first.X[rows_lost:], first.y[rows_lost:])
    exact = scheme.exact(scheme.Parameters.model_validate(parameters))
    document = local.federated(scheme, exact, domain, train).model.to_document()
    record = record_of(document, cohort=sorted(fleet))
    return judge(record, fleet, 0)


PROMISING: list[tuple[str, dict[str, Any]]] = [
    ("frbc", {}),
    ("frbc", {"association": "strength*weight"}),
    ("frt", {"inference": "weighted_average"}),
    ("fmt", {"inference": "one_rule", "max_rules": 4}),
    ("tsk", {"n_clusters": 6}),
    ("tsk", {"n_clusters": 6, "otherwise": False, "inference": "weighted_average"}),
]


@pytest.mark.parametrize(("name", "parameters"), PROMISING)
def test_promise_holds_when_a_choice_is_not_the_default(name: str, parameters: dict[str, Any]) -> None:
    verdict = _verdict(name, **parameters)
    assert verdict.promised
    assert verdict.equal
    keep_promise(verdict, participation="cohort")


@pytest.mark.parametrize(("name", "parameters"), PROMISING)
def test_demo_ends_with_a_fault_when_a_promise_is_broken(name: str, parameters: dict[str, Any]) -> None:
    verdict = _verdict(name, rows_lost=30, **parameters)
    assert verdict.promised
    assert not verdict.equal
    with pytest.raises(VerificationError, match="is not the central one of its cohort") as caught:
        keep_promise(verdict, participation="cohort")
    assert caught.value.exit_code == 8
    for choice in verdict.setting:
        assert choice in str(caught.value)
    keep_promise(verdict, participation="elastic")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("frbc", {"weights": "owners"}), ("tsk", {"antecedents": "local"}), ("tsk", {"consequents": "averaged"})],
)
def test_nothing_is_promised_when_the_setting_is_another_algorithm(name: str, parameters: dict[str, Any]) -> None:
    scheme = catalogue.load(name)
    assert scheme.equals_central
    assert not promises_central(scheme, scheme.Parameters.model_validate(parameters))
    verdict = _verdict(name, rows_lost=30, **parameters)
    assert not verdict.promised
    assert not verdict.equal
    keep_promise(verdict, participation="cohort")


@pytest.mark.parametrize("name", ["dp_tree", "fedga", "fedavg_mlp"])
def test_schemes_that_cannot_promise_it_do_not(name: str) -> None:
    scheme = catalogue.load(name)
    assert not promises_central(scheme, scheme.Parameters())


def test_promise_holds_of_condensed_rows_and_not_of_the_papers_nullification() -> None:
    scheme = catalogue.load("frt")
    assert promises_central(scheme, scheme.Parameters.model_validate({"nullify": True, "min_rows": 7}))
    assert not promises_central(scheme, scheme.Parameters.model_validate({"nullify": True, "min_rows": 1}))


def test_broken_promise_is_none_when_digests_are_equal() -> None:
    verdict = _verdict("frbc")
    keep_promise(replace(verdict, promised=False), participation="cohort")
