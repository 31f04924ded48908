"""Explanations: one forecast, ways to another outcome, what each input does."""

from __future__ import annotations

import json
import math
import re

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.explain import (
    Counterfactual,
    Goal,
    ModelSummary,
    RowExplanation,
    as_row,
    counterfactual,
    effect,
    explain_row,
    importance,
    reach,
    starting_row,
    summary,
)
from glassfleet.model.protocol import readable_rules
from glassfleet.schemes.tree import FuzzyClassTree
from schemas.errors import DataError, UsageError
from tests.support import sample_models
from tests.support.sample_models import FEATURES, KINDS, model, population, rows


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_keep_their_json_schema_when_dumped_and_read(kind: str) -> None:
    learned = model(kind)
    for view, made in (
        (RowExplanation, explain_row(learned, rows()[0])),
        (Counterfactual, counterfactual(learned, rows()[0])),
        (ModelSummary, summary(learned)),
    ):
        result = json.loads(json.dumps(made.to_dict(), allow_nan=False))
        jsonschema.validate(result, view.model_json_schema(mode="serialization"))
        assert view.model_validate(result) == made
        assert result["format"] == 1


def test_rows_are_read_by_name_and_refused_when_an_input_is_missing_or_no_number() -> None:
    domain = model("frt").domain
    given = {"speed": 1, "snr": "2.5", "load": 0.5, "dist": 10, "else": "x"}
    assert as_row(domain, given).tolist() == [2.5, 10.0, 0.5, 1.0]
    for row, fault in (
        ({"snr": 1}, "no 'dist'"),
        ({**given, "load": "high"}, "load must be a number"),
        ({**given, "load": math.nan}, "load must be finite"),
        ([1.0, 2.0], "2 values"),
        ([1.0, 2.0, math.inf, 3.0], "finite"),
    ):
        with pytest.raises(DataError, match=fault):
            as_row(domain, row)


def test_categories_are_texts_when_rows_and_reasons_name_them() -> None:
    place = FEATURES[0].model_copy(update={"low": 0.0, "high": 2.0, "categories": ("city", "forest", "road")})
    domain = model("dp_tree").domain.model_copy(update={"features": (place, *FEATURES[1:])})
    given = {"snr": "road", "dist": 1, "load": 0, "speed": 2}
    assert as_row(domain, given)[0] == 2.0
    with pytest.raises(DataError, match="no category 'sea'; known: city, forest, road"):
        as_row(domain, {**given, "snr": "sea"})


def test_black_boxes_and_populations_say_so_when_they_are_explained() -> None:
    network = explain_row(model("fedavg_mlp-numbers"), rows()[0])
    assert network.nature == "network"
    assert "no rules" in network.notes[0]
    assert re.fullmatch(r"mos is \S+ points; this model is a network: it has no rules", network.text)
    assert "no shares" in network.notes[1]
    shared = explain_row(population(), rows()[0])
    assert (shared.nature, shared.shares, shared.total, shared.measure) == ("structures", {}, None, "")
    assert "same answer" in shared.notes[0]
    assert "for every row" in shared.text
    assert "because of" not in network.text + shared.text
    for notes in (shared.notes, summary(population()).notes):
        assert "glassfleet forecast run --id VEHICLE --source SOURCE --data ROWS" in notes[1]
        assert "glassfleet forecast explain --at last --id VEHICLE" in notes[1]
    assert explain_row(model("dp_tree"), rows()[0]).nature == "rules"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((kind, "the model takes the nearest limit") for kind in ("frt", "tree", "tsk", "frbc", "fedavg_mlp-numbers")),
        *((kind, "the tree goes on comparing it") for kind in ("dp_tree", "fedga-numbers")),
    ],
)
def test_values_outside_the_range_are_told_as_the_model_takes_them_when_a_row_is_explained(
    kind: str, what: str
) -> None:
    learned = model(kind)
    result = explain_row(learned, [12.0, 50.0, 0.5, 1.0])
    noted = [note for note in result.notes if "outside the model's range" in note]
    assert len(noted) == 1
    assert noted[0].startswith(f"snr = 12 dB is outside the model's range, 0 to 10 dB; {what}")
    if "nearest limit" in what:
        beyond = [[value, 50.0, 0.5, 1.0] for value in (10.0, 12.0, 1e30)]
        assert len(set(learned.predict(np.array(beyond)).tolist())) == 1
    assert not any("outside" in note for note in explain_row(population(), [12.0, 50.0, 0.5, 1.0]).notes)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("frt", "good"),
        ("frt", "5"),
        ("frt", ">x"),
        ("frt", "+0"),
        ("frt", "+-0"),
        ("frt", "+--1"),
        ("frt", "+/--1"),
        ("frt", "+/1"),
        ("frt", "\N{MINUS SIGN}"),
        ("frbc", "+-1"),
        ("frbc", ">3"),
        ("frbc", "no"),
    ],
)
def test_goal_is_refused_when_it_is_none_for_the_target(kind: str, text: str) -> None:
    with pytest.raises(UsageError):
        Goal.parse(text, model(kind).domain)


