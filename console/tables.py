"""Lists for people: on a terminal a table with a head, aligned and coloured; anywhere else plain lines.

What a script reads must not change with the width of a window, so a pipe never gets a table; JSON has all of it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.rounds import count, missed

COLOURS = {
    "finished": "green",
    "failed": "red",
    "cancelled": "yellow",
    "suspended": "yellow",
    "damaged": "red",
    "complete": "green",
    "partial": "yellow",
    "missed": "red",
    "valid": "green",
    "current": "green",
    "revoked": "red",
    "expired": "red",
    "up": "green",
    "down": "red",
}
"""Colours of words that say how something ended; a word that goes on ("learning") has that of `GOING_ON`."""

GOING_ON = "cyan"


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    head : str
    right : bool
        Its cells are numbers.
    outcome : bool
        Its cells say how something ended, and are coloured so.
    least : int
        Terminals that are narrower do without it.
    whole : bool
        Its cells are not broken into lines.
    """

    head: str
    right: bool = False
    outcome: bool = False
    least: int = 0
    whole: bool = False


def is_terminal() -> bool:
    """Whether stdout is a terminal on which tables can be drawn."""
    lively = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return lively and importlib.util.find_spec("rich") is not None


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> None:
    """Draw a table on the terminal that stdout is, as wide as it needs and no wider than the terminal.

    Parameters
    ----------
    columns : sequence of Column
    rows : iterable of sequence of str
        As many cells as there are columns. Whatever they hold is shown as text.
    notes : iterable of str
        Lines for below it.
    """
    from rich.console import Console  # only on a terminal
    from rich.table import Table
    from rich.text import Text

    plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, **plain)  # type: ignore[arg-type]
    shown = [number for number, column in enumerate(columns) if column.least <= console.width]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", collapse_padding=True)
    for number in shown:
        column = columns[number]
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            no_wrap=column.right or column.whole,
            overflow="ellipsis" if column.right or column.whole else "fold",
        )
    for row in rows:
        cells = []
        for number in shown:
            text = printable(row[number])
            word = text.partition(" ")[0]
            colour = COLOURS.get(word, GOING_ON) if columns[number].outcome and word not in {"", "-"} else ""
            cells.append(Text(text, style=colour))
        table.add_row(*cells)
    console.print(table)
    for note in notes:
        console.print(Text(printable(note)), soft_wrap=False)


def printable(text: str) -> str:
    """Return a text without what would move the cursor or change colours."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


RUNS = (
    Column("run"),
    Column("scheme", least=60, whole=True),
    Column("outcome", outcome=True, whole=True),
    Column("rounds", right=True, least=50),
    Column("started (UTC)", least=72, whole=True),
    Column("took", right=True, least=88),
    Column("model"),
)


def show_runs(runs: Sequence[dict[str, Any]]) -> None:
    """Draw the list of runs; below it why those that have a reason ended, or wait."""
    rows = []
    for item in runs:
        model = item.get("model")
        rounds = item.get("rounds_closed")
        rows.append(
            (
                str(item.get("run")),
                str(item.get("scheme", "")),
                str(item.get("outcome") or item.get("phase") or item.get("state") or "?"),
                "-" if rounds is None else str(rounds),
                _moment(item.get("started")),
                _took(item.get("started"), item.get("ended")),
                f"{model['name']} v{model['version']}" if model else "-",
            )
        )
    show_table(RUNS, rows, [f"{item.get('run')}: {item['reason']}" for item in runs if item.get("reason")])


MODELS = (
    Column("model"),
    Column("version", right=True),
    Column("", outcome=True, whole=True),
    Column("scheme", least=50, whole=True),
    Column("vehicles", right=True, least=60),
    Column("created (UTC)", least=78, whole=True),
    Column("digest", least=94, whole=True),
    Column("run", least=116),
)


def show_models(models: Sequence[dict[str, Any]]) -> None:
    """Draw the list of published models."""
    rows = [
        (
            str(row["name"]),
            str(row["version"]),
            "current" if row["current"] else "candidate" if row["standing"] else "",
            str(row["scheme"]),
            str(row["cohort"]),
            _moment(row["created"]),
            str(row["digest"])[:12],
            str(row["run"]),
        )
        for row in models
    ]
    waiting = [row for row in models if row["standing"] and not row["current"]]
    stands = [f"{row['name']} v{row['version']}: {row['standing']}" for row in waiting]
    show_table(MODELS, rows, stands)


WIDE = 96
"""Columns of a terminal from which on the rounds' table says who did not count; narrower ones are told below it."""

ROUNDS = (
    Column("phase", least=50, whole=True),
    Column("round", right=True),
    Column("kind", least=64, whole=True),
    Column("asked", right=True),
    Column("accepted", right=True),
    Column("late", right=True, least=56),
    Column("dropped", right=True),
    Column("took", right=True, least=72),
    Column("who did not count", least=WIDE),
)


def show_rounds(rounds: Sequence[dict[str, Any]]) -> None:
    """Draw the rounds of a run; who did not count, and why, stands below where it has no room in it."""
    rows, below = [], []
    for item in rounds:
        why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted(missed(item).items()))
        attempt = int(item.get("attempt", 1))
        rows.append(
            (
                str(item.get("phase", "")),
                f"{item.get('number', '?')}" + (f" (attempt {attempt})" if attempt > 1 else ""),
                str(item.get("kind", "")),
                *(str(count(item, name)) for name in ("asked", "accepted", "late", "dropped")),
                f"{float(item.get('seconds', 0.0)):.2f} s",
                why,
            )
        )
        if why:
            below.append(f"{item.get('phase', '')} {item.get('number', '?')}: {why}")
    show_table(ROUNDS, rows, below if shutil.get_terminal_size().columns < WIDE else ())


CERTIFICATES = (
    Column("role", whole=True),
    Column("id"),
    Column("state", outcome=True),
    Column("until", least=50, whole=True),
    Column("serial", least=80),
)


def times(run: dict[str, Any]) -> str:
    """Return when a run was started, and how long it took if it has ended."""
    took = f", took {_took(run.get('started'), run.get('ended'))}" if run.get("ended") else ""
    return printable(f"started {_moment(run.get('started'))}{took}")


def _moment(text: Any) -> str:
    """Return an ISO time to the second, as people read it; times of this software are UTC."""
    if not text:
        return "-"
    try:
        return f"{datetime.fromisoformat(str(text)):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return str(text)


def _took(started: Any, ended: Any) -> str:
    try:
        seconds = (datetime.fromisoformat(str(ended)) - datetime.fromisoformat(str(started))).total_seconds()
    except (ValueError, TypeError):
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
