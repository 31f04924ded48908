"""What is seen of a demonstration while it runs: a live display on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import click

from lab.demo.view import PHASES, Scene, Step, draw, growth
from schemas.rounds import count, missed

ROLL_CALL = 2.0
"""Seconds between two plain lines about how many vehicles are up."""


def fitted(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield `lines`; those longer than `width` are broken between words and go on indented."""
    for line in lines:
        if len(line) <= width:
            yield line
            continue
        indent = " " * min(width // 2, len(line) - len(line.lstrip()) + 4)
        yield from textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            # Spaces inside a line are a table's.
            drop_whitespace=True,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )


def for_terminal(lines: Iterable[str], *, err: bool) -> Iterator[str]:
    """Yield `lines` as they fit the terminal, if stdout (or, with `err`, stderr) is one; else as they are."""
    stream = sys.stderr if err else sys.stdout
    return fitted(lines, shutil.get_terminal_size().columns) if stream.isatty() else iter(lines)


def round_line(item: Mapping[str, Any], *, final: bool) -> str:
    """Return one round in one line; the answers that came late are known in the end only."""
    item = item if final else {**item, "late_agents": ()}
    why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted(missed(item).items()))
    attempt = f" (attempt {item['attempt']})" if item["attempt"] > 1 else ""
    counts = f"asked {item['asked']:>2}  accepted {item['accepted']:>2}  dropped {count(item, 'dropped'):>2}"
    if final:
        counts += f"  late {item['late']:>2}"
    where = f"{item['phase']:<10} {item['number']:>3} {item['kind']:<9}"
    return f"  {where} {counts}  {float(item['seconds']):6.2f} s{attempt}" + (f"  [{why}]" if why else "")


class News:
    """What is new in a run since the last look, in lines."""

    def __init__(self) -> None:
        self._rounds = 0
        self._late: set[tuple[int, str]] = set()
        self._phase = ""

    def of(self, status: Mapping[str, Any]) -> Iterator[str | int]:
        """Yield rounds that have closed, by their position; and, in words, answers too late and phases begun."""
        for index, item in enumerate(status["rounds"]):
            if index >= self._rounds:
                self._rounds += 1
                yield index
            for agent in item.get("late_agents") or ():
                if (index, agent) not in self._late:
                    self._late.add((index, agent))
                    yield f"{agent} answers {item['phase']} {item['number']} too late: told so, and not counted"
        if status["phase"] != self._phase:
            self._phase = status["phase"]
            # Who is waited for was said already.
            if self._phase in PHASES and self._phase != "gathering":
                yield PHASES[self._phase]


class Lines:
    """Plain lines: each event, each round as it closes, what has grown by then."""

    def __init__(self) -> None:
        self._news = News()
        self._up = 0
        self._counted_at = time.monotonic()

    def say(self, line: str) -> None:
        """Print one line."""
        click.echo("\n".join(for_terminal([line], err=True)), err=True)

    def step(self, line: str) -> None:
        """Print what is done next."""
        self.say(line)

    def serve(self, address: str) -> None:
        """Print where the dashboard is."""
        self.say(f"dashboard: {address}")

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Print what is new."""
        up = sum(how != "starting" for how in vehicles.values())
        if up > self._up and (up == len(vehicles) or time.monotonic() - self._counted_at >= ROLL_CALL):
            self._up, self._counted_at = up, time.monotonic()
            self.say(f"vehicles up: {up} of {len(vehicles)}")
        for piece in self._news.of(status):
            if isinstance(piece, int):
                grown = growth(status)
                self.say(round_line(status["rounds"][piece], final=False) + (f"  ({grown})" if grown else ""))
            else:
                self.say(piece)

    def stop(self) -> None:
        """Do nothing: what was printed stays."""


class Live:
    """A screen that redraws itself in place: vehicles, rounds, the model as it grows, the last events.

    When it stops, the terminal shows again what it showed before, and below it all that happened, as plain lines.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self.console = Console(stderr=True, highlight=False, emoji=False)
        self._news = News()
        self._lines: list[str | int] = []
        self._scene = Scene(time.monotonic(), ascii_only=self.console.options.ascii_only)
        self._opened: Any = None
        self._is_on = False
        # Last: it draws at once.
        self._live = RichLive(
            console=self.console, get_renderable=self.draw, refresh_per_second=8, screen=True, transient=True
        )

    def start(self) -> None:
        """Begin to draw."""
        self._is_on = True
        self._live.start()

    def stop(self) -> None:
        """Take the display away, and leave what happened on the screen as plain text. Idempotent."""
        if not self._is_on:
            return
        self._is_on = False
        self._live.stop()
        rounds = self._scene.status.get("rounds", ())
        lines = [round_line(rounds[each], final=True) if isinstance(each, int) else each for each in self._lines]
        for line in fitted(lines, self.console.width):
            click.echo(line, err=True)

    def step(self, line: str) -> None:
        """Take what is done next."""
        self._end_step()
        self._scene.steps.append(Step(line, time.monotonic()))
        self._lines.append(line)

    def serve(self, address: str) -> None:
        """Take the dashboard's address."""
        self._scene.address = address
        self._lines.append(f"dashboard: {address}")  # it stands in the first line, all the time

    def say(self, line: str) -> None:
        """Take one line."""
        self._lines.append(line)
        self._scene.events.append(line)
        if not self._is_on:
            click.echo("\n".join(for_terminal([line], err=True)), err=True)

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Take the run as it stands."""
        scene, current = self._scene, status.get("open")
        key = current and (current["phase"], current["number"], current["attempt"])
        if key != self._opened:
            self._opened, scene.opened = key, time.monotonic()
        if status["phase"] != "gathering":
            self._end_step()
        news = list(self._news.of(status))
        self._lines += news
        scene.events += [each for each in news if isinstance(each, str)]
        scene.status, scene.vehicles = status, vehicles

    def draw(self) -> Any:
        """Return the screen as it is now."""
        return draw(self._scene, self.console, time.monotonic())

    def _end_step(self) -> None:
        if self._scene.steps and self._scene.steps[-1].ended is None:
            self._scene.steps[-1].ended = time.monotonic()


Watcher: TypeAlias = Lines | Live
"""Who looks on."""


@contextmanager
def watching() -> Iterator[Watcher]:
    """Give the display that fits: live on a terminal, else lines."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Lines()
        return
    live = Live()
    live.start()
    try:
        yield live
    finally:
        live.stop()
