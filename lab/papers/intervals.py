"""How often intervals hold: nine of ten, on clients that were left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.papers.jobs import Chapter, Job, Results
from lab.papers.page import Blocks, Cell, Table, Text
from lab.papers.sizes import FOLDS, PAPER, QOE, rows_of, sets

SCHEMES = ("tree", "frt")
VEHICLES = 3
"""Real ones; each is left out once."""

MUCH_USED = 1_000
"""Test rows of a rule from which on it is looked at by itself."""


def _label(name: str, scheme: str, left: int) -> str:
    return f"intervals: {name}, {scheme}, without client {left + 1}"


def _times(name: str) -> range:
    return range(VEHICLES if name == QOE else FOLDS)


def _jobs(data: Path, full: bool) -> list[Job]:  # noqa: ARG001 - the same either way
    jobs = []
    for name in sets(data):
        for scheme in SCHEMES:
            for left in _times(name):
                where, read = rows_of(name, left, data)
                arguments = {**where, "scheme": scheme, "parameters": {}, "left": left}
                jobs.append(Job("covered", _label(name, scheme, left), arguments, read))
    return jobs


def _line(name: str, scheme: str, results: list[Any]) -> list[Cell | str]:
    rows, counted = (sum(each[key] for each in results) for key in ("rows", "counted"))
    share = sum(each["within"] for each in results) / rows
    error = (0.09 / rows + 0.09 / counted) ** 0.5
    much_used = [
        within / new for each in results for own, new, within in each["rules"] if own >= MUCH_USED and new >= MUCH_USED
    ]
    return [
        f"{name}, {scheme}",
        f"{counted:,}",
        f"{rows:,}",
        f"{100 * share:.1f} %",
        f"{200 * error:.1f}",
        f"{sum(each['width'] / each['rmse'] for each in results) / len(results):.2f}",
        f"{100 * min(much_used):.1f} to {100 * max(much_used):.1f} % ({len(much_used)})" if much_used else "-",
    ]


def _section(results: Results, data: Path) -> Blocks:
    lines = [
        _line(name, scheme, [results[_label(name, scheme, left)] for left in _times(name)])
        for name in sets(data)
        for scheme in SCHEMES
    ]
    return [
        Text(
            "Each time one client is left out. The others learn from their training rows with the default "
            "parameters, and count their errors on their test rows; then all rows of the client that was left out "
            "are forecast. Nine of ten true values shall be within. Two standard errors count the rows on both "
            "sides; vehicles on the road differ from each other by more than chance. Widths are medians, beside "
            f"the root mean squared error there. Rules: those with at least {MUCH_USED:,} rows on both sides, and "
            "how many they are."
        ),
        Table(
            "Intervals on clients that were left out",
            [
                "set, scheme",
                "rows counted",
                "rows tried",
                "within",
                "two standard errors",
                "width / RMSE",
                "by rule",
            ],
            [list(line) for line in lines],
            counted=False,
        ),
    ]


CHAPTERS = (Chapter("intervals", PAPER, "How often the true value is within the interval", _jobs, _section),)
