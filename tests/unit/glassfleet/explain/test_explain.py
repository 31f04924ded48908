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
    partitions,
    summary,
)
from glassfleet.nature import readable_rules
from glassfleet.reword import in_words_of
from schemas.documents import document_digest
from schemas.errors import DataError, UsageError
from tests.support.sample_models import FEATURES, KINDS, NAMES, model, population, rows, wide_rows


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_keep_their_json_schema_when_dumped_and_read(kind: str) -> None:
    learned = model(kind)
    for view, made in (
        (RowExplanation, explain_row(learned, rows()[0])),
        (Counterfactual, counterfactual(learned, rows()[0])),
        (ModelSummary, summary(learned)),
    ):
        told = json.loads(json.dumps(made.to_dict(), allow_nan=False))
        jsonschema.validate(told, view.model_json_schema(mode="serialization"))
        assert view.model_validate(told) == made
        assert told["format"] == 1


def test_memberships_are_those_of_the_fired_rule_when_sets_are_fuzzy() -> None:
    learned = model("frt")
    for row in rows(30, seed=3):
        told = explain_row(learned, row)
        degrees = {part.feature: {item.term: item.degree for item in part.memberships} for part in told.inputs}
        for part, degree in zip(told.fired.rule.conditions, told.fired.memberships, strict=True):
            assert degrees[part.feature][part.term] == pytest.approx(degree, abs=1e-12)
        for found in degrees.values():
            assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["frt", "fmt", "bmt", "tsk", "frbc", "dp_tree", "fmt_classes"])
def test_rules_speak_in_other_words_when_terms_and_units_are_renamed(kind: str) -> None:
    learned = model(kind)
    n_sets = len(partitions(learned)[0].sets)
    terms = tuple(f"step{j}" for j in range(n_sets))
    snr = FEATURES[0].model_copy(update={"unit": "dBm", "terms": terms})
    domain = learned.domain.model_copy(update={"features": (snr, *FEATURES[1:])})
    spoken = in_words_of(learned, domain)
    told = explain_row(spoken, rows()[0])
    assert told.prediction == explain_row(learned, rows()[0]).prediction
    page = json.dumps(summary(spoken).to_dict())
    assert "dBm" in page
    assert "step0" in page or not n_sets
    assert "dBm" not in json.dumps(summary(learned).to_dict())


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
    assert "not even shares" in explain_row(model("fedavg_mlp-classes"), rows()[0]).notes[1]
    shared = explain_row(population(), rows()[0])
    assert (shared.nature, shared.shares, shared.total, shared.measure) == ("structures", {}, None, "")
    assert "same answer" in shared.notes[0]
    assert "for every row" in shared.text
    assert "because of" not in network.text + shared.text
    for notes in (shared.notes, summary(population()).notes):
        assert "glassfleet forecast run --id VEHICLE --source SOURCE --data ROWS" in notes[1]
        assert "glassfleet explain --at last --id VEHICLE" in notes[1]
    assert explain_row(model("dp_tree"), rows()[0]).nature == "rules"


def test_networks_and_populations_tell_no_rules_when_they_are_summed_up() -> None:
    for kind in ("fedavg_mlp-numbers", "fedavg_mlp-classes"):
        told = summary(model(kind))
        assert (told.nature, told.rules, told.rule_count, told.features) == ("network", (), 0, ())
        assert "no rules" in told.notes[0]
        assert readable_rules(model(kind)) == ()
    shared = summary(population(), top=5)
    document = population().to_document()["model"]
    assert (shared.nature, shared.rule_count) == ("structures", len(document["structures"]))
    fitness = [rule.fitness for rule in shared.rules]
    assert fitness == sorted(document["fitness"], reverse=True)[:5]
    for rule in shared.rules:
        assert (rule.weight, rule.support, rule.confidence, rule.otherwise) == (None, None, None, False)
        assert re.match(rf"structure {rule.index} \(fitness ", rule.text)
    assert not shared.features
    assert {"mean_nodes", "mean_leaves", "mean_depth"} < set(shared.complexity)
    assert not {"nodes", "leaves", "depth"} & set(shared.complexity)


