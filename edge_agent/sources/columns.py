"""A table's columns, read in blocks and checked: numbers, yes and no, labels, categories, and what is left out."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.clocks import SPLIT, TextRows
from edge_agent.imports.judge import long_of
from edge_agent.imports.marks import personal
from edge_agent.sources.cells import (
    EmptyCellError,
    check_roles,
    empty_table,
    floats,
    is_blank,
    is_number,
    text_cell,
    train_rows,
    wrong_cell,
)
from edge_agent.sources.location import Location
from glassfleet.data.cells import MISSING, is_empty, label_of, truth_of
from schemas.errors import DataError
from schemas.log import Log

_log = Log()

_LOOK: Final = 500
"""Rows that tell whether each has one signal."""

Blocks: TypeAlias = Iterable[list[list[Any]]]
Fit: TypeAlias = Callable[[tuple[str, ...], Blocks], tuple[tuple[str, ...], Blocks]]
Choice: TypeAlias = Callable[[tuple[str, ...]], tuple[Collection[str], Collection[str]]]


def read_columns(place: Location, choose: Choice, fit: Fit | None = None) -> dict[str, NDArray[Any]]:
    """Return a table's columns: float64, or dtype object where a cell is no number.

    A column in which a text comes late is read again, so that numbers are never kept as the texts that they were.

    Parameters
    ----------
    place : Location
    choose : callable
        Takes the names; returns the columns whose cells are kept as they are, and those whose cells may be empty: NaN,
        or as they are in a column of texts. Raises DataError where these columns cannot be.
    fit : callable or None
        Takes names and blocks of rows, and returns those that count.

    Raises
    ------
    DataError
        There are no rows, rows differ in length, a cell is empty, or a number is not finite.
    """
    late: set[str] = set()
    while True:
        with _blocks(place, fit) as (names, blocks):
            kept, gaps = choose(names)
            found, more = _collected(place.shown, names, blocks, late.union(kept), gaps)
        if not more:
            return found
        late |= more


def _collected(
    where: str,
    names: Sequence[str],
    blocks: Iterable[Sequence[Sequence[Any]]],
    texts: Collection[str],
    gaps: Collection[str],
) -> tuple[dict[str, NDArray[Any]], set[str]]:
    """Return the columns, and those in which a text came though they are not among `texts`."""
    cells: dict[str, list[Any]] = {name: [] for name in names if name in texts}
    numbers = {name: bytearray() for name in names if name not in texts}  # grows in place: no list of blocks stays
    row = 0
    for block in blocks:
        late = set()
        for name, part in zip(names, block, strict=True):
            if name in texts:
                blank = None if name in gaps else next((at for at, cell in enumerate(part) if is_blank(cell)), None)
                if blank is not None:
                    raise EmptyCellError(where, name, row + blank)
                # Few words, in many rows: each is kept once.
                cells[name].extend(sys.intern(cell) if type(cell) is str else cell for cell in part)
            elif (own := floats(where, name, part, row, may_be_empty=name in gaps)) is None:
                late.add(name)
            else:
                numbers[name] += own.tobytes()
        if late:
            return {}, late
        row += len(block[0])
    if not row:
        raise empty_table(where)
    found = {name: np.array(part, dtype=object) for name, part in cells.items()}
    return {name: found[name] if name in texts else np.frombuffer(numbers.pop(name)) for name in names}, set()


@contextmanager
def _blocks(place: Location, fit: Fit | None) -> Iterator[tuple[tuple[str, ...], Iterable[Sequence[Sequence[Any]]]]]:
    """Give a table's names, and blocks of its columns."""
    if place.reader.columns is not None:
        names, columns = place.reader.columns(place)
        yield names, [columns] if columns and len(columns[0]) else []  # type: ignore[list-item]  # arrays are sequences
        return
    with place.reader.rows(place) as (names, blocks):
        kept, rows = (names, blocks) if fit is None else fit(names, blocks)
        yield kept, (list(zip(*block, strict=True)) for block in _same_widths(place.shown, len(kept), rows) if block)


def _same_widths(where: str, width: int, blocks: Blocks) -> Iterator[list[list[Any]]]:
    row = 0
    for block in blocks:
        for offset, cells in enumerate(block, 1):
            if len(cells) != width:
                what = f"row {row + offset} of the data has {len(cells)} cells, and there are {width} columns"
                raise DataError(what, where=where)
        row += len(block)
        yield block


@dataclass(frozen=True)
class Raw:
    """Checked rows, all of them, before some are held back; whoever makes rows of `columns` takes them out."""

    names: tuple[str, ...]
    columns: dict[str, NDArray[np.float64]]
    labels: NDArray[Any]
    train: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()


