"""``glassfleet model history|promote|rollback`` and ``glassfleet rollout``: what they read and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.run.runspec import plan_of
from coordinator.models.rollout.table import TABLE
from coordinator.specification.rollout import RolloutPlan
from schemas.errors import GlassfleetError, UsageError

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
