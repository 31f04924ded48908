"""Judges what a column holds, by its cells: numbers, truth values, words, or what is better left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from edge_agent.imports import numbers
from edge_agent.imports.clocks import orders_of
from edge_agent.imports.dialect import is_value
from edge_agent.imports.marks import is_mark, personal, words, words_of
from edge_agent.imports.numbers import NumberMarks
from edge_agent.imports.plan import UNDECIDED, ColumnPlan
from glassfleet.data.cells import PAIRS
from schemas.limits import MAX_CATEGORIES

MOSTLY: Final = 0.5
_EXACT: Final = 1 << 53
_ROWS: Final = 20
"""From so many rows on a column that rises by one numbers them, and texts that all differ are names or ids."""

_FEW_CATEGORIES: Final = 10
_FREQUENT: Final = 0.1
"""Of the cells: a sensor that fails so often is none."""

_COUNTERS: Final = words("index idx nr no id row rows n # count counter sample unnamed zeile")


@dataclass(frozen=True)
class Cells:
    """Some of a column's cells: stripped, with the line of each."""

    name: str
    cells: Sequence[str]
    lines: Sequence[int]
    unit: str = ""
    is_target: bool = False
    is_time: bool = False

    def line(self, cell: str) -> int:
        """Return the first line with this cell."""
        return next((line for line, each in zip(self.lines, self.cells, strict=True) if each == cell), 0)

    def place(self, cell: str) -> str:
        """Return in words where a cell is."""
        return f"{self.name}: line {self.line(cell)} has {cell!r}"


@dataclass(frozen=True)
class ColumnVerdict:
    """What becomes of a column, and why.

    Attributes
    ----------
    column : ColumnPlan
    why : str
    marks : frozenset of str
        Cells that stand for no value, in lower case, beside empty ones.
    readings : tuple of NumberMarks
        Of numbers: all that fit; more than one is a decision.
    example : str
        A cell on which they differ.
    decision : str
        What somebody has to decide, with both readings; empty: nothing.
    lines : str
        The lines of the plan that decide it.
    """

    column: ColumnPlan
    why: str
    marks: frozenset[str] = frozenset()
    readings: tuple[NumberMarks, ...] = ()
    example: str = ""
    decision: str = ""
    lines: str = ""
    proofs: tuple[frozenset[str], frozenset[str]] = field(default=(frozenset(), frozenset()))


def judge(given: Cells, separator: str) -> ColumnVerdict:
    """Return what becomes of a column, as far as its own cells tell."""
    filled = [cell for cell in given.cells if cell]
    marked = {cell for cell in filled if is_mark(cell)}
    among = [cell for cell in filled if cell not in marked or not is_mark(cell, among_words=True)]
    valued = [cell for cell in among if cell not in marked]
    column = ColumnPlan(unit=given.unit)
    if not among:
        marks = frozenset(cell.lower() for cell in filled)
        return ColumnVerdict(column, "no cell has a value here", marks)
    truth = _truth(among)
    if truth is not None:
        true, false = truth
        marks = frozenset(cell.lower() for cell in filled) - {true, false}
        return ColumnVerdict(
            ColumnPlan(take="truth", true=(true,), false=(false,)), f"{true} is 1, {false} is 0", marks
        )
    if valued and all(numbers.HEX.match(cell) for cell in valued):
        return ColumnVerdict(replace_take(column, "hex"), "hexadecimal numbers", _marks(filled, valued))
    written = [cell for cell in valued if is_value(cell) and numbers.body(cell) is not None]
    if _are_categories(given, valued, written):
        return _words(given, column, among, filled)
    if valued and len(written) >= MOSTLY * len(valued) and not numbers.is_bare_hex(valued):
        return _numbers(given, column, written, separator)
    orders = orders_of(valued)
    if orders and not given.is_time:
        return ColumnVerdict(
            replace_take(column, "nothing"), "left out: points in time; a model does not learn from a date"
        )
    return _words(given, column, among, filled)


def _are_categories(given: Cells, valued: Sequence[str], written: Sequence[str]) -> bool:
    """Whether counts stand beside words that are as frequent, as in 1, 2, 3, more: no word marks a missing number."""
    counts = set(written)
    others = Counter(cell for cell in valued if cell not in counts)
    return (
        not given.is_target
        and bool(others)
        and len(valued) >= _ROWS
        and len(counts) + len(others) <= _FEW_CATEGORIES
        and all(cell.isdecimal() for cell in counts)
        and min(others.values()) >= _FREQUENT * len(valued)
    )


def replace_take(column: ColumnPlan, take: str) -> ColumnPlan:
    """Return a column with another use."""
    return column.model_copy(update={"take": take})


def _to_decide(column: ColumnPlan, why: str, marks: frozenset[str], what: str, lines: str) -> ColumnVerdict:
    return ColumnVerdict(replace_take(column, UNDECIDED), why, marks, decision=what, lines=lines)


def _marks(filled: Sequence[str], valued: Sequence[str]) -> frozenset[str]:
    return frozenset(cell.lower() for cell in set(filled) - set(valued))


