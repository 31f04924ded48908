"""Explanations of rows and of whole models: every scheme, exact sums, other words, honest notes."""

from __future__ import annotations

import json
import math
import re

import jsonschema
import numpy as np
import pytest

from glassfleet.explain import (
    Counterfactual,
    ModelSummary,
    RowExplanation,
    as_row,
    counterfactual,
    explain_row,
    in_words_of,
    partitions,
    summary,
)
from glassfleet.export.canvas import consequent
from schemas.documents import document_digest
from schemas.errors import DataError, UsageError
from tests.zoo import FEATURES, KINDS, NAMES, model, population, rows, wide_rows


@pytest.mark.parametrize("kind", KINDS)
def test_shares_add_up_to_the_total_to_the_bit_when_a_row_is_explained(kind: str) -> None:
    learned = model(kind)
    X = wide_rows(40)
    answers = learned.predict(X).tolist()
    for row, answer in zip(X, answers, strict=True):
        told = explain_row(learned, None, row)
        assert told.prediction == answer
        if kind == "fedavg_mlp-classes":
            assert told.total is None
            assert not told.shares
            continue
        assert set(told.shares) == set(NAMES)
        assert math.fsum((told.base, told.rounding, *told.shares.values())) == told.total
        assert abs(told.rounding) <= 1e-12 * (abs(told.base) + sum(map(abs, told.shares.values())))
        if not isinstance(answer, str):
            assert told.total == answer
            assert not told.measure
        else:
            assert told.measure


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_keep_their_json_schema_when_dumped_and_read(kind: str) -> None:
    learned = model(kind)
    for view, made in (
        (RowExplanation, explain_row(learned, None, rows()[0])),
        (Counterfactual, counterfactual(learned, None, rows()[0])),
        (ModelSummary, summary(learned)),
    ):
        told = json.loads(json.dumps(made.to_dict(), allow_nan=False))
        jsonschema.validate(told, view.model_json_schema(mode="serialization"))
        assert view.model_validate(told) == made
        assert told["format"] == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if model(kind).domain.target is not None])
def test_unit_of_a_consequent_cannot_be_taken_for_the_last_inputs_when_rules_are_read(kind: str) -> None:
    learned = model(kind)
    outputs = [rule.output for rule in learned.rules() if "black box" not in rule.output]
    sums = [output for output in outputs if any(f" {name}" in output for name in NAMES)]
    assert bool(sums) == (kind.partition("-")[0] in {"frt", "fmt", "tsk"})
    assert all(re.fullmatch(r"mos = \(-?[\d.]+( [+-] [\d.e-]+ \w+)+\) points", output) for output in sums)
    assert all(re.fullmatch(r"mos = -?[\d.]+ points", output) for output in outputs if output not in sums)
    for output in sums:
        shown = re.fullmatch(r"(\S+) ([+-] \S+) (\w+)(?: …)?", consequent(output, learned))
        assert shown is not None
        first, slope, name = shown.groups()
        assert f"({first} " in output
        assert f" {slope} {name}" in output
        assert name in NAMES


def test_memberships_are_those_of_the_fired_rule_when_sets_are_fuzzy() -> None:
    learned = model("frt")
    for row in rows(30, seed=3):
        told = explain_row(learned, None, row)
        degrees = {part.feature: {item.term: item.degree for item in part.memberships} for part in told.inputs}
        for part, degree in zip(told.fired.rule.conditions, told.fired.memberships, strict=True):
            assert degrees[part.feature][part.term] == pytest.approx(degree, abs=1e-12)
        for found in degrees.values():
            assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["frt", "fmt", "tsk", "frbc", "dp_tree"])
def test_rules_speak_in_other_words_when_terms_and_units_are_renamed(kind: str) -> None:
    learned = model(kind)
    n_sets = len(partitions(learned)[0].sets)
    terms = tuple(f"step{j}" for j in range(n_sets))
    snr = FEATURES[0].model_copy(update={"unit": "dBm", "terms": terms})
    domain = learned.domain.model_copy(update={"features": (snr, *FEATURES[1:])})
    told = explain_row(learned, domain, rows()[0])
    assert told.prediction == explain_row(learned, None, rows()[0]).prediction
    page = json.dumps(summary(learned, domain).to_dict())
    assert "dBm" in page
    assert "step0" in page or not n_sets
    assert "dBm" not in json.dumps(summary(learned).to_dict())


def test_speaking_is_refused_when_the_domain_has_other_limits() -> None:
    moved = FEATURES[0].model_copy(update={"high": 11.0})
    domain = model("frt").domain.model_copy(update={"features": (moved, *FEATURES[1:])})
    with pytest.raises(UsageError, match="only terms and units"):
        in_words_of(model("frt"), domain)


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
    assert "no rules" in explain_row(model("fedavg_mlp-numbers"), None, rows()[0]).notes[0]
    assert "not even shares" in explain_row(model("fedavg_mlp-classes"), None, rows()[0]).notes[1]
    assert "same answer" in explain_row(population(), None, rows()[0]).notes[0]
    assert "no rules" in summary(model("fedavg_mlp-classes")).notes[0]


def test_values_outside_the_range_are_noted_when_a_row_is_explained() -> None:
    told = explain_row(model("frt"), None, [12.0, 50.0, 0.5, 1.0])
    assert told.notes == ("snr = 12 dB is outside the model's range, 0 to 10 dB; fuzzy models take the nearest limit",)


@pytest.mark.parametrize("kind", KINDS)
def test_summary_counts_rules_and_uses_when_a_model_is_told_as_a_whole(kind: str) -> None:
    learned = model(kind)
    told = summary(learned, top=3)
    rules = list(learned.rules())
    assert told.digest == document_digest(learned.to_document())
    assert told.rule_count == len(rules)
    assert len(told.rules) == min(3, len(rules))
    assert [rule.support for rule in told.rules] == sorted((rule.support for rule in rules), reverse=True)[:3]
    for use in told.features:
        naming = [rule for rule in rules if any(part.feature == use.feature for part in rule.conditions)]
        assert use.rules == len(naming) == sum(use.terms.values())
        assert 0.0 <= use.support <= 1.0


def test_effect_is_the_mean_move_of_the_output_when_consequents_are_polynomials() -> None:
    learned = model("tsk")
    told = {use.feature: use.effect for use in summary(learned).features}
    target = learned.domain.target
    assert target is not None
    lines = learned.to_document()["model"]["rules"]
    slopes = np.abs([line["coefficients"] for line in lines]) * (target.high - target.low)
    support = np.array([line["support"] for line in lines])
    expected = (slopes * support[:, None]).sum(axis=0) / support.sum()
    assert [told[name] for name in NAMES] == pytest.approx(expected.tolist())
    assert all(use.effect is None for use in summary(model("frbc")).features)


def test_partitions_have_the_memberships_of_the_model_when_sets_are_drawn() -> None:
    part = partitions(model("frt"))[0]
    assert [item.term for item in part.sets] == ["VeryLow", "Low", "Medium", "High", "VeryHigh"]
    assert (part.sets[0].degree(-1.0), part.sets[0].degree(1.25), part.sets[-1].degree(11.0)) == (1.0, 0.5, 1.0)
    assert partitions(model("dp_tree"))[0].thresholds
    assert not partitions(model("dp_tree"))[0].sets