def test_search_is_refused_when_goal_or_input_is_unknown() -> None:
    for kind, goal, keep in (
        ("frt", Goal(label="good"), ()),
        ("frt", Goal(), ()),
        ("frbc", Goal(above=1.0), ()),
        ("frbc", Goal(label="no"), ()),
        ("frbc", Goal(), ("height",)),
    ):
        with pytest.raises(UsageError):
            counterfactual(model(kind), rows()[0], goal, keep=keep)
    with pytest.raises(UsageError, match="at least one"):
        counterfactual(model("frt"), rows()[0], max_inputs=0)
    with pytest.raises(ValueError, match="one of"):
        Goal(above=1.0, below=2.0)


@given(st.floats(-1e6, 1e6).filter(bool))
def test_goals_mean_what_they_say_when_typed(number: float) -> None:
    domain = model("frt").domain
    assert Goal.parse(f">{number!r}", domain) == Goal(above=number)
    assert Goal.parse(f"<= {number!r}", domain) == Goal(below=number)
    assert Goal.parse(f"{number:+}", domain) == Goal(change=float(f"{number:+}"))


ONE_OF_EACH = ("frt", "tree", "tsk", "frbc", "tree-text", "dp_tree", "tree-numbers-text", "fedavg_mlp-classes")


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_effect_is_what_the_model_predicts_when_one_value_is_replaced(kind: str) -> None:
    learned = model(kind)
    row = starting_row(learned, None).row
    for place, variable in enumerate(learned.domain.features):
        result = effect(learned, row, variable.name)
        assert (result.values[0], result.values[-1]) == (variable.low, variable.high)
        for at in (0, len(result.values) // 3, -1):
            changed = row.copy()
            changed[place] = result.values[at]
            assert result.answers[at] == learned.predict(changed[None])[0]
            assert bool(result.chances) == isinstance(learned, FuzzyClassTree)
            if isinstance(learned, FuzzyClassTree):
                assert tuple(result.chances) == learned.domain.classes
                chances = [own[at] for own in result.chances.values()]
                assert chances == (100.0 * learned.predict_proba(changed[None])[0]).tolist()
        assert result.value == row[place]


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_importance_is_nothing_for_inputs_that_no_rule_uses_and_most_for_what_the_target_follows(kind: str) -> None:
    learned = model(kind)
    result = importance(learned, None, learned.domain.names)
    rules = readable_rules(learned)
    parts = [part for rule in rules for part in (rule.consequent, *rule.consequent.scores)]
    used = {part.feature for rule in rules for part in rule.conditions}
    used |= {slope.feature for part in parts for slope in part.slopes or ()}
    assert not rules or {name for name, moved in result.items() if moved > 0.0} <= used
    # The targets of the samples follow these.
    assert max(result, key=result.__getitem__) in ({"dist", "fare"} if "text" in kind else {"snr", "dist"})


def test_input_counts_when_it_moves_chances_and_never_the_class() -> None:
    learned = model("tree-classes")
    result = effect(learned, starting_row(learned, None).row, "load")
    assert len(set(result.answers)) == 1
    assert reach(learned, None, ["load"])["load"] > 5.0
    assert importance(learned, None, ["load"])["load"] > 2.0


def test_unknown_inputs_and_structures_are_refused_by_name() -> None:
    learned = model("tree")
    with pytest.raises(UsageError, match="no input 'hour'; there are: snr, dist, load, speed"):
        effect(learned, np.zeros(4), "hour")
    with pytest.raises(UsageError, match="every row gets the same answer"):
        effect(sample_models.population(), np.zeros(4), "snr")
    assert importance(sample_models.population(), None, ["snr"]) == {}
