"""``glassfleet model history|promote|rollback`` and ``glassfleet rollout``: what they read and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.model.versions import _line_of_decision
from console.run.gate import rollout_lines
from console.run.runspec import plan_of
from coordinator.models.rollout.table import TABLE
from coordinator.specification.rollout import RolloutPlan
from schemas.errors import GlassfleetError, UsageError
from schemas.trial import ALL

ROOT = Path(__file__).resolve().parents[3]
STAGE = {"share": 0.2, "asked": ["a", "b"], "reported": 1, "cannot": 1, "opened": 1.0, "closed": None, "verdict": ""}


def rollout(**changes: Any) -> dict[str, Any]:
    told = {
        "rollout": "rollout-1",
        "model": "qoe",
        "version": 3,
        "champion": 2,
        "phase": "trying",
        "reason": "",
        "plan": {"stages": [0.2, 1.0]},
        "needed": 1,
        "awaited": 0,
        "remaining": 61.4,
        "stages": [STAGE],
        "cannot": {"b": "no test rows"},
    }
    return {**told, **changes}


def test_rollout_lines_say_who_was_asked_who_reported_who_cannot_and_what_it_waits_for() -> None:
    assert rollout_lines(rollout()) == [
        "rollout-1  qoe v3 beside v2  trying",
        "  stage 1 of 2  20%  asked 2, reported 1, 1 cannot  open, 1 needed, 0 still awaited, 61 s left",
        "  cannot score it: b (no test rows)",
    ]
    many = rollout(cannot={f"v{number}": "no test rows" for number in range(8)})
    assert rollout_lines(many)[-1] == "  cannot score it: v0, v1, v2, v3, v4 and 3 more (no test rows)"
    opening = rollout(phase="opening", stages=[], cannot={}, needed=None, awaited=None)
    assert rollout_lines(opening)[1:] == ["  stage 1 of 2  waits for vehicles that are up"]


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        ({"kind": "current", "version": 2, "cause": "published"}, "v2 current (published)"),
        (
            {"kind": "current", "version": 1, "cause": "rolled-back", "reason": "tunnels"},
            "v1 current (rolled-back: tunnels)",
        ),
        ({"kind": "candidate", "version": 3, "trial": {"below": ALL // 5}}, "v3 tried by a part of the fleet"),
        ({"kind": "candidate", "version": 3, "trial": {"below": ALL}}, "v3 tried by all of the fleet"),
        ({"kind": "no-candidate", "reason": "by an operator"}, "candidate withdrawn: by an operator"),
        ({"kind": "rollout.started", "version": 3, "champion": 2}, "rollout of v3 beside v2 started"),
        ({"kind": "rollout.pause", "reason": "roadworks"}, "rollout paused: roadworks"),
        ({"kind": "rollout.resume"}, "rollout resumed"),
        ({"kind": "rollout.stop"}, "rollout stopped"),
        ({"kind": "rollout.superseded"}, "rollout superseded"),
    ],
)
def test_history_tells_a_decision_in_one_line(decision: dict[str, Any], line: str) -> None:
    assert _line_of_decision({"wall": 1.8e9, **decision}) == f"2027-01-15T08:00:00+00:00  {line}"


@pytest.mark.parametrize("kind", ["rollout.reported", "rollout.cannot", "rollout.tick", "rollout.opened"])
def test_history_leaves_out_what_changes_nothing_for_a_reader(kind: str) -> None:
    assert not _line_of_decision({"wall": 1.8e9, "kind": kind})


def test_plan_is_a_share_or_a_file_and_refused_when_it_is_neither_or_cannot_be_meant(tmp_path: Path) -> None:
    shares = {"0.2": [0.2, 0.5, 1.0], "0.5": [0.5, 1.0], "1": [1.0]}
    assert {text: plan_of(text)["stages"] for text in shares} == shares
    (tmp_path / "plan.json").write_text('{"stages": [0.1, 1.0], "deadline": 60}')
    (tmp_path / "plan.toml").write_text("stages = [0.1, 1.0]\ndeadline = 60\n")
    told = [RolloutPlan.from_document(plan_of(str(tmp_path / f"plan.{kind}"))) for kind in ("json", "toml")]
    assert told == [RolloutPlan(stages=(0.1, 1.0), deadline=60.0)] * 2
    with pytest.raises(GlassfleetError, match="missing"):
        plan_of(str(tmp_path / "missing.json"))
    (tmp_path / "plan.json").write_text("[0.1]")
    with pytest.raises(UsageError, match="JSON object"):
        plan_of(str(tmp_path / "plan.json"))
    for name, value in {"stages": [0.5, 0.2], "min_reports": 1.5, "deadline": 0, "patience": 1}.items():
        with pytest.raises(UsageError, match=name):
            RolloutPlan.from_document({name: value})


def test_page_shows_the_transition_table_of_the_code() -> None:
    assert TABLE.as_markdown() in (ROOT / "docs" / "explanation" / "model-registry.md").read_text(encoding="utf-8")
