"""What a person sees on a real terminal, and in a pipe: how far long work is, lists, colours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from console.main import run
from console.progress import SILENCE, Work
from tests.support.processes import on_terminal, serving

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


def screen(sent: str) -> str:
    """What is left to read on the terminal: carriage returns and erased lines are undone, bars of one line only."""
    lines = [""]
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", sent):
        if token == "\n":
            lines.append("")
        elif token == "\x1b[2K":
            lines[-1] = ""
        elif token == "\x1b[1A":
            lines.pop()
        elif token == "\r" or token.startswith("\x1b"):
            continue
        else:
            lines[-1] += token
    return "\n".join(lines)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_work_tells_in_lines_how_far_it_is_when_it_was_silent_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    work = Work("fetching", 4, clock=clock)
    work()
    clock.now = SILENCE
    work.at(doing="the second")
    work("a line")
    clock.now += SILENCE - 0.1
    work()
    result = capsys.readouterr()
    assert result.out == ""
    assert result.err == "fetching: the second, 1 of 4\na line\n"


SHOWING = """
import sys, time
from console.progress import progress
with progress('counting', {total}) as work:
    for number in range(3):
        work.at(doing=f'number {{number}}')
        time.sleep(0.4)
        work(f'{{number}} is done') if number else (work.say('a result', out=True), work())
"""


@pytest.mark.parametrize("total", [3, None])
def test_bar_is_drawn_and_taken_away_and_lines_stay_when_on_a_terminal(total: int | None) -> None:
    code, sent = on_terminal(["-c", SHOWING.format(total=total)])
    assert code == 0
    plain = CONTROL.sub("", sent)
    assert "counting  number 2" in plain
    assert ("2/3" in plain) is (total is not None)
    assert "0:00:0" in plain
    assert screen(sent).splitlines() == ["a result", "1 is done", "2 is done"]
    assert sent.rindex(SHOWN) > sent.rindex(HIDDEN)


INTERRUPTED = """
import os, signal, time
from console.progress import progress
try:
    with progress('waiting'):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
except KeyboardInterrupt:
    print('interrupted')
"""


def test_bar_is_taken_away_when_the_work_is_interrupted() -> None:
    code, sent = on_terminal(["-c", INTERRUPTED])
    assert code == 0
    assert "waiting" in CONTROL.sub("", sent)
    assert screen(sent).strip() == "interrupted"


ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
LONG = "rain-in-the-tunnel-of-the-north-side-2026"
RUNS: list[dict[str, Any]] = [
    {
        "run": "monday",
        "scheme": "frt",
        "state": "ended",
        "outcome": "finished",
        "reason": "",
        "phase": "finished",
        "started": "2026-01-01T12:00:00.000+00:00",
        "ended": "2026-01-01T12:02:05.400+00:00",
        "rounds_closed": 14,
        "model": {"name": "trips", "version": 3, "digest": "0" * 64},
    },
    {
        "run": LONG,
        "scheme": "fedga",
        "state": "ended",
        "outcome": "failed",
        "reason": "not-enough-agents: [red]2[/red] of 3 \x1b[31mup",
        "phase": "failed",
        "started": "2026-01-02T08:00:00.000+00:00",
        "ended": "2026-01-02T08:00:09.400+00:00",
        "rounds_closed": 0,
        "model": None,
    },
]
ROUND = {"phase": "statistics", "number": 3, "attempt": 1, "kind": "level", "asked": 5, "accepted": 4, "late": 0}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        lost = {"dropped": 1, "seconds": 2.5, "dropped_agents": {"vehicle-01": "deadline"}}
        one = {**RUNS[0], "rounds": [{**ROUND, **lost}], "cohort": ["a"], "progress": None}
        known: dict[str, Any] = {"/api/runs": RUNS, "/api/rollouts/trips": []}
        body = json.dumps(known.get(self.path, one)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the address of a server that gives the answers of a coordinator."""
    with serving(Answers) as address:
        yield address


def shown(*arguments: str, columns: int = 120) -> str:
    """Return what a command prints on a terminal of so many columns."""
    code, sent = on_terminal([*arguments, "--quiet"], columns=columns)
    assert code == 0, sent
    return sent.replace("\r\n", "\n")


def test_runs_are_plain_lines_whatever_they_say_and_json_is_all_of_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "list", "--coordinator", url]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert (plain[0], len(plain)) == (
        f"monday  frt  finished  model trips v3 {'0' * 12}  started 2026-01-01 12:00:00, took 2 min 05 s",
        2,
    )
    assert plain[1].startswith(f"{LONG}  fedga  failed (not-enough-agents: [red]2[/red] of 3  [31mup)"), (
        "texts stay texts"
    )
    assert ESCAPE.sub("", shown("run", "list", "--coordinator", url)).splitlines() == plain
    assert run(["run", "show", "monday", "--coordinator", url]) == 0
    text = capsys.readouterr().out
    assert "dropped  1    2.50 s  [vehicle-01: deadline]" in text
    assert "in answers; receipts, seals and the model are not counted" in text
    assert run(["run", "list", "--coordinator", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == RUNS
    assert json.loads(ESCAPE.sub("", shown("run", "list", "--coordinator", url, "--json", columns=40))) == RUNS
