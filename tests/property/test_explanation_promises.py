"""What every explanation promises, whatever the scheme and the row: its sum, its rule, its notes."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet import catalogue
from glassfleet.explain import RowExplanation, explain_row
from glassfleet.explain.sums import exact_sum
from glassfleet.nature import nature
from glassfleet.scheme import Model
from tests.support.sample_models import KINDS, TEXTUAL, model, population

FLOORED = ("fmt-floored", "fmt-other-floored")
"""Models whose forecasts are often exactly 0, kept at a lower limit of 0, while their parts are of all sizes."""

UNEQUAL = {"snr": -17.3, "dist": 31.7, "load": 1e-7, "speed": 1e-14}
"""What slopes are multiplied with there."""


@cache
def _floored(kind: str) -> Model:
    document = model(kind).to_document()
    domain = document["domain"]
    target = {**domain["target"], "low": 0.0, "high": domain["target"]["high"] - domain["target"]["low"]}
    rules = [
        {**rule, "coefficients": {name: value * UNEQUAL[name] for name, value in rule["coefficients"].items()}}
        for rule in document["model"]["rules"]
    ]
    changed = {**document, "domain": {**domain, "target": target}, "model": {**document["model"], "rules": rules}}
    return catalogue.load("fmt").from_document(changed)


def _model(kind: str) -> Model:
    if kind == "population":
        return population()
    return _floored(kind.removesuffix("-floored")) if kind in FLOORED else model(kind)


@st.composite
def _rows(draw: st.DrawFn, learned: Model) -> list[float]:
    """A row in the domain, on the edges of its sets, a little beyond it, or far away."""
    row = []
    for variable in learned.domain.features:
        if variable.categories:
            row.append(float(draw(st.integers(0, len(variable.categories) - 1))))
            continue
        at = draw(
            st.integers(0, 24).map(lambda k: k / 24)
            | st.floats(-0.2, 1.2)
            | st.sampled_from((-1e30, 1e30))
            | st.just(0.0)
        )
        row.append(variable.low + at * (variable.high - variable.low))
    return row


def _holds(told: RowExplanation) -> None:
    """Check what is promised of the sum, to the last bit."""
    if not told.shares:
        assert (told.total, told.rounding, told.measure) == (None, 0.0, "")
        assert all(part.share is None for part in told.inputs)
        return
    assert told.total is not None
    assert math.fsum((told.base, told.rounding, *told.shares.values())) == told.total
    largest = max(abs(told.base), abs(told.total), *map(abs, told.shares.values()))
    assert abs(told.rounding) <= 2.0**-45 * largest
    assert {part.feature: part.share for part in told.inputs} == told.shares


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *FLOORED, "population"])
@settings(max_examples=25)
@given(st.data())
def test_explanation_keeps_all_promises_when_any_row_is_explained(kind: str, data: st.DataObject) -> None:
    learned = _model(kind)
    row = data.draw(_rows(learned))
    told, plain = explain_row(learned, row), learned.explain(np.array(row))
    _holds(told)
    assert told.prediction == learned.predict(np.array([row]))[0]
    if told.shares and not isinstance(told.prediction, str):
        assert (told.total, told.measure) == (told.prediction, "")
    elif told.shares:
        assert told.measure
    if not told.shares:  # never without a word
        assert any("share" in note for note in told.notes)
    # What a remainder cannot hold moves by rounding only.
    scale = sum(map(abs, (plain.base, *plain.shares.values())))
    for name, share in plain.shares.items():
        assert told.shares[name] == pytest.approx(share, rel=0.0, abs=1e-14 * scale)
    assert RowExplanation.model_validate(json.loads(json.dumps(told.to_dict(), allow_nan=False))) == told
    # The reason: a rule of the model that fits the row, or a word on why it answers all the same.
    rule = told.fired.rule
    assert rule.text == str(learned.rules()[rule.index])
    if nature(learned) == "rules":
        assert "no rule" in told.text or "no other rule" in told.text or told.fired.strength > 0.0
        assert told.fallback == (" fires, so rule " in told.text)
        assert told.fallback == any(" rule fires for this row, so " in note for note in told.notes)
        assert rule.text in told.text
    else:
        assert "because" not in told.text
        assert f"rule {rule.index}" not in told.text
    outside = [
        variable.name
        for value, variable in zip(row, learned.domain.features, strict=True)
        if not variable.low <= value <= variable.high and nature(learned) != "structures"
    ]
    assert [note.split()[0] for note in told.notes if "outside the model's range" in note] == outside


@pytest.mark.parametrize("kind", FLOORED)
def test_sum_is_exact_when_the_forecast_is_exactly_zero(kind: str) -> None:
    learned = _model(kind)
    rng = np.random.default_rng(8)
    high = np.array([variable.high for variable in learned.domain.features])
    X = (rng.random((1500, len(high))) * 1.4 - 0.2) * high
    zero = X[learned.predict(X) == 0.0]
    assert len(zero) > 20
    for row in zero[:150]:
        told = explain_row(learned, row)
        assert told.total == told.prediction == 0.0
        assert told.clipped_from is not None
        assert told.clipped_from < 0.0
        _holds(told)


_PART = st.floats(-1e6, 1e6) | st.floats(-1e-9, 1e-9) | st.floats(-1.0, 1.0) | st.just(0.0)


@given(st.lists(_PART, max_size=15), st.none() | _PART, st.integers(-300, 290))
@settings(max_examples=200)
def test_parts_add_up_to_the_last_bit_whatever_they_are(shares: list[float], total: float | None, power: int) -> None:
    parts = [math.ldexp(share, power) for share in shares]
    whole = None if total is None else math.ldexp(total, power)
    # As a scheme has it: a base that was rounded on the way.
    given_base = (0.0 if whole is None else whole) - sum(parts)
    base, exact, remainder, found = exact_sum(given_base, parts, whole)
    assert whole is None or found == whole
    assert math.fsum((base, remainder, *exact)) == found
    largest = max(map(abs, (given_base, found, *parts)))
    bound = (len(parts) + 4) * max(2.0**-51 * largest, math.ulp(0.0))
    assert abs(remainder) <= bound
    assert abs(base - given_base) <= bound
    assert all(abs(after - before) <= bound for after, before in zip(exact, parts, strict=True))
