"""Judges which column tells the time, how, and where rows stand in it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from edge_agent.imports import numbers, times
from edge_agent.imports.dialect import Dialect, split_unit
from edge_agent.imports.numbers import NumberMarks
from edge_agent.imports.plan import UNDECIDED, ClockPlan, ColumnPlan, Time
from glassfleet.data.timeplan import Input

SPLIT: Final = "split"
OWN: Final = 0.4
"""Share of empty cells from which a signal has times of its own."""


@dataclass
class TextRows:
    """Some of a text's rows."""

    names: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]
    head: int
    repeated: bool = False

    def place(self, name: str) -> int:
        """Return which column has a name, from 1."""
        return self.names.index(name) + 1

    def cells(self, index: int) -> list[str]:
        """Return the cells of a column."""
        return [row[index] for row in self.rows]


@dataclass(frozen=True)
class Ambiguity:
    """Something that cells do not tell: what it is, with its readings, and the line of the plan."""

    column: str
    what: str
    plan: str


def clock_of(given: TextRows, dialect: Dialect) -> tuple[ClockPlan | None, list[Ambiguity]]:
    """Return which column tells the time and how, and what of it is to decide."""
    found: list[tuple[int, ClockPlan, list[Ambiguity]]] = []
    clocks: list[str] = []
    dates: list[tuple[str, tuple[str, ...]]] = []
    for index, name in enumerate(given.names):
        cells = [cell for cell in given.cells(index)[: given.head] if cell]
        bare, unit = split_unit(name)
        unit = unit or (dialect.units[index] if index < len(dialect.units) else "")
        orders = times.judge(cells) if cells else ()
        if orders == (times.CLOCK,):
            clocks.append(name)
        elif orders and orders[0].startswith("date"):
            dates.append((name, orders))
        if orders:
            rank = 1 if orders[0].startswith("date") else 0
            found.append((rank, ClockPlan(source=name, form=orders[0]), _undecided(name, given, index, orders)))
        elif times.is_time_name(bare) and (values := _rising(cells, dialect.separator)):
            cut = (numbers.body(cells[-1]) or ("", ""))[1]
            scale, _ = times.scale_of(bare, unit or cut, values)
            found.append((2 if bare.lower() in times.NAMES else 3, ClockPlan(source=name, scale=scale, cut=cut), []))
    if dates and clocks:
        name, orders = dates[0]
        clock = ClockPlan(source=name, of_day=clocks[0], form=orders[0])
        return _decided(clock, _undecided(name, given, given.names.index(name), orders))
    if not found:
        return None, []
    _, clock, decisions = min(found, key=lambda each: each[0])
    return _decided(clock, decisions)


def _decided(clock: ClockPlan, decisions: list[Ambiguity]) -> tuple[ClockPlan, list[Ambiguity]]:
    return (clock.model_copy(update={"form": UNDECIDED}) if decisions else clock), decisions


def _undecided(name: str, given: TextRows, index: int, orders: Sequence[str]) -> list[Ambiguity]:
    if len(orders) < 2:
        return []
    cells = given.cells(index)
    at = next(
        at for at, cell in enumerate(cells) if cell and times.seconds(cell, orders[0]) != times.seconds(cell, orders[1])
    )
    read = " or ".join(
        f"day {each}" for each in (" and month ".join(_day_month(cells[at], order)) for order in orders[:2])
    )
    lines = " or ".join(f'form = "{order}"' for order in orders)
    return [Ambiguity(name, f"{name}: line {given.lines[at]} has {cells[at]!r}: {read}", f"clock: {lines}")]


def _day_month(cell: str, order: str) -> tuple[str, str]:
    at = dt.datetime.fromtimestamp(times.seconds(cell, order), dt.UTC)
    return f"{at.day}", f"{at.month}"


def _rising(cells: Sequence[str], separator: str) -> list[float]:
    """Return a column's numbers where nearly all of them rise from row to row; else none."""
    if not all(numbers.body(cell) for cell in cells):
        cells = [cell for cell in cells if numbers.body(cell)]
    if not cells:
        return []
    read = numbers.judge(cells, separator)
    if not read.readings:
        return []
    values = [read.readings[0].value(numbers.body(cell)[0]) for cell in cells]  # type: ignore[index]
    falls = sum(second < first for first, second in pairwise(values))
    return values if falls <= 0.05 * len(values) else []


def time_of(
    given: TextRows,
    clock: ClockPlan | None,
    kept: dict[str, ColumnPlan],
    target: str,
    *,
    shown: dict[str, tuple[str, str]],
    marks: NumberMarks,
) -> Time | None:
    """Return where rows stand: as they are, or at the target's times where signals have times of their own.

    In that case a signal is held for three times its usual distance, and never across a gap.
    """
    if clock is None:
        return None
    rows = given.rows[: given.head]
    at = seconds_of(given, clock, marks)
    gap = gap_of(at)
    column = next((shown[name][0] for name in given.names if name == clock.source), "time")
    time = Time(column=column, drive="" if "drive" in kept else "drive", gap=gap)
    used = {
        name: shown[name][0] for name, each in kept.items() if each.take not in ("nothing", UNDECIDED) and name != SPLIT
    }
    empty = {name: sum(not row[given.names.index(name)] for row in rows) for name in used}
    if len(at) != len(rows) or len(rows) < 4 or not any(count >= OWN * len(rows) for count in empty.values()):
        return time
    inputs = {}
    for name, bare in used.items():
        index = given.names.index(name)
        own = [when for when, row in zip(at, rows, strict=True) if row[index]]
        inputs[bare] = Input(signal=bare, seconds=age(own, gap))
    return (
        time.model_copy(
            update={
                "rows": target,
                "inputs": {**{n: i for n, i in inputs.items() if n != target}, target: inputs[target]},
            }
        )
        if target in inputs
        else time
    )


def gap_of(at: Sequence[float]) -> float:
    """Return how long nothing has to come for a new drive to begin: a minute, or a hundred usual steps."""
    steps = sorted(second - first for first, second in pairwise(at) if second > first)
    return min(86_400.0, max(60.0, rounded(100 * steps[len(steps) // 2]))) if steps else 60.0


def age(times_of: Sequence[float], gap: float) -> float:
    """Return how long a signal's value is held: three times the distance that few of its samples exceed."""
    steps = sorted(second - first for first, second in pairwise(times_of) if 0 < second - first <= gap)
    return min(gap, rounded(3 * steps[int(0.95 * (len(steps) - 1))])) if steps else gap


def rounded(seconds: float) -> float:
    """Return a number with two digits, not below this one."""
    if seconds <= 0:
        return 1.0
    size = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return float(f"{math.ceil(seconds / size - 1e-9) * size:.6g}")


def seconds_of(given: TextRows, clock: ClockPlan, marks: NumberMarks) -> list[float]:
    """Return the times of the first rows; none where one of them tells none."""
    cells = given.cells(given.names.index(clock.source))[: given.head]
    form = next((order for order in times.judge(cells[:50])), "number") if clock.form == UNDECIDED else clock.form
    try:
        if form == "number":
            return [marks.value(numbers.body(cell)[0]) * clock.scale for cell in cells]  # type: ignore[index]
        at = [times.seconds(cell, form) for cell in cells]
        if clock.of_day:
            of_day = given.cells(given.names.index(clock.of_day))[: given.head]
            at = [day + times.seconds(cell, times.CLOCK) for day, cell in zip(at, of_day, strict=True)]
    except (ValueError, TypeError):
        return []
    return at
