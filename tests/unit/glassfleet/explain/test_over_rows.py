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


def test_summary_spreads_its_rows_evenly_over_a_long_file() -> None:
    learned, X = sample_models.model("frbc"), sample_models.rows(101)
    steps: list[None] = []
    told = over_rows(learned, X, 11, lambda: steps.append(None))
    assert (told["rows"], told["explained"], len(steps)) == (101, 11, 11)
    chosen = learned.predict(X[::10]).tolist()
    assert told["forecasts"] == dict(Counter(chosen))
    assert "spread evenly over 101" in over_rows_lines(told)[0]
    assert over_rows(learned, X[:0], 11)["explained"] == 0


def test_summary_of_a_population_says_what_it_is_and_shares_nothing_out() -> None:
    told = over_rows(sample_models.population(), sample_models.rows(20), 10)
    assert (told["nature"], told["inputs"], told["rules"]) == ("structures", [], [])
    said = " ".join(over_rows_lines(told))
    assert "glassfleet explain --at last" in said
    assert "which rules" not in said


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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--summary", "--row", "1"], "--row is about one row, and --summary about all"),
        (["--summary", "--goal", ">1"], "--goal is about one row"),
        (["--summary", "--max-inputs", "2"], "--max-inputs is about one row"),
        (["--rows", "5"], "--rows is for --summary"),
    ],
)
def test_command_refuses_what_is_about_one_row_beside_all(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert run(["model", "explain", "--file", files[0], "--data", files[1], *more]) == 2
    assert said in capsys.readouterr().err
