"""Proposes a plan for a CSV file: how its columns are told apart, and what becomes of each, with the reason."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Final

from edge_agent.sources.cells import SPLIT, check_roles, empty_table, header
from edge_agent.sources.files import CSV, opened
from edge_agent.sources.fit import TIMES
from edge_agent.sources.judge import MOSTLY
from edge_agent.sources.plan import Plan, Rule, cells_of, hour, number
from edge_agent.sources.readers import locate
from glassfleet.data.cells import NOTHING, PAIRS
from schemas.errors import DataError
from schemas.limits import MAX_CATEGORIES
from schemas.text import counted

SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}

SHOWN: Final = 20
"""First lines that tell the separator."""

MISSING: Final = NOTHING | {"nan"}
"""Cells, in lower case, without a value."""

FORMATS: Final = tuple(
    f"{day}{time}"
    for day in ("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
    for time in (" %H:%M:%S", " %H:%M", "")
)
"""Points in time as people write them, beside ISO 8601."""

_UNIT: Final = re.compile(r"^[+-]?[\d.,'\u2019\s]*\d\s*(%|°[CF]?|[^\W\d_]{1,5}(?:/[^\W\d_]{1,3})?)$")
_COMMA: Final = re.compile(r"^[+-]?\d+(?:[.'\u2019 ]\d{3})*,\d+$")
_POINT: Final = re.compile(r"^[+-]?\d+(?:[,'\u2019 ]\d{3})*\.\d+$")
_EITHER: Final = re.compile(r"^[+-]?[1-9]\d{0,2}[.,]\d{3}$")
"""A number that may be one of thousands, or one with three decimals."""

_PARTED: Final = re.compile(r"^[+-]?\d{1,3}(?:([.,'\u2019 ])\d{3})+(?:[.,]\d+)?$")


@dataclass(frozen=True)
class Proposal:
    """A plan, and why.

    Attributes
    ----------
    plan : Plan
    target : str
    reasons : dict of str to str
        By column: what becomes of it, in words.
    rows, usable : int
        Rows of the file, and those with a value in each column that is taken.
    """

    plan: Plan
    target: str
    reasons: dict[str, str]
    rows: int
    usable: int


def propose(path: Path, target: str | None = None) -> Proposal:
    """Look at a CSV file and propose a plan for it.

    Parameters
    ----------
    path : Path
    target : str or None
        Target column, which is never left out; None: the last one with a name.

    Raises
    ------
    DataError
        The file is of another kind, cannot be read, has no columns' names, or no such target.
    """
    if locate(path).reader is not CSV:
        check = f"glassfleet data check {quote(str(path))}"
        raise DataError(f"{path}: no CSV file; it is read without a plan. Look at it: {check}")
    separator = _separator(path)
    with cells_of(path, separator) as (cells, blocks):
        rows = [row for block in blocks for row in block]
    named = [index for index, name in enumerate(cells) if name]
    names = header(str(path), [cells[index] for index in named])
    if not rows:
        raise empty_table(str(path))
    target = next((name for name in reversed(names) if name != SPLIT), SPLIT) if target is None else target
    check_roles(str(path), names, target)
    ragged = next((row for row, line in enumerate(rows) if len(line) != len(cells)), None)
    if ragged is not None:
        what = f"row {ragged + 1} of the data has {len(rows[ragged])} cells, the header has {len(cells)}"
        raise DataError(what, "Put cells with a separator in them into quotes, or correct the row", str(path))
    columns = {name: [row[index] for row in rows] for name, index in zip(names, named, strict=True)}
    present = {name: [cell for cell in column if cell.lower() not in MISSING] for name, column in columns.items()}
    decimal, thousands = _marks([cell for each in present.values() for cell in each], separator)
    rules, reasons = {}, {}
    for name, column in columns.items():
        if name == SPLIT:
            continue
        rules[name], reasons[name] = _rule(
            name, present[name], len(column), decimal, thousands, is_target=name == target
        )
        if name != target and column == columns[target]:
            rules[name], reasons[name] = Rule(take="nothing"), f"left out: it is the target {target!r} once more"
    plan = Plan(
        data=path.name,
        separator=separator,
        decimal=decimal,
        thousands=thousands,
        missing=tuple(sorted({cell.lower() for column in columns.values() for cell in column} & MISSING)),
        columns=rules,
    )
    taken = [name for name, rule in rules.items() if rule.take != "nothing"]
    usable = sum(not any(plan.is_missing(columns[name][row]) for name in taken) for row in range(len(rows)))
    return Proposal(plan, target, reasons, len(rows), usable)


def _separator(path: Path) -> str:
    """Return what parts the first lines into several columns, best of the same number in each."""
    with opened(path) as text:
        lines = [line for _, line in zip(range(SHOWN), text, strict=False)]
    widths = {mark: {len(row) for row in csv.reader(lines, delimiter=mark) if row} for mark in SEPARATORS}
    most = {mark: max(each, default=0) for mark, each in widths.items()}
    return max(SEPARATORS, key=lambda mark: (most[mark] > 1, len(widths[mark]) == 1, most[mark]))


def _marks(cells: Sequence[str], separator: str) -> tuple[str, str]:
    """Return the decimal mark and the one between thousands, as the cells that can be read in one way only tell.

    Where none does, a comma that is there is the decimal one if columns are not separated by commas.
    """
    clear = [cell for cell in cells if not _EITHER.match(cell)]
    commas, points = (sum(1 for cell in clear if form.match(cell)) for form in (_COMMA, _POINT))
    hint = separator != "," and any("," in cell for cell in cells if _EITHER.match(cell))
    decimal = "," if commas > points or (commas == points and hint) else "."
    marks = Counter(match[1] for cell in cells if (match := _PARTED.match(cell)) and match[1] != decimal)
    return decimal, marks.most_common(1)[0][0] if marks else ""


def _rule(
    name: str, cells: Sequence[str], rows: int, decimal: str, thousands: str, *, is_target: bool
) -> tuple[Rule, str]:
    """Return what becomes of a column, and why; `cells` are those with a value."""
    out = Rule(take="nothing")
    if not is_target and len(cells) < MOSTLY * rows:
        return out, f"left out: {rows - len(cells)} of {rows} cells have no value"
    without = f"; {counted(rows - len(cells), 'rows')} without a value left out" if len(cells) < rows else ""
    words = {cell.lower() for cell in cells}
    for true, false in PAIRS:
        if len(words) == 2 and words == {true, false}:
            return Rule(take="truth", true=(true,), false=(false,)), f"{true} is 1, {false} is 0{without}"
    unit = _unit(cells)
    try:
        values = [number(cell, unit=unit, decimal=decimal, thousands=thousands) for cell in cells]
    except ValueError:
        return _of_text(cells, rows, without, is_target=is_target)
    steps = {second - first for first, second in pairwise(values)}
    is_plain = is_target or name.lower() in TIMES  # the time serves lagged features
    if not is_plain and len(values) > 2 and (steps == {1.0} or _is_id(cells, values)):
        return out, "left out: it numbers the rows, like an id"
    how = f" in {unit}" if unit else ""
    either = next(((cell, value) for cell, value in zip(cells, values, strict=True) if _EITHER.match(cell)), None)
    read = "" if either is None else f"; {either[0]} is read as {either[1]:.10g}"
    return Rule(take="number", unit=unit), f"numbers{how}{' (the target)' if is_target else ''}{read}{without}"


def _is_id(cells: Sequence[str], values: Sequence[float]) -> bool:
    """Whether whole numbers rise from row to row, or have more digits than a number keeps."""
    whole = all(value == int(value) for value in values)
    rising = all(second > first for first, second in pairwise(values))
    return whole and (rising or any(abs(value) > 2**53 for value in values)) and len(set(cells)) == len(cells)


def _unit(cells: Sequence[str]) -> str:
    """Return the unit that all cells end with; empty: none, or different ones."""
    units = {match[1] if (match := _UNIT.match(cell)) else "" for cell in cells}
    return units.pop() if len(units) == 1 else ""


def _of_text(cells: Sequence[str], rows: int, without: str, *, is_target: bool) -> tuple[Rule, str]:
    formats = [form for form in ("", *FORMATS) if _reads(cells, form)]
    if formats and not is_target:
        if len({form[:2] for form in formats}) > 1:
            return Rule(take="nothing"), (
                "left out: day and month cannot be told apart; set take to hour, and format to "
                f"{formats[0]} or {formats[1]}"
            )
        if len({hour(cell, formats[0]) for cell in cells}) == 1:
            return Rule(take="nothing"), "left out: dates; a model does not learn from a date"
        return Rule(take="hour", format=formats[0]), f"the hour of the day{without}"
    different = len(set(cells))
    if is_target:
        return Rule(take="text"), f"classes, {different} (the target; agents need --labels){without}"
    if different > min(MAX_CATEGORIES, MOSTLY * rows):
        return Rule(
            take="nothing"
        ), f"left out: {different} different texts in {counted(rows, 'rows')}, like names or ids"
    return Rule(take="text"), f"text, {different} different (agents need --categories){without}"


def _reads(cells: Sequence[str], form: str) -> bool:
    try:
        for cell in cells:
            hour(cell, form)
    except ValueError:
        return False
    return True
