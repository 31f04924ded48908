"""The page of what a run gave away: a report that was saved beside the journal, and what can be told without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coordinator.config import load_config
from coordinator.http.dashboard import show
from coordinator.http.dashboard.pages import Dashboard
from coordinator.journal import MemoryJournal
from coordinator.main import build
from glassfleet.audit.saved import place_of

LINE = {
    "protection": "private", "seen": "each group", "attack": "spans", "read": 30, "parts": 2, "rows": 120, "false": 4,
    "chance": 0, "owners": {"vehicle-01": [1, 2]},
}  # fmt: skip
REPORT: dict[str, Any] = {
    "run": "r1", "scheme": "fmt", "vehicles": 9, "rows": 120, "lines": [LINE],
    "models": [{"protection": "private", "auc": 0.51, "met": 0.0, "met_others": 0.0, "rows": 120, "others": 30}],
}  # fmt: skip


def dashboard_of(folder: Path) -> Dashboard:
    return Dashboard(build(load_config(state_dir=folder), journal=MemoryJournal()), "token")


def save(folder: Path, text: str) -> None:
    path = folder / place_of("r1")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_report_that_was_saved_is_shown_without_names_of_vehicles(tmp_path: Path) -> None:
    dashboard = dashboard_of(tmp_path)
    assert dashboard._leakage_report("r1") == (None, "")
    save(tmp_path, json.dumps(REPORT))
    found, fault = dashboard._leakage_report("r1")
    assert fault == ""
    assert found is not None
    assert found["lines"][0]["read"] == 30
    assert "vehicle-01" not in json.dumps(found)


def test_questions_are_told_by_kind_and_whom_each_sum_is_over() -> None:
    rounds = [
        {"phase": "pairing", "kind": "keys", "bytes": 9},
        {"phase": "domain", "kind": "counts", "bytes": 10},
        {"phase": "statistics", "kind": "level", "bytes": 20},
        {"phase": "statistics", "kind": "level", "bytes": 30},
    ]
    plain = show.opened({"rounds": rounds, "spec": {}})
    assert [(each["what"], each["questions"], each["over"], each["bytes"]) for each in plain] == [
        ("limits of the columns", 1, "one vehicle", 10), ("level", 2, "one vehicle", 50),
    ]  # fmt: skip
    private = show.opened({"rounds": rounds, "spec": {"private": {"floor": 8, "company": 3}}})
    assert {each["over"] for each in private} == {"8 or more vehicles"}
