"""Lines that bend: found where the truth bends, told as what is computed, refused where they bend nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.explain.effects import effect
from glassfleet.export.fml import from_fml, to_fml
from glassfleet.fuzzy.hinges import check_hinges, with_hinges
from glassfleet.local import federated
from glassfleet.rules import Consequent, Slope
from glassfleet.schemes.fmt_classes import SCHEME, FuzzyClassTree, Parameters, client
from glassfleet.schemes.fmt_classes.messages import read_task
from schemas.errors import DocumentError

AGE = Variable(name="age", low=0.0, high=80.0, unit="years")
DOMAIN = Domain(
    features=(
        AGE,
        Variable(name="city", low=0.0, high=2.0, categories=("Bern", "Lima", "Rio")),
        AGE.model_copy(update={"name": "stay"}),
    ),
    label="bought",
    classes=("no", "yes"),
)
KNOTS = ((0.0, 0.25, 0.5, 1.0), (0.0, 0.5, 1.0), (0.0, 1.0))


def height(slope: Slope, values: Any) -> Any:
    """Return how high a slope's broken line is at some values of its input."""
    where, heights = np.array(slope.points).T
    return np.interp(values, where, heights)


def learn(**parameters: Any) -> tuple[FuzzyClassTree, Any]:
    """Return what three vehicles learn whose chances rise with age until 40 and fall after, and their rows."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(0, 80, 6000), rng.integers(0, 3, 6000), rng.uniform(0, 80, 6000)])
    score = -3.0 + 0.15 * X[:, 0] - 0.25 * np.maximum(X[:, 0] - 40.0, 0.0) + 0.5 * (X[:, 1] == 1)
    y = np.where(rng.random(6000) < 1.0 / (1.0 + np.exp(-score)), "yes", "no")
    fleet = {f"v{i}": Dataset(DOMAIN.names, "bought", X[i::3], y[i::3]) for i in range(3)}
    model: Any = federated(SCHEME, Parameters(min_rows=1, **parameters), DOMAIN, fleet).model
    return model, X


def test_line_bends_where_the_truth_does_and_is_told_in_words() -> None:
    model, _ = learn(max_rules=1)
    (rule,) = model.rules()
    text = re.search(r"with age it rises by [\d.]+ until ([\d.]+) years.* falls by [\d.]+ after", rule.output)
    assert text is not None, rule.output
    assert float(text[1]) == pytest.approx(40.0, abs=8.0)
    assert "stay it" not in rule.output  # nothing bends there


@pytest.mark.parametrize("max_rules", [1, 8])
def test_what_is_told_of_a_rule_is_what_is_computed(max_rules: int) -> None:
    model, X = learn(max_rules=max_rules, size_tolerance=0.0)
    met = bent = 0
    for row in X[:400]:
        fired = model.explain(row).fired
        if fired.strength < 1.0:
            continue
        (score,) = fired.rule.consequent.scores
        assert isinstance(score.value, float)
        level = model.inputs.levels[1][int(row[1]) + 1]
        result = score.value
        for slope in score.slopes or ():
            value = level if slope.feature == "city" else row[DOMAIN.names.index(slope.feature)]
            result += height(slope, value) if slope.points else slope.per_unit * value
            bent += bool(slope.points)
        assert 1.0 / (1.0 + np.exp(-result)) == pytest.approx(model.predict_proba(row[None])[0, 1], abs=1e-9)
        met += 1
    assert met > 50
    assert bent


def test_shares_of_a_bent_input_are_those_of_its_line() -> None:
    model, X = learn(max_rules=1)
    slopes = {slope.feature: slope for slope in model.rules()[0].consequent.scores[0].slopes or ()}
    for row in X[:20]:
        result = model.explain(row)
        sign = 1.0 if result.prediction == "yes" else -1.0
        assert result.shares["age"] == pytest.approx(sign * height(slopes["age"], row[0]))
        odds = np.log(np.divide(*np.sort(model.predict_proba(row[None])[0])[::-1]))
        assert result.base + sum(result.shares.values()) == pytest.approx(odds)


def test_of_two_classes_the_chance_of_the_second_says_both() -> None:
    model, X = learn(max_rules=1)
    result = effect(model, X[0], "age")
    changed = np.repeat(X[:1], len(result.values), axis=0)
    changed[:, 0] = result.values
    assert dict(result.chances) == {"yes": tuple(100.0 * model.predict_proba(changed)[:, 1])}


def test_chances_are_the_same_bits_after_a_way_through_fml() -> None:
    model, X = learn(max_rules=8, size_tolerance=0.0)
    text = to_fml(model)
    knots = [80.0 * knot for _, knot in model.inputs.hinges]
    assert knots
    assert all(f'name="age_above_{knot!r}"' in text for knot in knots)
    rows = np.concatenate([X[:400], [[knot, city, 80.0] for knot in knots for city in range(3)]])
    again: Any = from_fml(text)
    assert again.predict_proba(rows).tobytes() == model.predict_proba(rows).tobytes()
    assert (again.predict(rows) == model.predict(rows)).all()


@pytest.mark.parametrize("kind", ["hinges", "grow", "newton"])
@pytest.mark.parametrize("lie", [0.0, 1.0])
def test_sums_of_hinges_that_do_not_follow_their_inputs_are_refused(
    kind: str, lie: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.uniform(0, 80, 900), rng.integers(0, 3, 900), rng.uniform(0, 80, 900)])
    data = Dataset(DOMAIN.names, "bought", X, np.where(np.abs(X[:, 0] - 40.0) < 20.0, "yes", "no"))
    step: Any = SCHEME.server.start(Parameters(min_rows=1), DOMAIN, 0)
    while step.task.kind != kind:
        step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, data, rng)])
    assert read_task(step.task).hinges
    SCHEME.server.check(step.task, SCHEME.client.contribute(step.task, data, rng))

    def lied(inputs: Any, hinges: Any) -> Any:
        return np.concatenate([inputs, np.full((len(hinges), inputs.shape[1]), lie)])

    monkeypatch.setattr(client, "with_hinges", lied)
    with pytest.raises(ContributionError, match="a line that bends contradict those of its input"):
        SCHEME.server.check(step.task, SCHEME.client.contribute(step.task, data, rng))


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"format": 1}, "has no max_hinges"), ({"parameters": {"max_hinges": 0}}, "hinges; the run had at most 0")],
)
def test_document_is_refused_when_it_contradicts_itself(change: dict[str, Any], fault: str) -> None:
    document = learn(max_rules=1)[0].to_document()
    parameters = document["parameters"] | change.get("parameters", {})
    with pytest.raises(DocumentError, match=fault):
        SCHEME.from_document({**document, **change, "parameters": parameters})


def test_course_names_rise_fall_and_rest() -> None:
    line = Slope("age", 0.1, 2.0, ((0.0, 0.0), (20.0, 2.0), (60.0, 2.0), (80.0, -1.5)), "years")
    assert line.course == "rises by 2 until 20 years, is flat until 60, falls by 3.5 after"
    score = Consequent("score", 1.0, "", (Slope("speed", -0.5, -60.0), line))
    assert str(score) == f"score = 1 - 0.5 speed, with age it {line.course}"


@pytest.mark.parametrize(
    ("hinges", "fault"),
    [
        ([[0, 0.25], [0, 0.25]], "not different"),
        ([[0, 0.5], [0, 0.25]], "not in order"),
        ([[0, 1.0]], "no inner knot"),
        ([[1, 0.5]], "no inner knot"),
        ([[3, 0.5]], "no inner knot"),
        ([[0.0, 0.5]], "not the number of an input"),
        ([[0, 1]], "not the number of an input"),
    ],
)
def test_hinges_are_refused_when_they_bend_nothing(hinges: list[list[float]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_hinges(hinges, DOMAIN, KNOTS)


def test_hinges_stand_behind_the_inputs() -> None:
    inputs = np.array([[0.1, 0.9], [0.5, 0.6]])
    assert with_hinges(inputs, ((0, 0.5),)) == pytest.approx(np.array([[0.1, 0.9], [0.5, 0.6], [0.0, 0.4]]))
