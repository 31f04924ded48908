"""What differs between two models, for every scheme: rules matched by their antecedents, in words and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from console.difference import difference, difference_lines
from console.main import cli
from glassfleet import catalogue, local
from glassfleet.scheme import Model
from schemas.documents import document_digest
from schemas.record import ModelRecord
from tests import zoo
from tests.desk import domain_of, rows


def record_of(model: Model, version: int, cohort: list[str]) -> ModelRecord:
    document: dict[str, Any] = dict(model.to_document())
    return ModelRecord(
        name="m",
        version=version,
        digest=document_digest(document),
        document=document,
        fleet="f",
        run=f"r{version}",
        scheme=document["scheme"],
        cohort=cohort,
        created="2026-01-01T00:00:00+00:00",
    )


def learned(depth: int, seed: int = 5) -> Model:
    scheme = catalogue.load("frt")
    data = rows(seed=seed, count=300)
    parameters = scheme.Parameters.model_validate({"max_depth": depth})
    model: Model = local.central(scheme, parameters, domain_of(rows(seed=5, count=300)), data).model
    return model


def test_difference_names_rules_parameters_and_vehicles_when_a_tree_grows() -> None:
    small, large = learned(1), learned(2)
    told = difference((record_of(small, 1, ["v1", "v2"]), small), (record_of(large, 2, ["v2", "v3"]), large))
    assert told["parameters"] == {"max_depth": [1, 2]}
    assert told["cohort"] == {"joined": ["v3"], "left": ["v1"]}
    rules = told["rules"]
    assert len(rules["gone"]) + len(rules["changed"]) + rules["same"] == len(small.rules())
    assert len(rules["added"]) + len(rules["changed"]) + rules["same"] == len(large.rules())
    assert rules["added"]
    assert rules["gone"]
    lines = difference_lines(told)
    assert lines[0].startswith("m v1 (")
    assert "parameters max_depth: 1 -> 2" in lines
    assert "cohort, joined: v3" in lines
    assert sum(line.startswith("+ IF ") for line in lines) == len(rules["added"])
    assert json.loads(json.dumps(told)) == told


def test_difference_says_what_changed_in_rules_with_the_same_antecedent() -> None:
    one, other = learned(1), learned(1, seed=6)
    told = difference((record_of(one, 1, []), one), (record_of(other, 2, []), other))
    changed = told["rules"]["changed"]
    assert changed
    for rule in changed:
        for was, now in rule["changes"].values():
            assert was != now
    words = [line for line in difference_lines(told) if line.startswith("~ IF ")]
    assert words == [f"~ IF {rule['if']}" for rule in changed]


@pytest.mark.parametrize("kind", zoo.KINDS)
def test_model_of_any_scheme_is_the_same_as_itself(kind: str) -> None:
    model = zoo.model(kind)
    told = difference((record_of(model, 1, []), model), (record_of(model, 2, []), model))
    assert told["same"]
    rules = told["rules"]
    assert (rules["added"], rules["gone"], rules["changed"], rules["same"]) == ([], [], [], len(model.rules()))
    assert "the same model: their digests are equal" in difference_lines(told)


def test_diff_reads_files_without_a_broker(tmp_path: Path) -> None:
    for version, depth in ((1, 1), (2, 2)):
        record = record_of(learned(depth), version, [])
        (tmp_path / f"{version}.json").write_bytes(record.to_bytes())
    files = [str(tmp_path / "1.json"), str(tmp_path / "2.json")]
    result = CliRunner().invoke(cli, ["model", "diff", *files])
    assert result.exit_code == 0, result.output
    assert "parameters max_depth: 1 -> 2" in result.output
    told = json.loads(CliRunner().invoke(cli, ["model", "diff", *files, "--json"]).output)
    assert told["parameters"] == {"max_depth": [1, 2]}
