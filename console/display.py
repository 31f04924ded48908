"""What is seen of a demonstration while it runs: a live display on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from console.runs import line_of_round

ROUND_LINES, SAID_LINES = 8, 5
"""How much of each is on the screen; the model gets what is left."""


class Lines:
    """Plain lines: each event, each round as it closes, the tree when it has grown."""

    def __init__(self) -> None:
        self._rounds = 0
        self._phase = ""

    def say(self, line: str) -> None:
        """Print one line."""
        click.echo(line, err=True)

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Print what is new."""
        del vehicles  # its changes are said one by one
        for item in status["rounds"][self._rounds :]:
            self._rounds += 1
            self.say(line_of_round(item) + growth(status))
        if status["phase"] != self._phase:
            self._phase = status["phase"]
            if self._phase in PHASES:
                self.say(PHASES[self._phase])


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


class Live:
    """A display that redraws itself: vehicles, rounds, events, the model as it grows."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.live import Live as RichLive  # noqa: PLC0415

        self._console = Console(stderr=True)
        self._live = RichLive(console=self._console, refresh_per_second=8, transient=True)
        self._said: list[str] = []
        self._status: Mapping[str, Any] = {}
        self._vehicles: Mapping[str, str] = {}

    def start(self) -> None:
        """Begin to draw."""
        self._live.start()

    def stop(self) -> None:
        """Leave the last state of the rounds and events on the screen as plain text."""
        self._live.stop()
        for line in self._said:
            self._console.print(line, highlight=False, markup=False)
        for item in self._status.get("rounds", []):
            self._console.print(line_of_round(item), highlight=False, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Take one line."""
        self._said.append(line)
        self._draw()

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Take the run as it stands."""
        self._status, self._vehicles = status, vehicles
        self._draw()

    def _draw(self) -> None:
        from rich.columns import Columns  # noqa: PLC0415
        from rich.console import Group  # noqa: PLC0415
        from rich.panel import Panel  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        status = self._status
        parts: list[Any] = []
        if self._vehicles:
            agents = status.get("agents") or {}
            parts.append(Columns([_vehicle(name, word, agents.get(name)) for name, word in self._vehicles.items()]))
        if status:
            rounds = [Text(line_of_round(item), no_wrap=True) for item in status["rounds"][-ROUND_LINES:]]
            current = status.get("open")
            if current:
                rounds.append(
                    Text(
                        f"  {current['phase']:<10} {current['number']:>3}  {current['kind']:<8} open: "
                        f"{current['accepted']} of {current['asked']} have answered",
                        style="bold",
                    )
                )
            title = PHASES.get(status["phase"], status["phase"])
            parts.append(Panel(Group(*rounds), title=title, title_align="left"))
            lines = (status.get("progress") or {}).get("lines") or []
            if lines:
                # What the other parts leave of the screen: vehicles in columns, rounds, events, frames.
                room = self._console.height - len(rounds) - SAID_LINES - 5 - len(self._vehicles) // 2
                tree = Text("\n".join(str(line) for line in lines[: max(3, room)]), no_wrap=True)
                parts.append(Panel(tree, title=f"the model as it grows{growth(status)}", title_align="left"))
        parts.append(Text("\n".join(self._said[-SAID_LINES:]), style="dim"))
        self._live.update(Group(*parts))


@contextmanager
def watching(*, plain: bool = False) -> Iterator[Lines | Live]:
    """Give the display that fits: live on a terminal, else (or when `plain`) lines."""
    if plain or not sys.stderr.isatty():
        yield Lines()
        return
    live = Live()
    live.start()
    try:
        yield live
    finally:
        live.stop()


_STYLES = {
    "member": "green",
    "answered": "green",
    "asked": "yellow",
    "dropped": "red",
    "lost": "red",
    "idle": "dim",
}


def _vehicle(name: str, word: str, agent: Mapping[str, str] | None) -> Any:
    from rich.text import Text  # noqa: PLC0415

    status = agent["status"] if agent else "starting"
    reason = f": {agent['reason']}" if agent and agent["reason"] else ""
    shown = status if word == "up" else f"{word}, {status}"
    return Text(f"{name} {shown}{reason}"[:48], style=_STYLES.get(status, "dim"))