def read_raw(
    place: Location, *, target: str | None, labels: bool, categories: bool, missing: bool
) -> tuple[Raw, dict[str, tuple[str, ...]]]:
    """Read rows to learn from, and the categories of columns of text, in lexicographic order; raises DataError."""
    where = place.shown

    def choose(names: tuple[str, ...]) -> tuple[Collection[str], Collection[str]]:
        check_roles(where, names, target)
        label = target_of(target, names)
        return {SPLIT, label} if labels else {SPLIT}, {*names} - {label, SPLIT} if missing else ()

    first: list[tuple[tuple[str, ...], Blocks]] = []

    def fit(names: tuple[str, ...], blocks: Blocks) -> tuple[tuple[str, ...], Blocks]:
        if not first:  # when a column is read again, the rows are those of the first time, and told once
            check_roles(where, names, target)
            first.append(_without_gaps(where, names, blocks, target_of(target, names), missing=missing))
        return first[0]

    cells = read_columns(place, choose, fit if place.reader.is_gappy else None)
    label = target_of(target, tuple(cells))
    names = tuple(cells)
    warnings = _without_persons(cells, label) if categories and not place.reader.origin(place).plan else []
    rows, split = len(next(iter(cells.values()))), cells.pop(SPLIT, None)
    classes = [label_of(cell) for cell in cells.pop(label)] if labels else []
    known: dict[str, tuple[str, ...]] = {}
    for name, column in cells.items():
        if column.dtype == object:
            codes, own = _coded(where, name, column, categories=categories and name != label, missing=missing)
            cells[name] = codes.astype(np.float64)
            known |= {name: own} if own else {}
    train = np.ones(rows, dtype=np.bool_) if split is None else train_rows(where, list(split), 0)
    given = np.array(classes, dtype=np.str_) if labels else np.empty(rows)
    kept = tuple(name for name in names if name in cells or name in (SPLIT, label))
    return Raw(kept, cells, given, train, tuple(warnings)), known


def _coded(
    where: str, name: str, column: NDArray[Any], *, categories: bool, missing: bool
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return a column of text as positions among its categories, or, where none are taken, yes and no as 1 and 0."""
    if categories:
        texts = [MISSING if missing and is_empty(cell) else str(cell).strip() for cell in column]
        own, places = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
        return places, tuple(own.tolist())
    filled = [cell for cell in column if not (missing and is_empty(cell))]
    truth = None if any(map(is_number, filled)) else truth_of(map(str, filled))
    if truth is None:
        raise first_text(where, name, column)
    return np.array([truth.get(cell, math.nan) for cell in column]), ()


def first_text(where: str, name: str, column: Sequence[Any] | NDArray[Any]) -> DataError:
    """Say which cell of a column is the first that is no number, or of a column of yes and no that is one."""
    filled = [(row, cell) for row, cell in enumerate(column) if not is_blank(cell)]
    texts = [str(cell) for _, cell in filled if not is_number(cell)]
    if truth_of(texts) is None or is_number(filled[0][1]):
        row, cell = next(each for each in filled if not is_number(each[1]))
        return text_cell(where, name, row, str(cell))
    row, cell = next(each for each in filled if is_number(each[1]))
    what = f"{str(cell)[:40]!r} is a number, where cells before it are words like {texts[0]!r}"
    return wrong_cell(where, name, row, what, "Write either in all cells")


def _without_gaps(
    where: str, names: tuple[str, ...], blocks: Blocks, label: str, *, missing: bool
) -> tuple[tuple[str, ...], Blocks]:
    """Return names and rows without gaps; what is left out is told.

    Rows without a target go, and, unless empty cells are taken, first columns that are mostly empty, then rows.
    """
    rows = [cells for block in blocks for cells in block]
    texts = [["" if cell is None else str(cell) for cell in cells] for cells in rows[:_LOOK]]
    if long_of(TextRows(names, texts, [], len(texts))) is not None:
        mend = "Make rows of them by a plan: data import proposes one (--plan fleet.toml), and data collect takes it"
        raise DataError("each row has one signal", mend, where)
    empty = Counter(name for cells in rows for name, cell in zip(names, cells, strict=True) if cell is None)
    rare = () if missing else tuple(name for name in names if name != label and 2 * empty[name] > len(rows))
    kept = [index for index, name in enumerate(names) if name not in rare]
    needed = [index for index in kept if names[index] == label or not missing]
    gaps = [next((names[index] for index in needed if cells[index] is None), None) for cells in rows]
    left_out = Counter(gap for gap in gaps if gap is not None)
    if rare or left_out:
        hint = "an agent with --missing takes them" if rare or set(left_out) != {label} else ""
        what = {"columns": list(rare), "rows_without": dict(left_out)}
        _log.warning("left-out", source=where, **{name: value for name, value in what.items() if value}, hint=hint)
    stay = [[cells[index] for index in kept] for cells, gap in zip(rows, gaps, strict=True) if gap is None]
    return tuple(names[index] for index in kept), [stay] if stay else []


def target_of(named: str | None, names: Sequence[str]) -> str:
    """Return the target's name: as it was given, or the last column."""
    return named if named is not None else [name for name in names if name != SPLIT][-1]


def _without_persons(cells: dict[str, Any], label: str) -> list[str]:
    """Leave columns of text out that look like persons, plates or ids: the model would tell their texts to all."""
    warnings = []
    for name in [name for name in cells if name not in (SPLIT, label)]:
        texts = list({cell.strip(): None for cell in cells[name] if isinstance(cell, str) and not is_number(cell)})
        if texts and (why := personal(name, texts[:200])):
            del cells[name]
            warnings.append(f"column {name!r} is left out: {why}; an import whose plan takes it by name keeps it")
    return warnings
