"""What every explanation and every counterfactual promises, whatever the scheme, the row and the question."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import Counterfactual, Goal, RowExplanation, counterfactual, explain_row
from glassfleet.explain.row import exact_sum
from glassfleet.model.protocol import Model, nature
from lab.schemes.dp_tree import SCHEME as DP_TREE
from tests.support.sample_models import GAPPY, KINDS, TEXTUAL, model, population

FLOORED = "tree-floored"
"""A model whose forecasts are often exactly 0, kept at a lower limit of 0, while its parts are of all sizes."""

UNEQUAL = {"snr": -17.3, "dist": 31.7, "load": 1e-7, "speed": 1e-14}
"""What slopes are multiplied with there."""


@cache
def _floored() -> Model:
    document = model("tree").to_document()
    domain = document["domain"]
    target = {**domain["target"], "low": 0.0, "high": domain["target"]["high"] - domain["target"]["low"]}
    rules = [
        {**rule, "coefficients": {name: value * UNEQUAL[name] for name, value in rule["coefficients"].items()}}
        for rule in document["model"]["rules"]
    ]
    changed = {**document, "domain": {**domain, "target": target}, "model": {**document["model"], "rules": rules}}
    return catalogue.load("tree").from_document(changed)


def _model(kind: str) -> Model:
    if kind == "population":
        return population()
    return _floored() if kind == FLOORED else model(kind)


@st.composite
def _rows(draw: st.DrawFn, domain: Domain, *, far: bool) -> list[float]:
    """A row in the domain, on the edges of its sets, a little beyond it, or far away; some cells unknown or empty."""
    row = []
    for variable in domain.features:
        if variable.categories:
            row.append(draw(st.integers(-1, 2 * len(variable.categories) - 1)) / 2)
            continue
        if variable.missing is not None and draw(st.booleans()):
            row.append(math.nan)
            continue
        at = draw(
            st.integers(0, 24).map(lambda k: k / 24)
            | st.floats(-0.2, 1.2)
            | (st.sampled_from((-1e30, 1e30)) if far else st.nothing())
            | st.just(0.0)
        )
        row.append(variable.low + at * (variable.high - variable.low))
    return row


def _holds(result: RowExplanation) -> None:
    """Check what is promised of the sum, to the last bit."""
    if not result.shares:
        assert (result.total, result.rounding, result.measure) == (None, 0.0, "")
        assert all(part.share is None for part in result.inputs)
        return
    assert result.total is not None
    assert math.fsum((result.base, result.rounding, *result.shares.values())) == result.total
    largest = max(abs(result.base), abs(result.total), *map(abs, result.shares.values()))
    assert abs(result.rounding) <= 2.0**-45 * largest
    assert {part.feature: part.share for part in result.inputs} == result.shares


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *GAPPY, FLOORED, "population"])
@settings(max_examples=12)
@given(st.data())
def test_explanation_keeps_all_promises_when_any_row_is_explained(kind: str, data: st.DataObject) -> None:
    learned = _model(kind)
    row = data.draw(_rows(learned.domain, far=True))
    result, plain = explain_row(learned, row), learned.explain(np.array(row))
    _holds(result)
    assert result.prediction == learned.predict(np.array([row]))[0]
    if result.shares and not isinstance(result.prediction, str):
        assert (result.total, result.measure) == (result.prediction, "")
    elif result.shares:
        assert result.measure
    if not result.shares:  # never without a word
        assert any("share" in note for note in result.notes)
    # What a remainder cannot hold moves by rounding only.
    scale = sum(map(abs, (plain.base, *plain.shares.values())))
    for name, share in plain.shares.items():
        assert result.shares[name] == pytest.approx(share, rel=0.0, abs=1e-14 * scale)
    assert RowExplanation.model_validate(json.loads(json.dumps(result.to_dict(), allow_nan=False))) == result
    # The reason: a rule of the model that fits the row, or a word on why it answers all the same.
    rule = result.fired.rule
    assert rule.text == str(learned.rules()[rule.index])
    if nature(learned) == "rules":
        assert "no rule" in result.text or "no other rule" in result.text or result.fired.strength > 0.0
        assert result.fallback == (" fires, so rule " in result.text)
        assert result.fallback == any(" rule fires for this row, so " in note for note in result.notes)
        assert (rule.text.partition(" THEN ")[0] if result.chances else rule.text) in result.text
    else:
        assert "because" not in result.text
        assert f"rule {rule.index}" not in result.text
    outside = [
        variable.name
        for value, variable in zip(row, learned.domain.features, strict=True)
        if (value < variable.low or value > variable.high) and not variable.categories
        if nature(learned) != "structures"
    ]
    assert [note.split()[0] for note in result.notes if "outside the model's range" in note] == outside


_PART = st.floats(-1e6, 1e6) | st.floats(-1e-9, 1e-9) | st.floats(-1.0, 1.0) | st.just(0.0)


@given(st.lists(_PART, max_size=15), st.none() | _PART, st.integers(-300, 290))
@settings(max_examples=200)
def test_parts_add_up_to_the_last_bit_whatever_they_are(shares: list[float], total: float | None, power: int) -> None:
    parts = [math.ldexp(share, power) for share in shares]
    whole = None if total is None else math.ldexp(total, power)
    # As a scheme has it: a base that was rounded on the way.
    given_base = (0.0 if whole is None else whole) - sum(parts)
    base, exact, remainder, result = exact_sum(given_base, parts, whole)
    assert whole is None or result == whole
    assert math.fsum((base, remainder, *exact)) == result
    largest = max(map(abs, (given_base, result, *parts)))
    bound = (len(parts) + 4) * max(2.0**-51 * largest, math.ulp(0.0))
    assert abs(remainder) <= bound
    assert abs(base - given_base) <= bound
    assert all(abs(after - before) <= bound for after, before in zip(exact, parts, strict=True))


GRID = 33
"""Points of an input's range that the search promises to try (docs/reference/exports.md)."""


