"""A vehicle's data, read once and checked in full: a table from a file, a database or a window store.

A table has names, one row per observation, an optional ``split`` column (``train`` or ``test``; without it the newest
rows are held back), and the target last or named. Cells are numbers, or yes and no; there are no empty ones.

CSV is read in blocks with the standard library's parser and turned into floats a block at a time: 36,000 rows of 15
columns take a fraction of a second and little more memory than the numbers themselves, without pandas. A query's rows
come in blocks too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

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
    no_column,
    text_cell,
    train_rows,
    without_marks,
)
from edge_agent.imports.persons import personal
from edge_agent.sources.door import taken
from edge_agent.sources.holdback import DRIVES, held_back
from edge_agent.sources.location import Location
from edge_agent.sources.readers import locate
from glassfleet.data.cells import truth_of
from glassfleet.data.dataset import Dataset
from schemas.errors import DataError
from schemas.limits import MAX_FEATURES

_log = structlog.get_logger("glassfleet.rows")


@dataclass(frozen=True)
class Table:
    """A table's columns.

    Attributes
    ----------
    path : str
        The file; of a database its URL without a password.
    names : tuple of str
        Column names in the file's order, all different.
    columns : tuple of ndarray, each of shape (n,)
        float64 and finite, or text (dtype object, elements str) for the columns in `text`.
    text : tuple of str
        Names of the columns that hold text.
    """

    path: str
    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    text: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    def column(self, name: str) -> NDArray[Any]:
        """Return one column; raises DataError, listing the columns, when there is none of that name."""
        if name not in self.names:
            raise no_column(self.path, name, self.names)
        return self.columns[self.names.index(name)]

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return columns of numbers, or of yes and no, side by side, shape (n, len(names)).

        Raises DataError for missing and text columns.
        """
        out = np.empty((self.rows, len(names)), dtype=np.float64)
        for index, name in enumerate(names):
            column = self.column(name)
            truth = truth_of(column) if name in self.text else None
            if name in self.text and truth is None:
                raise _first_text(self.path, name, column)
            out[:, index] = column if truth is None else [truth[cell] for cell in column]
        return out


@dataclass(frozen=True)
class Source:
    """A vehicle's rows.

    Attributes
    ----------
    train, test : Dataset
        `test` has no rows when there is no split column.
    warnings : tuple of str
        What is odd but usable: constant columns, columns that were left out.
    said : tuple of str
        What was done to the file, and which rows are held back.
    refresh : callable or None
        Of a window that moves: reads it again.
    """

    train: Dataset
    test: Dataset
    warnings: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    refresh: Callable[[], Source] | None = field(default=None, compare=False, repr=False)

    def current(self) -> Source:
        """Return the rows as they are now: of a file those that were read, of a window store those in the window.

        Raises
        ------
        DataError
            The window cannot be read, or holds too few rows by now.
        """
        return self if self.refresh is None else self.refresh()


def read_source(
    path: Path | str,
    *,
    target: str | None = None,
    labels: bool = False,
    categories: bool = False,
    missing: bool = False,
) -> Source:
    """Read a vehicle's data.

    Parameters
    ----------
    path : Path or str
        A file or the URL of a query; `edge_agent.sources.readers` lists the kinds.
    target : str or None
        Target column; None: the last column.
    labels : bool
        The target is a class label, kept as text; otherwise it must be a number.
    categories : bool
        Other columns of text are taken too, as positions among their categories; otherwise text is a fault.
    missing : bool
        Cells of inputs without a value are taken too, as NaN or as a category of their own; otherwise they are a fault.

    Raises
    ------
    DataError
        The rows cannot be used; the text names the column and row, and what to do.
    UsageError
        The URL names no kind of source that there is.
    """
    place = locate(path)
    how = {"labels": labels, "categories": categories, "missing": missing}
    if place.reader.mark is not None:
        return _Moving(place.reader.mark(place), partial(_read_source, place, target=target, **how)).source()
    rows, source = taken(place, target, partial(_read_source, target=target, **how))
    said = (rows.line, *source.said) if rows.line else source.said
    return replace(source, warnings=(*rows.warnings, *source.warnings), said=said)


