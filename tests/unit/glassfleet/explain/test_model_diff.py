"""What differs between two models, for every scheme: rules matched by their antecedents, in words and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from console.main import cli
from console.model.difference import difference_lines
from glassfleet import catalogue, local
from glassfleet.explain import difference
from glassfleet.nature import readable_rules
from glassfleet.reword import in_words_of
from glassfleet.rules import Condition, Consequent, Rule
from glassfleet.scheme import Model
from schemas.record import ModelRecord
from tests.support import sample_models
from tests.support.fake_coordinator import domain_of, record_of, rows


def version(model: Model, number: int, cohort: Sequence[str] = ()) -> tuple[ModelRecord, Model]:
    """Return a version of a model, as `difference` takes it."""
    return record_of(model.to_document(), version=number, run=f"r{number}", cohort=[*cohort]), model


@cache
def learned(depth: int, seed: int = 5) -> Model:
    scheme = catalogue.load("frt")
    data = rows(seed=seed, count=300)
    parameters = scheme.Parameters.model_validate({"max_depth": depth})
    model: Model = local.central(scheme, parameters, domain_of(rows(seed=5, count=300)), data).model
    return model


def test_difference_names_rules_parameters_and_vehicles_when_a_tree_grows() -> None:
    small, large = learned(1), learned(2)
    found = difference(version(small, 1, ["v1", "v2"]), version(large, 2, ["v2", "v3"]))
    told = found.to_dict()
    assert told["parameters"] == {"max_depth": [1, 2]}
    assert told["cohort"] == {"joined": ["v3"], "left": ["v1"]}
    rules = told["rules"]
    assert len(rules["gone"]) + len(rules["changed"]) + rules["same"] == len(small.rules())
    assert len(rules["added"]) + len(rules["changed"]) + rules["same"] == len(large.rules())
    assert rules["added"]
    assert rules["gone"]
    lines = difference_lines(found)
    assert lines[0].startswith("m v1 (")
    assert "parameters max_depth: 1 -> 2" in lines
    assert "cohort, joined: v3" in lines
    assert sum(line.startswith("+ IF ") for line in lines) == len(rules["added"])
    assert json.loads(json.dumps(told)) == told


def test_difference_says_what_changed_in_rules_with_the_same_antecedent() -> None:
    one, other = learned(1), learned(1, seed=6)
    found = difference(version(one, 1), version(other, 2))
    told = found.to_dict()
    changed = told["rules"]["changed"]
    assert changed
    for rule in changed:
        for was, now in rule["changes"].values():
            assert was != now
    words = [line for line in difference_lines(found) if line.startswith("~ IF ")]
    assert words == [f"~ IF {rule['if']}" for rule in changed]


@pytest.mark.parametrize("kind", sample_models.KINDS)
def test_difference_tells_a_renaming_once_and_no_other_rules_when_only_words_changed(kind: str) -> None:
    model = sample_models.model(kind)
    n_sets = model.to_document()["parameters"].get("n_sets", 5)
    terms = tuple(f"grade {number}" for number in range(n_sets))
    words = model.domain.features[0].model_copy(update={"unit": "dBm", "terms": terms})
    renamed = in_words_of(model, model.domain.model_copy(update={"features": (words, *model.domain.features[1:])}))
    found = difference(version(model, 1), version(renamed, 2))
    told = found.to_dict()
    assert not told["same"]
    assert set(told["domain"]) == {"snr"}
    rules = told["rules"]
    assert (rules["added"], rules["gone"], rules["changed"], rules["same"]) == ([], [], [], len(readable_rules(model)))
    lines = difference_lines(found)
    assert "domain snr: 0 to 10 dB -> 0 to 10 dBm" in lines
    assert any(line.startswith("domain snr: terms standard -> grade 0, grade 1") for line in lines)


def test_difference_names_what_is_gone_in_the_newer_terms_when_a_renamed_tree_shrinks() -> None:
    small, large = learned(1), learned(2)
    first = small.domain.features[0]
    terms = tuple(f"grade {number}" for number in range(5))
    features = (first.model_copy(update={"terms": terms}), *small.domain.features[1:])
    renamed = in_words_of(small, small.domain.model_copy(update={"features": features}))
    plain = difference(version(large, 1), version(small, 2)).to_dict()["rules"]
    told = difference(version(large, 1), version(renamed, 2)).to_dict()["rules"]
    assert told["same"] == plain["same"]
    assert [len(told[key]) for key in ("added", "gone", "changed")] == [
        len(plain[key]) for key in ("added", "gone", "changed")
    ]
    words = " ".join(rule["if"] for rule in told["gone"])
    assert f"{first.name} is grade " in words
    assert f"{first.name} is Low" not in words


def test_difference_tells_maps_key_by_key_when_few_of_their_keys_differ() -> None:
    model = learned(1)
    policy = {f"rule_{number}": float(number) for number in range(40)}
    one = version(model, 1)[0].model_copy(update={"parameters": {"policy": policy, "retry": {"wait": 1}}})
    other = one.model_copy(update={"version": 2, "parameters": {"policy": {**policy, "rule_7": 9.5, "min_agents": 3}}})
    found = difference((one, model), (other, model))
    told = found.to_dict()
    assert told["training"]["policy"] == [one.parameters["policy"], other.parameters["policy"]], "whole in JSON"
    lines = difference_lines(found)
    assert [line for line in lines if line.startswith("training")] == [
        "training policy.rule_7: 7 -> 9.5",
        "training policy.min_agents: absent -> 3",
        "training retry.wait: 1 -> absent",
    ]


def test_difference_tells_what_else_differs_of_a_domain_when_limits_are_the_same() -> None:
    model = learned(1)
    one, other = version(model, 1)[0], version(model, 2)[0]
    domain = other.document["domain"]
    domain = {
        **domain,
        "features": [{**domain["features"][0], "categories": ["a", "b"]}, *domain["features"][1:]],
        "memory": {"columns": {"speed": [1, 2], "load": [4]}, "drive": "trip"},
    }
    other = other.model_copy(update={"document": {**other.document, "domain": domain}})
    name = domain["features"][0]["name"]
    lines = [line for line in difference_lines(difference((one, model), (other, model))) if line.startswith("domain")]
    assert lines == [
        f"domain {name}.categories: absent -> [a, b]",
        "domain memory.columns.speed: absent -> [1, 2]",
        "domain memory.columns.load: absent -> [4]",
        "domain memory.drive: absent -> trip",
    ]


def told_of(was: Any, now: Any) -> list[str]:
    """Return the lines about one setting of training that was, and is now."""
    model = learned(1)
    one = version(model, 1)[0].model_copy(update={"parameters": {"set": was}})
    other = one.model_copy(update={"version": 2, "parameters": {"set": now}})
    lines = difference_lines(difference((one, model), (other, model)))
    return [line for line in lines if line.startswith("training")]


@pytest.mark.parametrize(
    ("was", "now", "line"),
    [
        (0.1234571, 0.1234574, "training set: 0.1234571 -> 0.1234574"),
        (0.5, 0.25, "training set: 0.5 -> 0.25"),
        (1, 1.0000001, "training set: 1 -> 1.0000001"),
        ([1.5, 0.1234571], [1.5, 0.1234574], "training set: [1.5, 0.1234571] -> [1.5, 0.1234574]"),
        (None, "none", "training set: none -> 'none'"),
    ],
)
def test_difference_tells_values_that_look_different_when_six_digits_are_equal(was: Any, now: Any, line: str) -> None:
    assert told_of(was, now) == [line]


def test_difference_tells_limits_and_changes_of_rules_to_the_last_digit_when_six_are_equal() -> None:
    model = learned(1)
    one, other = version(model, 1)[0], version(model, 2)[0]
    domain = other.document["domain"]
    first = domain["features"][0]
    moved = {**first, "high": first["high"] + 1e-9}
    domain = {**domain, "features": [moved, *domain["features"][1:]]}
    found = difference(
        (one, model), (other.model_copy(update={"document": {**other.document, "domain": domain}}), model)
    )
    was, now = (Rule(0, (), Consequent("mos", 3.0), weight, 0.5, 0.5) for weight in (12.345678, 12.345679))
    found = replace(found, restated=((was, now),))
    lines = difference_lines(found)
    unit = f" {first['unit']}" if first.get("unit") else ""
    ends = [
        f"{float(low)!r} to {float(high)!r}{unit}"
        for low, high in ((first["low"], first["high"]), (moved["low"], moved["high"]))
    ]
    assert f"domain {first['name']}: {' -> '.join(ends)}" in lines
    assert "    weight: 12.345678 -> 12.345679" in lines


def test_difference_tells_the_order_alone_when_named_maps_stand_in_another() -> None:
    a, b, c = ({"name": name, "depth": depth} for name, depth in (("a", 1), ("b", 2), ("c", 3)))
    assert told_of([a, b, c], [c, a, b]) == ["training set, order: a, b, c -> c, a, b"]
    assert told_of([a, b], [b, {**a, "depth": 4}]) == [
        "training set.a.depth: 1 -> 4",
        "training set, order: a, b -> b, a",
    ]
    assert told_of([a, b], [c, a, b]) == ["training set.c.name: absent -> c", "training set.c.depth: absent -> 3"]


def test_difference_tells_lists_whole_when_a_name_stands_in_them_twice() -> None:
    lines = told_of([{"name": "a", "v": 1}, {"name": "a", "v": 2}], [{"name": "a", "v": 3}, {"name": "a", "v": 5}])
    assert " ".join(lines).startswith("training set: [{'name': 'a', 'v': 1}, ")


def test_difference_is_no_wider_than_the_terminal_when_values_and_rules_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    small, large = learned(1), learned(3)
    cohort = [f"vehicle-{number:02}" for number in range(30)]
    found = difference(version(small, 1), version(large, 2, cohort))
    told = found.to_dict()
    lines = difference_lines(found)
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("+ IF ") for line in lines) == len(told["rules"]["added"])
    joined = " ".join(" ".join(lines).split())
    assert all(f"+ IF {rule['if']} THEN {rule['then']}" in joined for rule in told["rules"]["added"])
    assert f"cohort, joined: {', '.join(cohort)}" in joined


def with_rules(*rules: tuple[tuple[str, ...], str, float]) -> Any:
    """Return a model of rules: the inputs that each asks to be low, its consequent, its weight."""
    model = sample_models.model("frbc")
    made = [
        Rule(
            index,
            tuple(Condition(name, "Low", 0.0, 1.0, 0.0) for name in names),
            Consequent("", text),
            weight,
            weight,
            weight,
        )
        for index, (names, text, weight) in enumerate(rules)
    ]
    return SimpleNamespace(domain=model.domain, rules=lambda: made, complexity=dict, to_document=model.to_document)


def test_rules_of_one_antecedent_are_paired_by_their_consequent_and_none_is_lost() -> None:
    one = with_rules((("snr", "dist"), "good", 0.5), (("snr", "dist"), "poor", 0.25), (("load",), "fair", 0.5))
    other = with_rules((("dist", "snr"), "poor", 0.75), (("dist", "snr"), "good", 0.625), (("load",), "good", 0.5))
    record = version(sample_models.model("frbc"), 1)[0]
    found = difference((record, one), (record, other))
    assert (found.added, found.gone, found.kept) == ((), (), 0)
    restated = [(was.output, was.weight, now.output, now.weight) for was, now in found.restated]
    assert restated == [("good", 0.5, "good", 0.625), ("poor", 0.25, "poor", 0.75)]
    ((was, now),) = found.changed
    assert (was.output, now.output) == ("fair", "good")
    more = difference((record, one), (record, with_rules((("snr", "dist"), "good", 0.5))))
    assert [rule.output for rule in more.gone] == ["fair", "poor"]


def test_populations_are_compared_by_their_structures() -> None:
    before = sample_models.population()
    document = before.to_document()
    body = {**document["model"], "structures": [[3, 3, -1, -1, 3, -1, -1], *document["model"]["structures"][1:]]}
    after = catalogue.load("fedga").from_document({**document, "model": body})
    found = difference(version(before, 1), version(after, 2))
    assert (len(found.added), len(found.gone), found.changed) == (1, 1, ())
    assert len(found.restated) + found.kept == len(body["structures"]) - 1
    assert any(line.startswith("+ structure 1 (fitness") for line in difference_lines(found))


@pytest.mark.parametrize("kind", sample_models.KINDS)
def test_model_of_any_scheme_is_the_same_as_itself(kind: str) -> None:
    model = sample_models.model(kind)
    found = difference(version(model, 1), version(model, 2))
    told = found.to_dict()
    assert told["same"]
    rules = told["rules"]
    assert (rules["added"], rules["gone"], rules["changed"], rules["same"]) == ([], [], [], len(readable_rules(model)))
    assert "the same model: their digests are equal" in difference_lines(found)


def test_diff_reads_files_without_a_broker(tmp_path: Path) -> None:
    for number, depth in ((1, 1), (2, 2)):
        record, _ = version(learned(depth), number)
        (tmp_path / f"{number}.json").write_bytes(record.to_bytes())
    files = [str(tmp_path / "1.json"), str(tmp_path / "2.json")]
    result = CliRunner().invoke(cli, ["model", "diff", *files])
    assert result.exit_code == 0, result.output
    assert "parameters max_depth: 1 -> 2" in result.output
    told = json.loads(CliRunner().invoke(cli, ["model", "diff", *files, "--json"]).output)
    assert told["parameters"] == {"max_depth": [1, 2]}
