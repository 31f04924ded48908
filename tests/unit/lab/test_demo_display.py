"""What the demonstration shows at a terminal and in plain lines, and the text that stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.demo.command import demo
from lab.demo.display import Lines, Live, News, fitted
from lab.demo.plan import Plan
from lab.demo.view import Scene, Step, draw, short_round, vehicle_word
from lab.demo.words import plan_words, staying_command


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


def test_plain_lines_tell_how_many_vehicles_are_up(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    status = {"phase": "gathering", "rounds": [], "progress": {}}
    lines.look(status, {"a": "starting", "b": "starting"})
    lines.look(status, {"a": "up", "b": "slow"})
    lines.look(status, {"a": "up", "b": "slow"})
    assert capsys.readouterr().err == "vehicles up: 2 of 2\n"


@pytest.mark.parametrize(
    ("condition", "status", "reason", "word"),
    [
        ("up", "member", "", "in cohort"),
        ("up", "dropped", "deadline", "silent"),
        ("up", "dropped", "refused: no column 'x'", "silent: refused: no column 'x'"),
        ("slow", "late", "answered domain 1 after its end", "too late"),
        ("slow", "asked", "", "slow, asked"),
        ("killed", "lost", "deadline", "killed"),
        ("came back", "member", "", "back, cohort"),
        ("starting", "idle", "", "starting"),
    ],
)
def test_display_says_what_a_vehicle_does_in_a_word(condition: str, status: str, reason: str, word: str) -> None:
    assert vehicle_word(condition, {"status": status, "reason": reason})[0] == word


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


def test_vehicles_to_whom_something_happens_are_shown_first_when_not_all_find_room() -> None:
    vehicles = {f"vehicle-{number:03d}": "up" for number in range(200)} | {"vehicle-199": "killed"}
    screen = "\n".join(line.plain for line in draw(Scene(80, 24, status=running(1, vehicles), vehicles=vehicles)))
    assert "vehicle-199 killed" in screen
    assert "1 killed" in screen


def test_terminal_without_signs_gets_plain_ones() -> None:
    vehicles = {"a": "up", "b": "killed", "c": "slow", "d": "came back"}
    steps = [Step("starting", 0.0)]
    for status in ({}, running(3, vehicles, progress={"lines": ["everything"]})):
        screen = draw(Scene(80, 24, steps=steps, status=status, vehicles=vehicles, ascii_only=True))
        assert all(line.plain.isascii() for line in screen)


def test_long_lines_are_broken_between_words_and_short_ones_left() -> None:
    table = "  a    b     c"
    long = "  statistics: " + "vehicle-01 " * 12
    first, *rest = fitted([table, long.rstrip()], 40)
    assert first == table
    assert len(rest) > 2
    assert all(len(line) <= 40 for line in rest)
    assert all(line.startswith("      ") for line in rest[1:])
    assert " ".join(" ".join(rest).split()) == " ".join(long.split())


@pytest.mark.parametrize(
    ("killed", "back", "slow", "words"),
    [
        (5, 3, 2, "5 will be killed, 3 of them come back, 2 are too slow"),
        (1, 1, 0, "1 will be killed and come back, none is too slow"),
        (1, 0, 0, "1 will be killed and stay away, none is too slow"),
        (2, 1, 0, "2 will be killed, 1 of them comes back, none is too slow"),
        (2, 0, 1, "2 will be killed, none of them comes back, 1 is too slow"),
        (0, 0, 0, "none will be killed, none is too slow"),
    ],
)
def test_plan_is_told_in_words_that_fit_its_numbers(killed: int, back: int, slow: int, words: str) -> None:
    kills = {f"v{number}": 2 for number in range(killed)}
    returns = dict(list(kills.items())[:back])
    assert plan_words(Plan(kills, returns, tuple(f"s{number}" for number in range(slow)))) == words


@pytest.mark.parametrize(
    ("given", "repeated"),
    [
        ([], "demo --stay"),
        (["--data", "our vans", "--drop", "0.25", "--slow", "0"], "demo --drop 0.25 --slow 0 --data 'our vans' --stay"),
        (["--memory", "--keep", "x", "--json", "--param", "a=1", "--param", "b=[2]"],
         "demo --memory --param a=1 --param 'b=[2]' --stay"),
    ],
)  # fmt: skip
def test_last_line_repeats_the_options_that_were_given(given: list[str], repeated: str) -> None:
    with demo.make_context("demo", given):
        assert staying_command() == f"glassfleet {repeated}"


def test_last_line_repeats_what_a_file_of_settings_gave(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text("drop = 0.25\nsecure = true\n")
    with demo.make_context("demo", ["--config", str(tmp_path / "demo.toml")]):
        assert staying_command() == "glassfleet demo --drop 0.25 --secure --stay"


def test_last_line_names_the_program_as_it_was_started_when_it_is_on_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/glassfleet", "demo"])
    with demo.make_context("demo", []):
        assert staying_command() == ".venv/bin/glassfleet demo --stay"