class _Moving:
    """Reads a source again when it has changed, and only then."""

    def __init__(self, mark: Callable[[], object], read: Callable[[], Source]) -> None:
        self._mark = mark
        self._read = read
        self._seen: object = None
        self._source: Source | None = None

    def source(self) -> Source:
        mark = self._mark()
        if self._source is None or mark != self._seen:
            self._source = replace(self._read(), refresh=self.source)
            self._seen = mark
        return self._source


def _read_source(place: Location, *, target: str | None, labels: bool, categories: bool, missing: bool) -> Source:
    where = place.shown
    raw, texts = (
        _read_categories(place, target=target, labels=labels, missing=missing)
        if categories
        else (_read(place, target=target, labels=labels, missing=missing), {})
    )
    label = _target(target, raw.names)
    features = tuple(name for name in raw.names if name not in (SPLIT, label))
    if not features:
        raise DataError(f"there is no input column beside the target {label!r}", where=where)
    if len(features) > MAX_FEATURES:
        raise DataError(f"{len(features)} input columns; at most {MAX_FEATURES} are allowed", where=where)
    train = raw.train
    if train.sum() < 2:
        which = "" if SPLIT not in raw.names else " with split 'train'"
        text = f"only one row{which}" if train.any() else f"no rows{which}"
        what = f"{text}; an agent needs at least 2 rows to learn from"
        raise DataError(what, "Collect more data, or leave this vehicle out", where)
    test = ~train
    said: tuple[str, ...] = ()
    if SPLIT not in raw.names:
        train, test, words = held_back(len(train), _drives(raw, texts))
        said = (f"held back to score models: {words}",) if words else ()
    warnings = (*raw.warnings, *_constant_columns(raw.numbers[train], raw.numeric_names, features))
    columns = [raw.numeric_names.index(name) for name in features]

    def dataset(rows: NDArray[np.bool_]) -> Dataset:
        X = raw.numbers[np.ix_(np.flatnonzero(rows), np.array(columns))]  # one copy, no other on the way
        y: NDArray[Any] = raw.labels[rows] if labels else raw.numbers[rows, raw.numeric_names.index(label)]
        return Dataset(features, label, X, y, categories=texts)

    return Source(dataset(train), dataset(test), warnings, said)


def _drives(raw: _Raw, texts: Mapping[str, tuple[str, ...]]) -> NDArray[Any] | None:
    """Return which drive each row is of, where a column tells it."""
    name = next((name for name in raw.numeric_names if name.lower() in DRIVES and name not in texts), None)
    return None if name is None else raw.numbers[:, raw.numeric_names.index(name)]


def read_table(path: Path | str, *, missing: Collection[str] | None = ()) -> Table:
    """Read any table with a header row; columns that hold something else than numbers are kept as text and listed.

    Cells of the columns `missing` (None: of all) may be empty: they are NaN then, or the text `cells.MISSING`.

    Raises
    ------
    DataError
        No such file, not a gzip, no header, no rows, ragged rows, an empty cell, a number that is not finite.
    UsageError
        The URL names no kind of source that there is.
    """
    place = locate(path)
    _, (names, columns) = taken(place, None, _columns)
    gaps = names if missing is None else missing
    checked = [
        as_numbers(place.shown, name, column, may_be_empty=name in gaps)
        for name, column in zip(names, columns, strict=True)
    ]
    text = tuple(name for name, column in zip(names, checked, strict=True) if column.dtype == object)
    return Table(place.shown, names, tuple(checked), text)


def _columns(place: Location) -> tuple[tuple[str, ...], Sequence[NDArray[Any]]]:
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
class _Raw:
    names: tuple[str, ...]
    numeric_names: tuple[str, ...]
    numbers: NDArray[np.float64]
    labels: NDArray[Any]
    train: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()


