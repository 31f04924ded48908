"""What is seen of a demonstration while it runs: a live display on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from console.runs import line_of_round

SAID_LINES = 3
"""How much of what was said stays on the screen; rounds and model share what is left."""

PHASES = {
    "gathering": "waiting for the vehicles",
    "domain": "finding the variables' limits, federatedly (histograms; no row leaves a vehicle)",
    "recruiting": "fixing the cohort: the vehicles that answer the first statistics round",
    "learning": "growing the model",
    "finished": "the run has finished",
}
"""Phases of a run in words."""

GROWN = ("nodes", "leaves", "rules", "depth")
"""Which numbers of a scheme's progress are worth a word beside each round."""


def growth(status: Mapping[str, Any]) -> str:
    """Return what has grown so far in a few numbers, or an empty text."""
    progress = status.get("progress") or {}
    numbers = [f"{value} {name}" for name, value in progress.items() if name in GROWN and value]
    return f"  ({', '.join(numbers)})" if numbers else ""


class News:
    """What is new in a run since the last look, in lines."""

    def __init__(self) -> None:
        self._rounds = 0
        self._late: set[tuple[int, str]] = set()
        self._phase = ""

    def of(self, status: Mapping[str, Any]) -> Iterator[str]:
        """Yield the rounds that have closed, the answers that came too late for one, and the phase that has begun."""
        for index, item in enumerate(status["rounds"]):
            if index >= self._rounds:
                self._rounds += 1
                # Those who are known to be late already are in the line itself.
                self._late |= {(index, agent) for agent in item.get("late_agents") or ()}
                yield line_of_round(item) + growth(status)
            for agent in item.get("late_agents") or ():
                if (index, agent) not in self._late:
                    self._late.add((index, agent))
                    yield f"{agent} answers {item['phase']} {item['number']} too late: told so, and not counted"
        if status["phase"] != self._phase:
            self._phase = status["phase"]
            if self._phase in PHASES:
                yield PHASES[self._phase]