@pytest.mark.parametrize("kind", ["fmt", "bmt"])
def test_clipped_forecasts_say_what_the_rules_say_when_the_model_keeps_to_the_targets_limits(kind: str) -> None:
    learned = model(kind)
    target = learned.domain.target
    assert target is not None
    found = [explain_row(learned, row) for row in wide_rows(400)]
    clipped = [told for told in found if told.clipped_from is not None]
    assert clipped
    for told in clipped:
        assert told.clipped_from is not None
        assert told.prediction in {target.low, target.high}
        limit = "lower" if told.clipped_from < target.low else "upper"
        assert f"say {told.clipped_from:.6g} points; clipped to the target's {limit} limit" in told.notes[0]
        assert told.total == told.prediction
    for told in (told for told in found if told.clipped_from is None):
        assert not any("clipped" in note for note in told.notes)
        assert target.low <= float(told.prediction) <= target.high


def test_clipped_forecast_is_what_the_rule_adds_up_to_when_one_rule_answers() -> None:
    learned = model("fmt-other")
    told = next(each for row in wide_rows(400) if (each := explain_row(learned, row)).clipped_from is not None)
    rule = learned.to_document()["model"]["rules"][told.fired.rule.index]
    target = learned.domain.target
    assert target is not None
    scaled = [min(max(part.value / FEATURES[NAMES.index(part.feature)].high, 0.0), 1.0) for part in told.inputs]
    slopes = [rule["coefficients"].get(part.feature, 0.0) for part in told.inputs]
    said = rule["intercept"] + sum(slope * value for slope, value in zip(slopes, scaled, strict=True))
    assert told.clipped_from == pytest.approx(target.low + said * (target.high - target.low))
    assert told.notes[0].startswith("the rule says ")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *(
            (kind, "the model takes the nearest limit")
            for kind in ("frt", "fmt", "bmt", "tsk", "frbc", "fedavg_mlp-numbers")
        ),
        *((kind, "the tree goes on comparing it") for kind in ("dp_tree", "fedga-numbers")),
    ],
)
def test_values_outside_the_range_are_told_as_the_model_takes_them_when_a_row_is_explained(
    kind: str, what: str
) -> None:
    learned = model(kind)
    told = explain_row(learned, [12.0, 50.0, 0.5, 1.0])
    noted = [note for note in told.notes if "outside the model's range" in note]
    assert len(noted) == 1
    assert noted[0].startswith(f"snr = 12 dB is outside the model's range, 0 to 10 dB; {what}")
    if "nearest limit" in what:
        beyond = [[value, 50.0, 0.5, 1.0] for value in (10.0, 12.0, 1e30)]
        assert len(set(learned.predict(np.array(beyond)).tolist())) == 1
    assert not any("outside" in note for note in explain_row(population(), [12.0, 50.0, 0.5, 1.0]).notes)


@pytest.mark.parametrize("kind", KINDS)
def test_summary_counts_rules_and_uses_when_a_model_is_told_as_a_whole(kind: str) -> None:
    learned = model(kind)
    told = summary(learned, top=3)
    rules = list(readable_rules(learned))
    assert told.digest == document_digest(learned.to_document())
    assert told.rule_count == len(rules)
    assert len(told.rules) == min(3, len(rules))
    assert [rule.support for rule in told.rules] == sorted((rule.support for rule in rules), reverse=True)[:3]
    for use in told.features:
        naming = [rule for rule in rules if any(part.feature == use.feature for part in rule.conditions)]
        assert use.rules == len(naming) == sum(use.terms.values())
        assert 0.0 <= use.support <= 1.0


def test_speaking_is_refused_when_the_domain_has_other_limits() -> None:
    moved = FEATURES[0].model_copy(update={"high": 11.0})
    domain = model("frt").domain.model_copy(update={"features": (moved, *FEATURES[1:])})
    with pytest.raises(UsageError, match="only terms and units"):
        in_words_of(model("frt"), domain)
