"""What changed in a week: of a journal's decisions, runs and vehicles; the same on page, API, sheet and terminal."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from console.main import cli
from coordinator.duty import Look
from coordinator.http.dashboard.week import VersionChange, Week, week_of
from coordinator.journal.port import Decision
from coordinator.runs.view import suspended_document
from glassfleet.contract import catalogue
from schemas.messages import AgentState, Evaluation
from tests.support.coordinator_http import EVIL, publish, served, small_document

NOW = 2e9
DAY = 86400.0


def current(days_ago: float, version: int, cause: str = "published", reason: str = "") -> Decision:
    body = {"version": version, "cause": cause, "reason": reason}
    return Decision("m", "current", 0.0, NOW - days_ago * DAY, body)


def waits(days_ago: float, version: int) -> Decision:
    body = {"version": version, "reason": "4 % worse", "trial": {"below": 0}}
    return Decision("m", "candidate", 0.0, NOW - days_ago * DAY, body)


def compared(_name: str, before: int, after: int) -> VersionChange:
    verdict = f"3 % better than version {before}"
    return {"verdict": verdict, "new": [f"rule of {after}"], "gone": [], "changed": [], "kept": 2}


def moved(name: str, version: int) -> list[str]:
    return [f"rule 1 of {name} {version} has moved"]


def week(*decisions: Decision, runs: list[dict[str, Any]] | None = None) -> Week:
    nobody = Look({}, {}, {}, {})
    return week_of("f", NOW, decisions=decisions, runs=runs or [], look=nobody, compared=compared, moved=moved)


@pytest.mark.parametrize(
    ("decisions", "headline"),
    [
        (
            [current(9, 1), current(2, 2)],
            "Version 2 is in use, a week ago it was version 1: 3 % better than version 1.",
        ),
        ([current(9, 1)], "Version 1 is in use, as a week ago."),
        (
            [current(9, 1), waits(3, 2), waits(1, 3)],
            "Version 1 is in use, as a week ago; 2 new versions did not pass the gate.",
        ),
        ([current(9, 1), current(3, 2), current(1, 1, "returned")], "Version 1 is in use again, as a week ago."),
        ([current(3, 1)], "Version 1 is in use, the first."),
        ([current(3, 1), current(2, 2)], "Version 2 is in use, the first was version 1: 3 % better than version 1."),
        ([waits(1, 1)], "No version is in use; 1 new version did not pass the gate."),
    ],
)
def test_week_says_whether_a_model_is_better(decisions: list[Decision], headline: str) -> None:
    (model,) = week(*decisions)["models"]
    assert model["headline"] == headline


def test_week_lists_what_became_of_versions_and_nothing_older() -> None:
    (model,) = week(current(8, 1), current(6, 2), waits(5, 3), current(1, 1, "rolled-back", "it brakes too late"))[
        "models"
    ]
    assert [(turn["version"], turn["what"], turn["why"]) for turn in model["turns"]] == [
        (2, "became current", ""),
        (3, "stayed a candidate", "4 % worse"),
        (1, "became current again: a rollback", "it brakes too late"),
    ]


def test_week_says_what_has_moved_since_the_version_in_use_was_learned() -> None:
    assert week(current(8, 1), current(1, 2))["drift"] == ["m: rule 1 of m 2 has moved"]


def test_week_leaves_references_and_candidates_that_are_tried_out() -> None:
    tried = replace(waits(1, 2), body={"version": 2, "reason": "", "trial": {"below": 1000}})
    assert week(replace(current(1, 1), name="m.central"), tried)["models"] == []


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A fleet with two versions, a run that failed, and a vehicle that needs somebody."""
    with served(tmp_path_factory.mktemp("week")) as (service, client):
        core = service.coordinator
        for agent in ("v1", "v2"):
            core.fleet.up(agent, AgentState(status="up", incarnation="1", features=[EVIL[:60]], target="y"))
        now, registry = time.time(), core.registry
        for number, slope in enumerate((1.0, 0.5), start=1):
            model = catalogue.load("frt").from_document(small_document(slope))
            digest = publish(service, model, "m", ["v1"], run=f"r{number}").digest
            decision = registry.aliases.to_current("m", number, digest, "published", f"error -5 % {EVIL}")
            registry.decide([replace(decision, wall=now - (10 - 8 * (number - 1)) * DAY)])
            for agent, score in (("v1", 1.2), ("v2", 1.0)):
                scores: dict[str, Any] = {"metric": "rmse", "local": 2.0, "rows": 10, "federated": score - number / 10}
                core.fleet.evaluated(agent, Evaluation(name="m", version=number, digest=digest, **scores))
        rounds = [{"bytes": 3000, "accepted": 2, "request_bytes": 500}]
        for run, ago in (("old", 8 * DAY), ("late", DAY)):
            known = {"run": run, "spec": {"scheme": "frt", "model": "m"}, "started": now - ago - 60, "reason": ""}
            document = {**suspended_document(known, ended=now - ago), "outcome": "failed", "rounds": rounds}
            core.journal.close_run(run, {**document, "reason": f"no-model of {run} {EVIL}"}, 0.0)
        core.runs.__post_init__()
        core.fleet.down("v2", None)
        yield client


def test_week_is_the_same_on_page_api_and_sheet(there: httpx.Client, tmp_path: Path) -> None:
    known = there.get("/api/week").json()
    assert (known["runs"], known["bytes"], known["to_each"], known["from_each"]) == ({"failed": 1}, 3000, 500, 1500)
    (model,) = known["models"]
    where = ["--coordinator", str(there.base_url)]
    file = tmp_path / "week.html"
    assert CliRunner().invoke(cli, ["model", "week", "--out", str(file), *where]).exit_code == 0
    printed = CliRunner().invoke(cli, ["model", "week", *where]).output.replace("\\", "")
    assert json.loads(CliRunner().invoke(cli, ["model", "week", "--json", *where]).output)["models"] == known["models"]
    page, sheet = there.get("/week").text, file.read_text(encoding="utf-8")
    shown = [html.unescape(re.sub("<[^>]+>", "", text)).replace("−", "-") for text in (page, sheet)]
    change = model["change"]
    says = [model["headline"], *change["new"], *change["gone"], *change["changed"], known["vehicles"][0]["causes"][0]]
    assert "version 1 (2 vehicles measured both)" in model["headline"]
    assert change["new"] or change["changed"]
    for text in (*shown, printed):
        assert [each for each in says if each.replace("−", "-") not in text] == []
        assert "no-model of late" in text
        assert "no-model of old" not in text
    assert EVIL not in page + sheet
