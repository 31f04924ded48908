"""What the demonstration shows at a terminal and in plain lines, and the text that stays."""

from __future__ import annotations

from typing import Any

import pytest

from lab.demo.display import Live, News
from lab.demo.view import short_round


def closed_round(**changes: Any) -> dict[str, Any]:
    return {
        "phase": "domain",
        "number": 1,
        "attempt": 1,
        "kind": "histogram",
        "asked": 3,
        "accepted": 2,
        "late": 0,
        "dropped": 1,
        "seconds": 2.5,
        "dropped_agents": {"v1": "deadline"},
        "late_agents": [],
        **changes,
    }


def running(rounds: int, vehicles: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "scheme": "frt",
        "participation": "cohort",
        "phase": "learning",
        "cohort": [],
        "rounds": [closed_round(number=number) for number in range(rounds)],
        "open": {**closed_round(number=rounds), "opened_at": 0.0, "closes_at": 2.5},
        "progress": {"nodes": rounds, "lines": ["x" * 200] * rounds * 9},
        "agents": {name: {"status": "member", "reason": ""} for name in vehicles},
        **changes,
    }


def test_closed_round_says_every_reason_first_and_counts_vehicles_when_their_names_do_not_fit() -> None:
    late, silent = [f"vehicle-{number:02d}" for number in (1, 4, 5)], dict.fromkeys(("vehicle-07", "v"), "deadline")
    item = closed_round(late=3, late_agents=late, dropped_agents={**dict.fromkeys(late, "deadline"), **silent})

    assert short_round(item, width=140).endswith(f"too late: {', '.join(late)}; silent: v, vehicle-07")
    assert short_round(item, width=100).endswith(" s  too late: 3; silent: 2")
    assert len(short_round(item, width=100)) <= 100


def test_news_tells_each_round_once_and_a_late_answer_when_it_comes() -> None:
    news = News()
    status = {"phase": "domain", "rounds": [closed_round()], "progress": {}}
    first, second = news.of(status)
    assert first == 0
    assert str(second).startswith("finding")
    assert list(news.of(status)) == []
    status["rounds"] = [closed_round(late=1, late_agents=["v1"])]
    assert list(news.of(status)) == ["v1 answers domain 1 too late: told so, and not counted"]
    assert list(news.of(status)) == []


@pytest.mark.parametrize("fleet", [1, 15, 200])
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (100, 40), (160, 50), (60, 20)])
def test_live_display_fits_the_terminal_and_keeps_its_height_while_a_model_grows(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int, fleet: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    live = Live()
    vehicles = {f"vehicle-{number:02d}": "up" for number in range(fleet)}
    heights = set()
    for rounds in range(12):
        live.say(f"event {rounds}")
        live.look(running(rounds, vehicles), vehicles)
        drawn = live._console.render_lines(live._draw(), pad=False)
        assert all(sum(part.cell_length for part in line) <= columns for line in drawn)
        heights.add(len(drawn))
    assert len(heights) == 1
    assert lines - 2 <= max(heights) <= lines