def _read(place: Location, *, target: str | None, labels: bool, missing: bool) -> _Raw:
    with place.reader.rows(place) as (names, blocks):
        check_roles(place.shown, names, target)
        label, is_gappy = _target(target, names), place.reader.is_gappy
        kept = _without_gaps(place.shown, names, blocks, label, missing=missing) if is_gappy else blocks
        return _collect(place.shown, names, kept, target, labels=labels, missing=missing)


def _without_gaps(
    where: str, names: Sequence[str], blocks: Iterable[list[list[Any]]], label: str, *, missing: bool
) -> Iterator[list[list[Any]]]:
    """Yield the rows that have a target, and, unless empty cells are taken, all inputs; what is left out is told."""
    needed = [index for index, name in enumerate(names) if name == label or not missing]
    left_out: Counter[str] = Counter()
    for block in blocks:
        kept = []
        for cells in block:
            gap = next((names[index] for index in needed if cells[index] is None), None)
            if gap is None:
                kept.append(cells)
            else:
                left_out[gap] += 1
        yield kept
    if left_out:
        hint = "an agent with --missing takes rows with empty inputs" if set(left_out) != {label} else ""
        _log.warning("rows-left-out", source=where, without=dict(left_out), hint=hint)


def _target(named: str | None, names: Sequence[str]) -> str:
    return named if named is not None else [name for name in names if name != SPLIT][-1]


def _first_text(where: str, name: str, column: NDArray[Any]) -> DataError:
    row = next((row for row, cell in enumerate(column) if not is_number(cell)), 0)
    return text_cell(where, name, row, str(column[row]))


def _read_categories(
    place: Location, *, target: str | None, labels: bool, missing: bool
) -> tuple[_Raw, dict[str, tuple[str, ...]]]:
    """Read a file with columns of text: these become positions among their categories, in lexicographic order."""
    where = place.shown
    names, columns = _columns(place)
    check_roles(where, names, target)
    if place.reader.is_gappy:
        cells_of_rows = [list(row) for row in zip(*columns, strict=True)]
        (block,) = _without_gaps(where, names, [cells_of_rows], _target(target, names), missing=missing)
        if not block:
            raise empty_table(where)
        columns = [np.array(texts, dtype=object) for texts in zip(*block, strict=True)]
    label, cells = _target(target, names), dict(zip(names, columns, strict=True))
    warnings = [] if place.reader.is_planned(place) else _without_persons(cells, label)
    names = tuple(cells)
    rows, split, classes = len(columns[0]), cells.pop(SPLIT, None), cells.pop(label) if labels else ()
    numbers = np.empty((rows, len(cells)), dtype=np.float64)
    categories: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(cells):
        column = as_numbers(where, name, cells[name], may_be_empty=missing and name != label)
        if column.dtype == object:
            if name == label:
                raise _first_text(where, name, column)
            texts, column = np.unique(np.array([cell.strip() for cell in column], dtype=np.str_), return_inverse=True)
            categories[name] = tuple(texts.tolist())
        numbers[:, index] = column
    train = np.ones(rows, dtype=np.bool_) if split is None else train_rows(where, list(split), 0)
    given: NDArray[Any] = np.array(list(class_labels(where, label, list(classes), 0)), dtype=np.str_)
    return _Raw(names, tuple(cells), numbers, given if labels else np.empty(rows), train, tuple(warnings)), categories


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
) -> _Raw:
    label = _target(target, names)
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
    return _Raw(
        names,
        tuple(names[index] for index in numeric),
        np.frombuffer(numbers).reshape(row, len(numeric)),
        np.array(classes, dtype=np.str_) if labels else np.empty(row),
        np.concatenate(train),
    )


def _constant_columns(numbers: NDArray[np.float64], names: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
    constant = (numbers == numbers[0]).all(axis=0)
    return tuple(
        f"column {name!r} has the same value in all training rows; it cannot help the model here"
        if name in features
        else f"the target {name!r} has the same value in all training rows"
        for name, same in zip(names, constant, strict=True)
        if same
    )
