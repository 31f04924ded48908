"""What every counterfactual promises, whatever the scheme, the row and the question.

The answer is asked of the model again, one row by itself, and nothing of the search is trusted.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import Counterfactual, Goal, counterfactual
from glassfleet.scheme import Model
from glassfleet.schemes.dp_tree import SCHEME as DP_TREE
from tests.support.sample_models import KINDS, model

GRID = 33
"""Points of an input's range that the search promises to try (docs/reference/exports.md)."""


@cache
def _tariffs() -> Model:
    """A tree with a column of text and a constant one, which no sample model has."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.integers(0, 4, 400), rng.random(400) * 10, np.full(400, 3.0), rng.random(400)])
    y = np.where((X[:, 0] == 2) | (X[:, 1] + 2 * X[:, 3] > 8), "good", np.where(X[:, 0] == 1, "fair", "bad"))
    features = (
        Variable(name="tariff", low=0, high=3, categories=("a", "b", "c", "d")),
        Variable(name="snr", low=0, high=10, unit="dB"),
        Variable(name="seats", low=3, high=3),
        Variable(name="load", low=0, high=1),
    )
    domain = Domain(features=features, label="quality", classes=("bad", "fair", "good"))
    scheme: Any = DP_TREE
    made: Model = scheme.alone(scheme.Parameters(), domain, Dataset(domain.names, "quality", X, y))
    return made


def _model(kind: str) -> Model:
    return _tariffs() if kind == "tariffs" else model(kind)


@st.composite
def _questions(draw: st.DrawFn, domain: Domain) -> dict[str, Any]:
    """A row, in the domain, on the edges of sets or beyond; which inputs may move; and what is wanted."""
    row = []
    for variable in domain.features:
        if variable.categories:
            row.append(float(draw(st.integers(0, len(variable.categories) - 1))))
            continue
        at = draw(st.integers(0, 24).map(lambda k: k / 24) | st.floats(-0.2, 1.2))
        row.append(variable.low + at * (variable.high - variable.low))
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
    told = counterfactual(learned, question["row"], **given)
    return told, question["goal"] or Goal.default(learned.domain, told.prediction)


def _reached(learned: Model, goal: Goal, before: float | str, point: NDArray[np.float64]) -> bool:
    return bool(goal.reached(before, learned.predict(point[None, :]))[0])


@pytest.mark.parametrize("kind", [*KINDS, "tariffs"])
@settings(max_examples=10)
@given(st.data())
def test_every_way_keeps_all_promises_when_the_model_is_asked_again(kind: str, data: st.DataObject) -> None:
    learned = _model(kind)
    question = data.draw(_questions(learned.domain))
    told, goal = _asked(learned, question)
    row, domain = question["row"], learned.domain
    may_change = set(domain.names if question["only"] is None else question["only"]) - set(question["keep"])
    ways = () if told.best is None else (told.best, *told.alternatives)
    assert told.prediction == learned.predict(row[None, :])[0]
    assert told.already == _reached(learned, goal, told.prediction, row)
    assert told.found == (bool(ways) or told.already)
    assert not (told.already and ways)
    assert [way.cost for way in ways] == sorted(way.cost for way in ways)
    for number, way in enumerate(ways):
        point = np.array([way.row[name] for name in domain.names])
        assert learned.predict(point[None, :])[0] == way.prediction
        assert _reached(learned, goal, told.prediction, point)
        changed = {part.feature: part for part in way.changes}
        assert set(changed) == {name for name, a, b in zip(domain.names, row, point, strict=True) if a != b}
        assert 0 < len(changed) <= (question["max_inputs"] or len(domain.names))
        assert set(changed) <= may_change
        cost = 0.0
        for i, variable in enumerate(domain.features):
            part = changed.get(variable.name)
            if part is None:
                continue
            assert variable.low <= point[i] <= variable.high
            assert (part.before, part.after) == (row[i], point[i])
            assert not variable.categories or point[i] == round(point[i])
            cost += 0.1 + (0.5 if variable.categories else abs(point[i] - row[i]) / (variable.high - variable.low))
            # No change is idle: with this one put back, the goal is missed.
            back = point.copy()
            back[i] = row[i]
            assert not _reached(learned, goal, told.prediction, back)
        assert way.cost == pytest.approx(cost)
        # A way that changes all that a cheaper one changes, and more, tells nothing new.
        assert not any({part.feature for part in other.changes} <= set(changed) for other in ways[:number])


@pytest.mark.parametrize("kind", [*KINDS, "tariffs"])
@settings(max_examples=5)
@given(st.data())
def test_best_way_is_no_dearer_than_any_single_change_on_a_grid_when_one_input_is_enough(
    kind: str, data: st.DataObject
) -> None:
    learned = _model(kind)
    question = data.draw(_questions(learned.domain))
    told, goal = _asked(learned, question)
    if told.already:
        return
    row, costs = question["row"], []
    for i, variable in enumerate(learned.domain.features):
        fixed = question["only"] is not None and variable.name not in question["only"]
        if fixed or variable.name in question["keep"] or variable.high <= variable.low:
            continue
        count = len(variable.categories) or GRID
        X = np.tile(row, (count, 1))
        X[:, i] = np.linspace(variable.low, variable.high, count)
        good = goal.reached(told.prediction, learned.predict(X)) & (X[:, i] != row[i])
        moved = np.abs(X[good, i] - row[i]) / (variable.high - variable.low)
        costs += (0.1 + np.where(bool(variable.categories), 0.5, moved)).tolist()
    if costs:
        assert told.best is not None
        # Short numbers may cost a hundredth of the range.
        assert told.best.cost <= min(costs) + 0.0101
