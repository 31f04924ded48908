"""What a demonstration says of the published model: the promise, kept or broken, the references, scores and rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_agent.sources import Source
from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.reference import recorded
from glassfleet.scheme import promises_central
from lab.demo.command import keep_promise
from lab.demo.reference import Verdict, choices, judge, participation_of
from schemas.errors import VerificationError
from schemas.record import ModelRecord
from tests.support.fake_coordinator import record_of

FEATURES = (Variable(name="a", low=0, high=1), Variable(name="b", low=0, high=1))
Fleet = dict[str, Source]


def _fleet(scheme: Any) -> Fleet:
    """Three vehicles' rows, with classes where the scheme can have them."""
    rng = np.random.default_rng(3)
    fleet = {}
    for number in range(3):
        X = rng.uniform(0, 1, (80, 2))
        y: Any = X[:, 0] ** 2 + 0.3 * X[:, 1]
        if "classification" in scheme.purpose:
            y = np.where(y > 0.4, "Good", "Poor")
        part = Dataset(("a", "b"), "q", X, y)
        fleet[f"v{number}"] = Source(part, part)
    return fleet


def _learned(fleet: Fleet, scheme: Any, parameters: Any) -> ModelRecord:
    """Return what a fleet publishes that learned in this process."""
    domain = (
        Domain(features=FEATURES, label="q", classes=("Good", "Poor"))
        if "classification" in scheme.purpose
        else Domain(features=FEATURES, target=Variable(name="q", low=0, high=2))
    )
    train = {vehicle: rows.train for vehicle, rows in fleet.items()}
    outcome = local.federated(scheme, parameters, domain, train)
    known = {"participation": "cohort" if "cohort" in scheme.participation else "elastic", **recorded(outcome.summary)}
    return record_of(outcome.model.to_document(), cohort=sorted(train), parameters=known)


def _verdict(name: str, *, rows_lost: int = 0, **parameters: Any) -> Verdict:
    """Judge what the fleet learned; `rows_lost`: rows of the first vehicle that did not count, by some fault."""
    scheme = catalogue.load(name)
    fleet = _fleet(scheme)
    first = fleet["v0"].train
    some = Source(Dataset(first.features, first.target, first.X[rows_lost:], first.y[rows_lost:]), first)
    exact = scheme.exact(scheme.Parameters.model_validate(parameters))
    return judge(_learned({**fleet, "v0": some}, scheme, exact), fleet, 0)


PROMISING: list[tuple[str, dict[str, Any]]] = [
    ("frbc", {}),
    ("frbc", {"association": "strength*weight"}),
    ("frt", {"inference": "weighted_average"}),
    ("fmt", {"inference": "one_rule", "max_rules": 4}),
    ("tsk", {"n_clusters": 6}),
    ("tsk", {"n_clusters": 6, "otherwise": False, "inference": "weighted_average"}),
]


@pytest.mark.parametrize(("name", "parameters"), PROMISING)
def test_promise_holds_whatever_the_choice_and_the_demo_ends_with_a_fault_when_it_is_broken(
    name: str, parameters: dict[str, Any]
) -> None:
    kept, broken = _verdict(name, **parameters), _verdict(name, rows_lost=30, **parameters)
    assert (kept.promised, kept.equal, broken.promised, broken.equal) == (True, True, True, False)
    assert kept.metric == ("f1" if name == "frbc" else "rmse")
    assert set(kept.scores) == {"v0", "v1", "v2"}
    federated = kept.mean("federated")
    assert federated is not None
    assert (0.7 if name == "frbc" else 0.0) < federated <= 1.0
    keep_promise(kept, participation="cohort")
    with pytest.raises(VerificationError, match="is not the central one of its cohort") as caught:
        keep_promise(broken, participation="cohort")
    assert caught.value.exit_code == 8
    for choice in broken.setting:
        assert choice in str(caught.value)
    keep_promise(broken, participation="elastic")
    keep_promise(replace(kept, promised=False), participation="cohort")


def test_promise_holds_of_condensed_rows_and_not_of_the_papers_nullification() -> None:
    scheme = catalogue.load("frt")
    assert promises_central(scheme, scheme.Parameters.model_validate({"nullify": True, "min_rows": 7}))
    assert not promises_central(scheme, scheme.Parameters.model_validate({"nullify": True, "min_rows": 1}))


def test_verdict_learns_the_central_model_once_when_rows_are_used_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = catalogue.load("frbc")
    fleet = _fleet(scheme)
    learned = []
    central = local.central

    def counted(*given: Any) -> local.Outcome:
        learned.append(given)
        return central(*given)

    monkeypatch.setattr(local, "central", counted)
    assert judge(_learned(fleet, scheme, scheme.exact(scheme.Parameters())), fleet, 0).equal
    assert len(learned) == 2, "of the cohort's rows, and of all vehicles'"
    assert judge(_learned(fleet, scheme, scheme.Parameters()), fleet, 0).equal
    assert len(learned) == 5, "of condensed rows, too"


def test_verdict_has_each_vehicles_own_tree_when_the_scheme_makes_personal_ones() -> None:
    scheme = catalogue.load("fedga")
    fleet = _fleet(scheme)
    parameters = scheme.Parameters.model_validate({"generations": 1, "population": 6})
    verdict = judge(_learned(fleet, scheme, parameters), fleet, 0)
    assert set(verdict.personal) == set(fleet)
    for vehicle, rows in fleet.items():
        own = verdict.personal[vehicle]
        answer = own.explain(rows.test.X[0])
        assert answer.prediction == own.predict(rows.test.X[:1])[0]
        # The population knows no conditions: its thresholds are the vehicle's.
        assert any(rule.conditions for rule in own.rules())
        assert not any(rule.conditions for rule in verdict.model.rules())
    same = _verdict("frbc")
    assert all(each is same.model for each in same.personal.values())


def test_verdict_promises_nothing_but_replays_the_fleet_when_the_setting_is_another_algorithm() -> None:
    scheme = catalogue.load("frbc")
    fleet = _fleet(scheme)
    told = _learned(fleet, scheme, scheme.exact(scheme.Parameters.model_validate({"weights": "owners"})))
    verdict = judge(told, fleet, 0)
    assert verdict.setting == ("weights=owners",)
    assert verdict.equal or verdict.replayed == verdict.federated
    assert choices(scheme, scheme.Parameters.model_validate({"n_sets": 5})) == ()
    # Of a record that does not say that there was a cohort, nothing is taken for one.
    assert participation_of(told, scheme) == "cohort"
    silent = told.model_copy(update={"parameters": {}, "digest": "0" * 64})
    assert participation_of(silent, scheme) is None
    verdict = judge(silent, fleet, 0)
    assert verdict.replayed is None
    assert verdict.pooled is not None, "how good the central model is can be known all the same"
    # A scheme that knows one way only needs no word about it.
    assert participation_of(silent, catalogue.load("fedga")) == "elastic"
    assert participation_of(silent, catalogue.load("fmt")) == "cohort"


@pytest.mark.parametrize("name", ["dp_tree", "fedga", "fedavg_mlp"])
def test_schemes_that_cannot_promise_it_do_not(name: str) -> None:
    scheme = catalogue.load(name)
    assert not promises_central(scheme, scheme.Parameters())
