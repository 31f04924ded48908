"""What each rule forecasts for its rows, in a model's record beside its document."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import pooled_domain
from glassfleet.forecasts import tell_forecasts
from glassfleet.reference import recorded
from glassfleet.reword import in_words_of
from schemas.documents import document_digest
from schemas.errors import VerificationError

NAMES = ("hour", "load")


def rows(seed: int, count: int) -> Dataset:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 24, count), rng.uniform(0, 9, count)])
    return Dataset(NAMES, "minutes", X, 100 + 20 * np.sin(X[:, 0] / 4) + np.where(X[:, 1] > 5, 12, -X[:, 1]))


FLEET = {"a": rows(1, 300), "b": rows(2, 500)}
ALL = pool(list(FLEET.values()))
DOMAIN = pooled_domain(NAMES, "minutes", ALL.X, ALL.y)


def told(scheme: str) -> tuple[Any, dict[str, Any]]:
    chosen = catalogue.load(scheme)
    outcome = local.federated(chosen, chosen.exact(chosen.Parameters()), DOMAIN, FLEET)
    model, beside = outcome.model, json.loads(json.dumps(recorded(outcome.summary)))
    tell_forecasts(model, beside)
    return model, beside


@pytest.mark.parametrize("scheme", ["fmt", "bmt", "frt", "tsk"])
def test_forecasts_of_rules_are_those_of_their_own_rows(scheme: str) -> None:
    model, _ = told(scheme)
    forecasts = [rule.forecast for rule in model.rules()]
    assert sum(each.rows for each in forecasts) == pytest.approx(1.0, abs=0.01)
    together = sum(each.rows * each.mean for each in forecasts)
    assert together == pytest.approx(ALL.y.mean(), abs=0.02 * (ALL.y.max() - ALL.y.min()))


def test_middle_of_a_rules_forecasts_holds_about_eight_rows_of_ten() -> None:
    model, _ = told("frt")
    X = np.clip(ALL.X, [each.low for each in DOMAIN.features], [each.high for each in DOMAIN.features])
    inside, step = 0.0, (ALL.y.max() - ALL.y.min()) / 1024
    for rule in model.rules():
        own, told_of = degree(rule, X), rule.forecast
        slopes = {slope.feature: slope.per_unit for slope in rule.consequent.slopes}
        said = rule.consequent.value + X @ [slopes.get(name, 0.0) for name in NAMES]
        assert told_of.mean == pytest.approx(np.average(said, weights=own), abs=step)
        for name, move in told_of.moves.items():
            x = X[:, NAMES.index(name)]
            deviation = np.sqrt(np.average((x - np.average(x, weights=own)) ** 2, weights=own))
            assert move == pytest.approx(2 * 1.2816 * slopes[name] * deviation, abs=step)
        inside += own[(said >= told_of.low) & (said <= told_of.high)].sum()
    assert 0.7 < inside / len(X) < 0.9


def degree(rule: Any, X: np.ndarray) -> np.ndarray:
    found = np.ones(len(X))
    for part in rule.conditions:
        x = np.clip(X[:, NAMES.index(part.feature)], part.low, part.high)
        up = (x - part.low) / (part.peak - part.low) if part.peak > part.low else np.ones(len(X))
        down = (part.high - x) / (part.high - part.peak) if part.high > part.peak else np.ones(len(X))
        found *= np.minimum(up, down)
    return found


def test_rule_says_share_of_rows_forecasts_and_error_in_the_targets_unit() -> None:
    model, _ = told("fmt")
    assert DOMAIN.target is not None
    target = DOMAIN.target.model_copy(update={"unit": "min"})
    spoken = in_words_of(model, DOMAIN.model_copy(update={"target": target}))
    rule: Any = spoken.rules()[0]
    assert rule.forecast == model.rules()[0].forecast
    share, mean, middle, error = rule.measures.split(", ")
    assert (share, error) == (f"{100 * rule.forecast.rows:.3g} % of the rows", f"error {rule.error:.3g} min")
    assert mean == f"mean forecast {rule.forecast.mean:.4g}"
    assert middle == f"8 of 10 from {rule.forecast.low:.4g} to {rule.forecast.high:.4g} min"


def test_model_of_a_former_record_tells_support_and_error_alone() -> None:
    chosen = catalogue.load("fmt")
    model = local.federated(chosen, chosen.exact(chosen.Parameters()), DOMAIN, FLEET).model
    tell_forecasts(model, {})
    rule = model.rules()[0]
    assert rule.measures == f"support {rule.support:.3f}, error {rule.error:.3g}"


@pytest.mark.parametrize(
    "change", [{"digest": "0" * 64}, {"rules": [{"rows": 0.5, "mean": 1.0, "low": 0.0, "high": 2.0}]}, {"rules": None}]
)
def test_forecasts_that_were_changed_in_the_record_are_refused(change: dict[str, Any]) -> None:
    model, beside = told("frt")
    with pytest.raises(VerificationError, match="forecasts in the model's record"):
        tell_forecasts(model, {"forecasts": {**beside["forecasts"], **change}})


def test_forecasts_of_another_number_of_rules_are_refused() -> None:
    model, beside = told("frt")
    fewer = beside["forecasts"]["rules"][:-1]
    with pytest.raises(VerificationError, match="the model has"):
        tell_forecasts(model, {"forecasts": {"rules": fewer, "digest": document_digest({"rules": fewer})}})
