"""How far long work is: bars on a real terminal, lines in a pipe, nothing when quiet; stdout is for the result."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from console.progress import SILENCE, Work, progress
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
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "fetching: the second, 1 of 4\na line\n"


@pytest.mark.parametrize(
    ("total", "unit", "done", "words"),
    [
        (None, "steps", None, "w"),
        (None, "steps", 3, "w: 3"),
        (None, "bytes", 2.5e6, "w: 2.5 MB"),
        (5e6, "bytes", 2.5e6, "w: 2.5 MB of 5.0 MB"),
        (7, "steps", 3, "w: 3 of 7"),
    ],
)
def test_work_names_what_is_known_when_it_is_told_in_lines(total, unit, done, words, capsys):
    work = Work("w", total, unit, silence=0.0)
    work.at(done)
    assert capsys.readouterr().err == f"{words}\n"


def test_service_is_silent_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("collecting", silence=float("inf")) as work:
        for count in range(3):
            work.at(count)
    assert capsys.readouterr() == ("", "")


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


def test_result_goes_to_the_file_and_the_bar_to_the_terminal_when_stdout_is_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        code, sent = on_terminal(["-c", SHOWING.format(total=3)], out=out.fileno())
    assert code == 0
    assert (tmp_path / "out").read_text() == "a result\n"
    assert "2/3" in CONTROL.sub("", sent)
    assert screen(sent).splitlines() == ["1 is done", "2 is done"]


def test_terminal_that_can_only_write_gets_lines() -> None:
    code, sent = on_terminal(["-c", SHOWING.format(total=3)], TERM="dumb")
    assert (code, sent.splitlines()) == (0, ["a result", "1 is done", "2 is done"])


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


@pytest.fixture
def slow_server() -> Iterator[str]:
    """A server that sends a table, which is no known dataset, in pieces."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(8 * 65536))
            self.end_headers()
            for _ in range(8):
                self.wfile.write(b"1.0,2.0,3.0,45\n" * 4369 + b"\n")
                time.sleep(0.15)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as address:
        yield f"{address}/table.csv"


def test_fetching_shows_bytes_and_what_is_left_and_then_the_fault(slow_server: str, tmp_path: Path) -> None:
    code, sent = on_terminal(["datasets", "fetch", "mortgage", "--url", slow_server, "--data-dir", str(tmp_path)])
    assert code in (3, 8)
    plain = CONTROL.sub("", sent)
    assert "fetching mortgage" in plain
    assert re.search(r"\d+(\.\d)?/524\.3 kB", plain)
    (line,) = [line for line in screen(sent).splitlines() if line.strip()]
    assert line.startswith("glassfleet: error: ")


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
