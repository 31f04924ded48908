"""What differs between two models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from console.main import cli
from console.operator.words import difference_lines
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.explain import difference, in_words_of
from glassfleet.model.protocol import Model, readable_rules
from glassfleet.model.rules import Condition, Consequent, Rule
from schemas.record import ModelRecord
from tests.support import sample_models
from tests.support.agent_bench import domain_of, record_of, rows


def version(model: Model, number: int, cohort: Sequence[str] = ()) -> tuple[ModelRecord, Model]:
    """Return a version of a model, as `difference` takes it."""
    return record_of(model.to_document(), version=number, run=f"r{number}", cohort=[*cohort]), model


@cache
def learned(depth: int, seed: int = 5) -> Model:
    scheme = catalogue.load("frt")
    data = rows(seed=seed, count=300)
    parameters = scheme.Parameters.model_validate({"max_depth": depth})
    model: Model = simulation.central(scheme, parameters, domain_of(rows(seed=5, count=300)), data).model
    return model


def test_difference_names_rules_parameters_and_vehicles_when_a_tree_grows() -> None:
    small, large = learned(1), learned(2)
    result = difference(version(small, 1, ["v1", "v2"]), version(large, 2, ["v2", "v3"]))
    answer = result.to_dict()
    assert answer["parameters"] == {"max_depth": [1, 2]}
    assert answer["cohort"] == {"joined": ["v3"], "left": ["v1"]}
    rules = answer["rules"]
    assert len(rules["gone"]) + len(rules["changed"]) + rules["same"] == len(small.rules())
    assert len(rules["added"]) + len(rules["changed"]) + rules["same"] == len(large.rules())
    assert rules["added"]
    assert rules["gone"]
    lines = difference_lines(result)
    assert lines[0].startswith("m v1 (")
    assert "parameters max_depth: 1 -> 2" in lines
    assert "cohort, joined: v3" in lines
    assert sum(line.startswith("+ IF ") for line in lines) == len(rules["added"])
    assert json.loads(json.dumps(answer)) == answer


def test_difference_says_what_changed_in_rules_with_the_same_antecedent() -> None:
    one, other = learned(1), learned(1, seed=6)
    result = difference(version(one, 1), version(other, 2))
    answer = result.to_dict()
    changed = answer["rules"]["changed"]
    assert changed
    for rule in changed:
        for was, now in rule["changes"].values():
            assert was != now
    words = [line for line in difference_lines(result) if line.startswith("~ IF ")]
    assert words == [f"~ IF {rule['if']}" for rule in changed]


@pytest.mark.parametrize("kind", sample_models.KINDS)
def test_difference_tells_a_renaming_once_and_no_other_rules_when_only_words_changed(kind: str) -> None:
    model = sample_models.model(kind)
    n_sets = model.to_document()["parameters"].get("n_sets", 5)
    terms = tuple(f"grade {number}" for number in range(n_sets))
    words = model.domain.features[0].model_copy(update={"unit": "dBm", "terms": terms})
    renamed = in_words_of(model, model.domain.model_copy(update={"features": (words, *model.domain.features[1:])}))
    result = difference(version(model, 1), version(renamed, 2))
    answer = result.to_dict()
    assert not answer["same"]
    assert set(answer["domain"]) == {"snr"}
    rules = answer["rules"]
    assert (rules["added"], rules["gone"], rules["changed"], rules["same"]) == ([], [], [], len(readable_rules(model)))
    lines = difference_lines(result)
    assert "domain snr: 0 to 10 dB -> 0 to 10 dBm" in lines
    assert any(line.startswith("domain snr: terms standard -> grade 0, grade 1") for line in lines)


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
    result = difference((record, one), (record, other))
    assert (result.added, result.gone, result.kept) == ((), (), 0)
    restated = [(was.output, was.weight, now.output, now.weight) for was, now in result.restated]
    assert restated == [("good", 0.5, "good", 0.625), ("poor", 0.25, "poor", 0.75)]
    ((was, now),) = result.changed
    assert (was.output, now.output) == ("fair", "good")
    more = difference((record, one), (record, with_rules((("snr", "dist"), "good", 0.5))))
    assert [rule.output for rule in more.gone] == ["fair", "poor"]


def test_populations_are_compared_by_their_structures() -> None:
    before = sample_models.population()
    document = before.to_document()
    body = {**document["model"], "structures": [[3, 3, -1, -1, 3, -1, -1], *document["model"]["structures"][1:]]}
    after = catalogue.load("fedga").from_document({**document, "model": body})
    result = difference(version(before, 1), version(after, 2))
    assert (len(result.added), len(result.gone), result.changed) == (1, 1, ())
    assert len(result.restated) + result.kept == len(body["structures"]) - 1
    assert any(line.startswith("+ structure 1 (fitness") for line in difference_lines(result))


def test_diff_reads_files_without_a_broker(tmp_path: Path) -> None:
    for number, depth in ((1, 1), (2, 2)):
        record, _ = version(learned(depth), number)
        (tmp_path / f"{number}.json").write_bytes(record.to_bytes())
    files = [str(tmp_path / "1.json"), str(tmp_path / "2.json")]
    result = CliRunner().invoke(cli, ["model", "diff", *files])
    assert result.exit_code == 0, result.output
    assert "parameters max_depth: 1 -> 2" in result.output
    answer = json.loads(CliRunner().invoke(cli, ["model", "diff", *files, "--json"]).output)
    assert answer["parameters"] == {"max_depth": [1, 2]}
