"""How far long work is: bars on a real terminal, lines in a pipe, nothing when quiet; stdout is for the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.progress import SILENCE, Work
from tests.support.processes import on_terminal

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
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "fetching: the second, 1 of 4\na line\n"


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


def test_json_is_alone_on_stdout_when_a_bar_is_drawn(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b,y\n" + "".join(f"{row % 13},{row % 7},{row % 5 + row % 13}\n" for row in range(120)))
    command = [
        "experiment",
        *["--folds", "2", "--clients", "2", "--jobs", "1", "--settings", "central", "--json", "--csv"],
        str(rows),
    ]
    with (tmp_path / "out").open("wb") as out:
        code, sent = on_terminal(command, out=out.fileno())
    assert code == 0
    assert json.loads((tmp_path / "out").read_text())["rows"] == 120
    assert "2/2" in CONTROL.sub("", sent)
    with (tmp_path / "out").open("wb") as out:
        assert on_terminal([*command, "--quiet"], out=out.fileno()) == (0, "")
