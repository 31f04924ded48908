"""``glassfleet model explain --summary``: what single explanations say, taken together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from console.model.over_rows import over_rows_lines
from glassfleet import catalogue
from glassfleet.explain import over_rows
from tests.support import sample_models


def far_rows(count: int) -> Any:
    """Return rows of which some lie beyond every range."""
    X = sample_models.rows(count).copy()
    X[::3] *= 4.0
    return X


@pytest.mark.parametrize("kind", ["tsk", "frbc", "fmt", "dp_tree", "fedavg_mlp-numbers"])
def test_summary_counts_what_the_explanations_of_the_rows_say(kind: str) -> None:
    learned, X = sample_models.model(kind), far_rows(60)
    told = over_rows(learned, X, 1000)
    single = [learned.explain(row) for row in X]
    assert (told["rows"], told["explained"]) == (60, 60)
    if told["nature"] == "rules":
        counted = Counter(each.fired.rule.index for each in single)
        assert {each["rule"]: each["rows"] for each in told["rules"]} == counted
        assert sum(each["share"] for each in told["rules"]) == pytest.approx(1)
        assert told["fallback"] == sum(each.fallback or each.fired.rule.otherwise for each in single)
    else:
        assert told["rules"] == []
    assert told["clipped"] == sum(each.clipped_from is not None for each in single)
    shared = [each for each in single if each.shares]
    assert told["with_shares"] == len(shared)
    for each in told["inputs"]:
        values = np.array([one.shares[each["feature"]] for one in shared])
        assert each["mean_absolute_share"] == pytest.approx(np.abs(values).mean())
        assert each["mean_share"] == pytest.approx(values.mean())
    assert sum(each["part"] for each in told["inputs"]) == pytest.approx(1)
    limits = [(variable.low, variable.high) for variable in learned.domain.features]
    beyond = sum(any(not low <= x <= high for x, (low, high) in zip(row, limits, strict=True)) for row in X)
    assert told["outside"]["rows"] == beyond > 0
    json.dumps(told, allow_nan=False)
    assert over_rows_lines(told)


def test_summary_finds_rows_that_met_no_rule_and_forecasts_that_were_clipped() -> None:
    high = np.array([[variable.high for variable in sample_models.model("tsk").domain.features]])
    assert over_rows(sample_models.model("tsk"), high, 10)["fallback"] == 1
    document = sample_models.model("fmt").to_document()
    rules = [
        {**rule, "coefficients": {name: value * 20.0 for name, value in rule["coefficients"].items()}}
        for rule in document["model"]["rules"]
    ]
    steep = {**document, "model": {**document["model"], "rules": rules}}
    clipping, X = catalogue.load("fmt").from_document(steep), sample_models.rows(50)
    told = over_rows(clipping, X, 100)
    assert told["clipped"] == sum(clipping.explain(row).clipped_from is not None for row in X) > 0


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "model.json").write_text(json.dumps(sample_models.model("tsk").to_document()))
    lines = [",".join(sample_models.NAMES), *(",".join(map(str, row)) for row in sample_models.rows(30))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "model.json"), str(tmp_path / "rows.csv")


def test_command_summarises_a_file_as_text_and_as_json(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["model", "explain", "--file", files[0], "--data", files[1], "--summary"]
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == over_rows(sample_models.model("tsk"), sample_models.rows(30), 2000)
    assert run([*command, "--rows", "5"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "mos: 5 rows explained, spread evenly over 30"
    for words in ("mean |share|", "which rules decided", "clipped to the target's limits"):
        assert words in out