def _truth(cells: Sequence[str]) -> tuple[str, str] | None:
    different = {cell.lower() for cell in cells}
    for pair in PAIRS:
        if different <= set(pair) and (len(different) == 2 or max(map(len, pair)) > 1):
            return pair
    return None


def _numbers(given: Cells, column: ColumnPlan, written: Sequence[str], separator: str) -> ColumnVerdict:
    known = set(written)
    others = [cell for cell in given.cells if cell and cell not in known]
    marks = frozenset(cell.lower() for cell in others if is_mark(cell))
    odd = [cell for cell in others if not is_mark(cell)]
    if odd:
        shown = list(dict.fromkeys(odd))
        listed = ", ".join(f"{cell[:30]!r} (line {given.line(cell)})" for cell in shown[:3])
        quoted = ", ".join(f'"{cell}"' for cell in shown[:3])
        what = f"{given.name}: {listed} is no number, where the others are: it is no value, or a word like any other"
        if len(odd) > 20 and len(shown) > 10:
            what = f"{given.name}: {len(odd)} cells are no numbers, e.g. {listed}"
        lines = f'missing = [{quoted}], take = "number"; or take = "text"; or take = "nothing"'
        return _to_decide(column, "numbers and words", marks, what, lines)
    if numbers.is_power(written) and any(cell.isdigit() for cell in written):
        cell = next(cell for cell in written if numbers.POWER.match(cell))
        what = f"{given.place(cell)}: {float(cell):g}, or hexadecimal {int(cell, 16)}, or an id"
        lines = 'take = "number"; or take = "hex"; or take = "nothing"'
        return _to_decide(column, "numbers with powers of ten, or hexadecimal", marks, what, lines)
    how = numbers.judge(written, separator)
    if not how.readings:
        what = f"{given.place(how.example)}, which is written in another way than others"
        lines = 'take = "text" or take = "nothing"; or correct the file'
        return _to_decide(column, "numbers that are written in different ways", marks, what, lines)
    column = column.model_copy(update={"cut": how.unit, "unit": column.unit or how.unit})
    verdict = ColumnVerdict(column, "numbers", marks, how.readings, how.example)
    reading = how.readings[0]
    bodies = [numbers.body(cell)[0] for cell in written]  # type: ignore[index]  # each has one
    if len(how.readings) == 1:
        decimal = frozenset({reading.decimal} if any(reading.decimal in text for text in bodies) else set())
        verdict = replace(verdict, proofs=(decimal, frozenset({reading.thousands} - {""})))
        return _left_out(given, verdict, [reading.value(text) for text in bodies], bodies)
    return verdict


def _left_out(given: Cells, verdict: ColumnVerdict, values: Sequence[float], bodies: Sequence[str]) -> ColumnVerdict:
    """Leave numbers out that say which row it is, or that are ids."""
    if given.is_time or given.is_target or not values:
        return verdict
    out = replace_take(verdict.column, "nothing")
    pairs = zip(bodies, values, strict=True)
    if any(len(text) > 15 and abs(value) > _EXACT and text.lstrip("+-").isdigit() for text, value in pairs):
        return replace(verdict, column=out, why="left out: numbers with more digits than are kept, like ids")
    steps = {second - first for first, second in pairwise(values)}
    of_name = words_of(given.name) or ["unnamed"]
    if len(values) > 2 and steps == {1.0} and (len(values) >= _ROWS or of_name[0] in _COUNTERS):
        return replace(verdict, column=out, why="left out: it numbers the rows, like an id")
    return verdict


def _words(given: Cells, column: ColumnPlan, cells: Sequence[str], filled: Sequence[str]) -> ColumnVerdict:
    marks = _marks(filled, cells)
    different = Counter(cells)
    text = replace_take(column, "text")
    if given.is_target:
        return ColumnVerdict(text, f"classes, {len(different)} different", marks)
    out = replace_take(column, "nothing")
    why = personal(given.name, list(different)[:200])
    if why:
        return ColumnVerdict(out, f"left out: texts about persons or vehicles ({why})", marks)
    if numbers.is_bare_hex(list(different)):
        cell = next(cell for cell in different if not cell.isdigit())
        what, lines = f"{given.place(cell)}: hexadecimal {int(cell, 16)}, or an id", 'take = "hex"; or take = "text"'
        return _to_decide(column, "hexadecimal digits", marks, what, f'{lines}; or take = "nothing"')
    if len(different) > MAX_CATEGORIES or (len(cells) >= _ROWS and len(different) > MOSTLY * len(cells)):
        return ColumnVerdict(
            out, f"left out: {len(different)} different texts in {len(cells)} rows, like names or ids", marks
        )
    if sum(":" in cell and cell[:1].isdigit() for cell in different) > MOSTLY * len(different):
        cell = next(iter(different))
        what, lines = f"{given.place(cell)}: a time in a form that is not known, or a word", 'take = "text"'
        return _to_decide(column, "times in a form that is not known", marks, what, f'{lines}; or take = "nothing"')
    return ColumnVerdict(text, f"words, {len(different)} different", marks)