@cache
def _tariffs() -> Model:
    """A tree with a column of text and a constant one, which no sample model has."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.integers(0, 4, 400), rng.random(400) * 10, np.full(400, 3.0), rng.random(400)])
    y = np.where((X[:, 0] == 2) | (X[:, 1] + 2 * X[:, 3] > 8), "good", np.where(X[:, 0] == 1, "fair", "bad"))
    features = (
        Variable(name="tariff", low=0, high=3, categories=("a", "b", "c", "missing")),
        Variable(name="snr", low=0, high=10, unit="dB"),
        Variable(name="seats", low=3, high=3),
        Variable(name="load", low=0, high=1),
    )
    domain = Domain(features=features, label="quality", classes=("bad", "fair", "good"))
    scheme: Any = DP_TREE
    made: Model = scheme.abilities.alone(scheme.Parameters(), domain, Dataset(domain.names, "quality", X, y))
    return made


def _asked_model(kind: str) -> Model:
    return _tariffs() if kind == "tariffs" else model(kind)


@st.composite
def _questions(draw: st.DrawFn, domain: Domain) -> dict[str, Any]:
    """A row, in the domain, on the edges of sets or beyond; which inputs may move; and what is wanted."""
    row = draw(_rows(domain, far=False))
    names = st.lists(st.sampled_from(domain.names), unique=True, max_size=3)
    goal: st.SearchStrategy[Goal | None] = st.none()
    if domain.target is not None:
        low, high = domain.target.low, domain.target.high
        levels = st.floats(0.05, 0.95).map(lambda part: low + part * (high - low))
        steps = st.floats(0.02, 0.3).map(lambda part: part * (high - low))
        goal = (
            goal
            | levels.map(lambda value: Goal(above=value))
            | levels.map(lambda value: Goal(below=value))
            | (steps | steps.map(lambda step: -step)).map(lambda step: Goal(change=step))
            | steps.map(lambda step: Goal(either=step))
        )
    else:
        goal = goal | st.sampled_from(domain.classes).map(lambda label: Goal(label=label))
    return {
        "row": np.array(row),
        "goal": draw(goal),
        "keep": draw(names),
        "only": draw(st.none() | names),
        "max_inputs": draw(st.none() | st.integers(1, 3)),
    }


def _asked(learned: Model, question: dict[str, Any]) -> tuple[Counterfactual, Goal]:
    given = {key: question[key] for key in ("goal", "keep", "only", "max_inputs")}
    result = counterfactual(learned, question["row"], **given)
    return result, question["goal"] or Goal.default(learned.domain, result.prediction)


def _moved(variable: Variable, before: float, after: float) -> float:
    """Return what a change costs beside the tenth that each costs; of an empty cell from what it was taken for."""
    if variable.categories:
        return 0.5
    taken_for = variable.missing if np.isnan(before) and variable.missing is not None else before
    return abs(after - taken_for) / (variable.high - variable.low) + 0.5 * bool(np.isnan(before))


def _reached(learned: Model, goal: Goal, before: float | str, point: NDArray[np.float64]) -> bool:
    return bool(goal.reached(before, learned.predict(point[None, :]))[0])


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *GAPPY, "tariffs"])
@settings(max_examples=6)
@given(st.data())
def test_every_way_keeps_all_promises_when_the_model_is_asked_again(kind: str, data: st.DataObject) -> None:
    learned = _asked_model(kind)
    question = data.draw(_questions(learned.domain))
    result, goal = _asked(learned, question)
    row, domain = question["row"], learned.domain
    may_change = set(domain.names if question["only"] is None else question["only"]) - set(question["keep"])
    ways = () if result.best is None else (result.best, *result.alternatives)
    assert result.prediction == learned.predict(row[None, :])[0]
    assert result.already == _reached(learned, goal, result.prediction, row)
    assert result.found == (bool(ways) or result.already)
    assert not (result.already and ways)
    assert [way.cost for way in ways] == sorted(way.cost for way in ways)
    for number, way in enumerate(ways):
        point = np.array([way.row[name] for name in domain.names], dtype=np.float64)
        assert learned.predict(point[None, :])[0] == way.prediction
        assert _reached(learned, goal, result.prediction, point)
        changed = {part.feature: part for part in way.changes}
        assert set(changed) == {name for name, a, b in zip(domain.names, row, point, strict=True) if repr(a) != repr(b)}
        assert 0 < len(changed) <= (question["max_inputs"] or len(domain.names))
        assert set(changed) <= may_change
        cost = 0.0
        for i, variable in enumerate(domain.features):
            part = changed.get(variable.name)
            if part is None:
                continue
            assert variable.low <= point[i] <= variable.high
            assert (part.before, part.after) == (None if np.isnan(row[i]) else row[i], point[i])
            assert not variable.categories or variable.categories[int(point[i])] == part.after_text != "missing"
            cost += 0.1 + _moved(variable, row[i], point[i])
            # No change is idle: with this one put back, the goal is missed.
            back = point.copy()
            back[i] = row[i]
            assert not _reached(learned, goal, result.prediction, back)
        assert way.cost == pytest.approx(cost)
        # A way that changes all that a cheaper one changes, and more, tells nothing new.
        assert not any({part.feature for part in other.changes} <= set(changed) for other in ways[:number])


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *GAPPY, "tariffs"])
@settings(max_examples=3)
@given(st.data())
def test_best_way_is_no_dearer_than_any_single_change_on_a_grid_when_one_input_is_enough(
    kind: str, data: st.DataObject
) -> None:
    learned = _asked_model(kind)
    question = data.draw(_questions(learned.domain))
    result, goal = _asked(learned, question)
    if result.already:
        return
    row, costs = question["row"], []
    for i, variable in enumerate(learned.domain.features):
        fixed = question["only"] is not None and variable.name not in question["only"]
        if fixed or variable.name in question["keep"] or variable.high <= variable.low:
            continue
        count = len([name for name in variable.categories if name != "missing"]) or GRID
        X = np.tile(row, (count, 1))
        X[:, i] = np.arange(count) if variable.categories else np.linspace(variable.low, variable.high, count)
        good = goal.reached(result.prediction, learned.predict(X)) & (X[:, i] != row[i])
        costs += [0.1 + _moved(variable, row[i], value) for value in X[good, i]]
    if costs:
        assert result.best is not None
        # Short numbers may cost a hundredth of the range.
        assert result.best.cost <= min(costs) + 0.0101