class Lines:
    """Plain lines: each event, each round as it closes, what has grown by then."""

    def __init__(self) -> None:
        self._news = News()

    def say(self, line: str) -> None:
        """Print one line."""
        click.echo(line, err=True)

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Print what is new."""
        del vehicles  # its changes are said one by one
        for line in self._news.of(status):
            self.say(line)


class Live:
    """A display that redraws itself in place: vehicles, rounds, the model as it grows, the last events.

    Every part keeps its height, so that nothing jumps. When it stops, all that happened is left behind as plain lines.
    """

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.live import Live as RichLive  # noqa: PLC0415

        self._console = Console(stderr=True, highlight=False)
        self._news = News()
        self._said: list[str] = []
        self._status: Mapping[str, Any] = {}
        self._vehicles: Mapping[str, str] = {}
        self._opened: tuple[Any, float] = (None, 0.0)
        # Last: it draws at once.
        self._live = RichLive(console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True)

    def start(self) -> None:
        """Begin to draw."""
        self._live.start()

    def stop(self) -> None:
        """Take the display away, and leave what happened on the screen as plain text."""
        self._live.stop()
        for line in self._said:
            self._console.print(line, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Take one line."""
        self._said.append(line)

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Take the run as it stands."""
        current = status.get("open")
        key = current and (current["phase"], current["number"], current["attempt"])
        if key != self._opened[0]:
            self._opened = (key, time.monotonic())
        self._said.extend(self._news.of(status))
        self._status, self._vehicles = status, vehicles

    def _draw(self) -> Any:
        from rich.console import Group  # noqa: PLC0415

        width, height = self._console.size
        fleet = vehicle_rows(self._vehicles, self._status.get("agents") or {}, width)
        # The last line stays free: a terminal that scrolls there would make the picture jump.
        room = max(8, height - 2 - len(fleet) - SAID_LINES)
        rounds = max(3, min(9, room // 3))
        parts = [self._title(), *fleet]
        if self._status:
            parts += [*self._rounds(rounds), self._model(room - rounds)]
        said = [line for line in self._said if not line.startswith("  ")][-SAID_LINES:]
        parts += [_text(line, "dim") for line in said + [""] * (SAID_LINES - len(said))]
        return Group(*parts)

    def _title(self) -> Any:
        status = self._status
        phase = PHASES.get(status.get("phase", ""), "starting broker, coordinator and vehicles")
        scheme = f" {status['scheme']}" if status else ""
        return _text(f"glassfleet demo{scheme}: {phase}", "bold")

    def _rounds(self, lines: int) -> list[Any]:
        closed = self._status.get("rounds") or []
        drawn = [_text(short_round(item), "") for item in closed[-(lines - 1) :]]
        current = self._status.get("open")
        if current:
            left = current["closes_at"] - current["opened_at"] - (time.monotonic() - self._opened[1])
            drawn.append(_text(open_round(current, max(0.0, left)), "yellow"))
        return drawn + [_text("", "")] * (lines - len(drawn))

    def _model(self, lines: int) -> Any:
        from rich.panel import Panel  # noqa: PLC0415

        told = [str(line) for line in (self._status.get("progress") or {}).get("lines", [])]
        room = max(1, lines - 2)
        if len(told) > room:
            told = [*told[: room - 1], f"... and {len(told) - room + 1} lines more"]
        title = f"what is known so far{growth(self._status)}"
        return Panel(_text("\n".join(told), ""), title=title, title_align="left", height=room + 2, border_style="dim")


def short_round(item: Mapping[str, Any]) -> str:
    """Return a closed round in one short line: counts first, then who is missing."""
    late = set(item.get("late_agents") or ())
    gone = [f"{agent} too late" for agent in sorted(late)]
    gone += [
        f"{agent} silent" if reason == "deadline" else f"{agent} {reason}"
        for agent, reason in sorted((item.get("dropped_agents") or {}).items())
        if agent not in late
    ]
    return (
        f"{_round_name(item)} {item['accepted']:>3} of {item['asked']:<3} {item['seconds']:5.2f} s  {', '.join(gone)}"
    )


def open_round(current: Mapping[str, Any], left: float) -> str:
    """Return the open round in one short line, with the seconds that are left."""
    bar = "#" * current["accepted"] + "." * max(0, current["asked"] - current["accepted"])
    return f"{_round_name(current)} {current['accepted']:>3} of {current['asked']:<3} {left:5.2f} s left  {bar}"


def _round_name(item: Mapping[str, Any]) -> str:
    attempt = f"/{item['attempt']}" if item["attempt"] > 1 else ""
    return f"{item['phase']:<10} {item['number']:>3}{attempt:<3} {item['kind']:<9}"


_WORDS = {
    "member": ("in cohort", "green"),
    "answered": ("answered", "green"),
    "asked": ("asked", "yellow"),
    "late": ("too late", "magenta"),
    "dropped": ("silent", "red"),
    "lost": ("lost", "red"),
    "idle": ("up", "dim"),
}


def vehicle_word(condition: str, agent: Mapping[str, str] | None) -> tuple[str, str]:
    """Return what a vehicle does, in a few words, and the style to show it in.

    Parameters
    ----------
    condition : str
        What its process does: ``up``, ``slow``, ``killed`` or ``came back``.
    agent : mapping or None
        How the coordinator sees it: ``status`` and ``reason``.
    """
    word, style = _WORDS.get(agent["status"], (agent["status"], "")) if agent else ("starting", "dim")
    reason = agent["reason"] if agent and agent["status"] in ("dropped", "lost") else ""
    if reason and reason != "deadline":
        word = f"{word}: {reason}"
    if condition == "killed":
        return "killed", "bold red"
    if condition == "came back":
        return f"back, {word}", "cyan" if style != "green" else style
    if condition == "slow":
        return f"slow, {word}", style
    return word, style


def vehicle_rows(vehicles: Mapping[str, str], agents: Mapping[str, Mapping[str, str]], width: int) -> list[Any]:
    """Return the fleet as rows of text, as many vehicles beside each other as `width` holds."""
    from rich.text import Text  # noqa: PLC0415

    if not vehicles:
        return []
    name_width = min(20, max(len(name) for name in vehicles))
    cell = name_width + 18
    columns = max(1, width // cell)
    rows = []
    names = list(vehicles)
    count = -(-len(names) // columns)
    for row in range(count):
        line = Text(no_wrap=True, overflow="ellipsis")
        for name in names[row::count]:
            word, style = vehicle_word(vehicles[name], agents.get(name))
            line.append(f"{name[:name_width]:<{name_width}} ", "dim")
            line.append(f"{word[: cell - name_width - 2]:<{cell - name_width - 1}}", style)
        rows.append(line)
    return rows


def _text(line: str, style: str) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


@contextmanager
def watching(*, plain: bool = False) -> Iterator[Lines | Live]:
    """Give the display that fits: live on a terminal, else (or when `plain`) lines."""
    if plain or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Lines()
        return
    live = Live()
    live.start()
    try:
        yield live
    finally:
        live.stop()
