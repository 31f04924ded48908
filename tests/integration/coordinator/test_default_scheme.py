"""A run that names no scheme: numbers or classes, as the vehicles' target is; and why its model has so few rules."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.processes import Call, Processes, eventually


def vehicle(path: Path, seed: int, *, is_class: bool) -> Path:
    """Write rows of a straight line and some noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((300, 2))
    y = X @ [40.0, 20.0] + rng.normal(0.0, 3.0, 300)
    target = ["late" if each > 30.0 else "on time" for each in y] if is_class else y.tolist()
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["traffic", "load", "minutes"])
        table.writerows([*row, each] for row, each in zip(X.tolist(), target, strict=True))
    return path


@pytest.mark.parametrize(
    ("is_class", "says", "words"),
    [
        (False, "minutes = ", r"(a straight line was|no split said more than a straight line).*: error "),
        pytest.param(
            *(True, "minutes is mostly ", r"(one rule was|no split said more than one rule).*: Brier score "),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["number", "class"],
)
def test_run_without_a_scheme_learns_what_the_vehicles_have_and_says_why_rules_are_few(
    is_class: bool, says: str, words: str, processes: Processes, call: Call
) -> None:
    processes.start("broker", "--kind", "embedded", "--port", "0")
    eventually(lambda: processes.note("broker-url"))
    processes.start("coordinator", "--api-port", "0")
    eventually(processes.is_healthy)
    for number in (1, 2):
        data = vehicle(processes.folder / f"v{number}.csv", number, is_class=is_class)
        processes.start("agent", "--id", f"v{number}", "--data", str(data), *["--labels"] * is_class)
    learned = call("run", "start", "--run", "r1", "--exact", "--min-agents", "2", "--wait")
    assert learned.returncode == 0, learned.stderr
    page, rules = f"{processes.note('api-url')}/{{}}", call("model", "rules", "model")
    texts = [
        learned.stdout,
        call("run", "show", "r1").stdout,
        call("model", "show", "model").stdout,
        rules.stderr,
        httpx.get(page.format("runs/r1"), trust_env=False).text,
        httpx.get(page.format("models/model/1"), trust_env=False).text,
    ]
    assert [bool(re.search(words, text)) for text in texts] == [True] * len(texts)
    assert f"THEN {says}" in rules.stdout
    assert "its rules: glassfleet model rules model@1" in texts[1]
