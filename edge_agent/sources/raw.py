"""Rows with their cells checked: numbers, yes and no, labels, categories, and what is left out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.imports.clocks import Sample
from edge_agent.imports.judge import long_of
from edge_agent.imports.persons import personal
from edge_agent.sources.cells import (
    SPLIT,
    YesAndNo,
    as_numbers,
    block_of_numbers,
    check_roles,
    check_widths,
    class_labels,
    empty_table,
    is_number,
    text_cell,
    train_rows,
    without_marks,
)
from edge_agent.sources.location import Location
from schemas.errors import DataError

_log = structlog.get_logger("glassfleet.data")

_LOOK: Final = 500
"""Rows that tell whether each has one signal."""


def columns_of(place: Location) -> tuple[tuple[str, ...], Sequence[NDArray[Any]]]:
    """Return a table's names and columns with the cells as they stand in it; raises DataError when it has no rows."""
    if place.reader.columns is not None:
        names, columns = place.reader.columns(place)
    else:
        names, cells = gathered(place)
        columns = [np.array(texts, dtype=object) for texts in cells]
    if not columns or not len(columns[0]):
        raise empty_table(place.shown)
    return names, columns


def gathered(place: Location) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Return a table's names, and the cells of each column as its reader gives them; raises DataError."""
    with place.reader.rows(place) as (names, blocks):
        columns: list[list[Any]] = [[] for _ in names]
        for block in blocks:
            check_widths(place.shown, block, len(names), len(columns[0]))
            for index, part in enumerate(zip(*block, strict=True)):
                columns[index].extend(part)
    return names, columns


@dataclass(frozen=True)
class Raw:
    """Checked rows, all of them, before some are held back."""

    names: tuple[str, ...]
    numeric_names: tuple[str, ...]
    numbers: NDArray[np.float64]
    labels: NDArray[Any]
    train: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()


def read_numbers(place: Location, *, target: str | None, labels: bool, missing: bool) -> Raw:
    """Read a table of numbers, in blocks; raises DataError."""
    with place.reader.rows(place) as (names, blocks):
        check_roles(place.shown, names, target)
        if place.reader.is_gappy:
            kept, rows = _without_gaps(place.shown, names, blocks, target_of(target, names), missing=missing)
            return _collect(place.shown, kept, iter([rows] if rows else []), target, labels=labels, missing=missing)
        return _collect(place.shown, names, blocks, target, labels=labels, missing=missing)


def _without_gaps(
    where: str, names: tuple[str, ...], blocks: Iterable[list[list[Any]]], label: str, *, missing: bool
) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Return names and rows without gaps; what is left out is told.

    Rows without a target go, and, unless empty cells are taken, first columns that are mostly empty, then rows.
    """
    rows = [cells for block in blocks for cells in block]
    texts = [["" if cell is None else str(cell) for cell in cells] for cells in rows[:_LOOK]]
    if long_of(Sample(names, texts, [], len(texts))) is not None:
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
    return tuple(names[index] for index in kept), stay


def target_of(named: str | None, names: Sequence[str]) -> str:
    """Return the target's name: as it was given, or the last column."""
    return named if named is not None else [name for name in names if name != SPLIT][-1]


def first_text(where: str, name: str, column: NDArray[Any]) -> DataError:
    """Say which cell of a column is the first that is no number."""
    row = next((row for row, cell in enumerate(column) if not is_number(cell)), 0)
    return text_cell(where, name, row, str(column[row]))


def read_categories(
    place: Location, *, target: str | None, labels: bool, missing: bool
) -> tuple[Raw, dict[str, tuple[str, ...]]]:
    """Read a file with columns of text: these become positions among their categories, in lexicographic order."""
    where = place.shown
    names, columns = columns_of(place)
    check_roles(where, names, target)
    if place.reader.is_gappy:
        cells_of_rows = [list(row) for row in zip(*columns, strict=True)]
        names, block = _without_gaps(where, names, [cells_of_rows], target_of(target, names), missing=missing)
        if not block:
            raise empty_table(where)
        columns = [np.array(texts, dtype=object) for texts in zip(*block, strict=True)]
    label, cells = target_of(target, names), dict(zip(names, columns, strict=True))
    warnings = [] if place.reader.origin(place).plan else _without_persons(cells, label)
    names = tuple(cells)
    rows, split, classes = len(columns[0]), cells.pop(SPLIT, None), cells.pop(label) if labels else ()
    numbers = np.empty((rows, len(cells)), dtype=np.float64)
    categories: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(cells):
        column = as_numbers(where, name, cells[name], may_be_empty=missing and name != label)
        if column.dtype == object:
            if name == label:
                raise first_text(where, name, column)
            texts, column = np.unique(np.array([cell.strip() for cell in column], dtype=np.str_), return_inverse=True)
            categories[name] = tuple(texts.tolist())
        numbers[:, index] = column
    train = np.ones(rows, dtype=np.bool_) if split is None else train_rows(where, list(split), 0)
    given: NDArray[Any] = np.array(list(class_labels(where, label, list(classes), 0)), dtype=np.str_)
    return Raw(names, tuple(cells), numbers, given if labels else np.empty(rows), train, tuple(warnings)), categories


def _without_persons(cells: dict[str, Any], label: str) -> list[str]:
    """Leave columns of text out that look like persons, plates or ids: the model would tell their texts to all."""
    warnings = []
    for name in [name for name in cells if name not in (SPLIT, label)]:
        texts = list({cell.strip(): None for cell in cells[name] if isinstance(cell, str) and not is_number(cell)})
        if texts and (why := personal(name, texts[:200])):
            del cells[name]
            warnings.append(f"column {name!r} is left out: {why}; an import whose plan takes it by name keeps it")
    return warnings


def _collect(
    where: str,
    names: tuple[str, ...],
    blocks: Iterator[list[list[Any]]],
    target: str | None,
    *,
    labels: bool,
    missing: bool,
) -> Raw:
    label = target_of(target, names)
    split_at = names.index(SPLIT) if SPLIT in names else None
    label_at = names.index(label) if labels else None
    numeric = [index for index in range(len(names)) if index not in (split_at, label_at)]
    inputs = [place for place, index in enumerate(numeric) if names[index] != label]
    truth = YesAndNo(where, {place: names[numeric[place]] for place in inputs})
    may_be_empty = inputs if missing else []
    # Grows in place: a list of blocks would leave as many bytes to the process as the table has.
    numbers = bytearray()
    classes: list[str] = []
    train: list[NDArray[np.bool_]] = []
    row = 0
    for block in blocks:
        check_widths(where, block, len(names), row)
        if split_at is not None:
            splits = [cells[split_at] for cells in block]
            train.append(train_rows(where, splits, row))
        else:
            train.append(np.ones(len(block), dtype=np.bool_))
        if label_at is not None:
            classes.extend(class_labels(where, label, [cells[label_at] for cells in block], row))
        if len(numeric) < len(names):
            block = [[cells[index] for index in numeric] for cells in block]  # noqa: PLW2901 - lean: the former block goes
        without_marks(block, may_be_empty)
        truth.convert(block, row)
        numbers += block_of_numbers(where, block, [names[index] for index in numeric], row, may_be_empty).tobytes()
        row += len(train[-1])
    if not row:
        raise empty_table(where)
    return Raw(
        names,
        tuple(names[index] for index in numeric),
        np.frombuffer(numbers).reshape(row, len(numeric)),
        np.array(classes, dtype=np.str_) if labels else np.empty(row),
        np.concatenate(train),
    )
