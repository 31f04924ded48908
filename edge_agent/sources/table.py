"""A vehicle's data, read once and checked in full: a table from a file, a database or a window store.

A table has names, one row per observation, an optional ``split`` column (``train`` or ``test``; without it the newest
rows are held back), and the target last or named. Cells are numbers, or yes and no; there are no empty ones.

CSV is read in blocks with the standard library's parser and turned into floats a block at a time: 36,000 rows of 15
columns take a fraction of a second and little more memory than the numbers themselves, without pandas. A query's rows
come in blocks too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.clocks import SPLIT
from edge_agent.imports.marks import is_sentinel
from edge_agent.sources.cells import no_column
from edge_agent.sources.columns import Raw, first_text, read_columns, read_raw, target_of
from edge_agent.sources.location import Location, Origin
from edge_agent.sources.readers import locate, taken
from glassfleet.data.cells import MISSING, is_empty, truth_of
from glassfleet.data.clock import DRIVES, tells_when
from glassfleet.data.dataset import Dataset
from schemas.errors import DataError
from schemas.limits import MAX_FEATURES
from schemas.messages import HeldBack

SHARE: Final = 0.2
"""Of the rows that are held back: the newest, never rows beside those that train, which would tell the same again."""

FEWEST: Final = 20
"""Rows, below which a table is too small to hold any back."""

_GAP: Final = 0.01
"""Share of rows between those that train and those that test, which do neither."""

Mask = NDArray[np.bool_]


def held_back(rows: int, drives: NDArray[Any] | None) -> tuple[Mask, Mask, HeldBack, str]:
    """Return which rows train, which test, and how they were chosen, also in words; empty: all train.

    Parameters
    ----------
    rows : int
        In the order of time.
    drives : ndarray, shape (rows,), or None
        Which drive each row is of.
    """
    train, test = np.ones(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_)
    if rows < FEWEST:
        return train, test, "", ""
    begins = _begins(drives) if drives is not None else []
    newest = [begin for begin in begins if SHARE / 2 * rows <= rows - begin <= 0.5 * rows]
    if newest:
        begin = min(newest, key=lambda each: abs(rows - each - SHARE * rows))
        test[begin:], train[begin:] = True, False
        count = sum(each >= begin for each in begins)
        which = "the newest drive" if count == 1 else f"the newest {count} drives"
        return train, test, "drives", f"{which} of {len(begins) + 1} ({rows - begin} of {rows} rows)"
    begin = rows - max(2, round(SHARE * rows))
    gap = max(1, round(_GAP * rows))
    test[begin:], train[begin - gap :] = True, False
    return train, test, "rows", f"the last {rows - begin} of {rows} rows, {gap} before them left out"


def _begins(drives: NDArray[Any]) -> list[int]:
    """Return where drives begin, but the first one; none where a drive goes on after another one."""
    changes = [int(place) + 1 for place in np.flatnonzero(drives[1:] != drives[:-1])]
    return changes if len(changes) + 1 == len(np.unique(drives)) else []


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
    units : mapping of str to str
        Of columns, as far as the file tells them.
    """

    path: str
    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    text: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)

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
                raise first_text(self.path, name, column)
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
    notes : tuple of str
        What was done to the file, and which rows are held back.
    origin : Origin
        Plan and units of the file, as far as it tells them.
    far : tuple of str
        Columns in which one value, which is there more than once, lies far from all the others.
    held_back : str
        How the rows of `test` were chosen, see `schemas.messages.AgentState`.
    refresh : callable or None
        Of a window that moves: reads it again.
    """

    train: Dataset
    test: Dataset
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origin: Origin = field(default_factory=Origin)
    far: tuple[str, ...] = ()
    held_back: HeldBack = ""
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
    hold_back: bool = False,
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

    hold_back : bool
        Without a column ``split`` some rows test, as an agent has it (`edge_agent.sources.table`); otherwise none.

    Raises
    ------
    DataError
        The rows cannot be used; the text names the column and row, and what to do.
    UsageError
        The URL names no kind of source that there is.
    """
    place = locate(path)
    read = partial(
        _read_source, target=target, labels=labels, categories=categories, missing=missing, hold_back=hold_back
    )
    if place.reader.mark is not None:
        return _Moving(place.reader.mark(place), partial(read, place)).source()
    rows, source = taken(place, target, read)
    notes = (rows.line, *source.notes) if rows.line else source.notes
    return replace(source, warnings=(*rows.warnings, *source.warnings), notes=notes)


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


def _read_source(
    place: Location, *, target: str | None, labels: bool, categories: bool, missing: bool, hold_back: bool
) -> Source:
    where = place.shown
    raw, texts = read_raw(place, target=target, labels=labels, categories=categories, missing=missing)
    label = target_of(target, raw.names)
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
    notes: tuple[str, ...] = ()
    how: HeldBack = "split" if test.any() else ""
    if hold_back and SPLIT not in raw.names:
        train, test, how, words = held_back(len(train), _drives(raw, texts))
        notes = (f"held back to score models: {words}",) if words else ()
    when = [name for name in features if tells_when(name)]
    if when:
        tell = (
            "tells when: no input, unless a run names it"
            if len(when) == 1
            else "tell when: no inputs, unless a run names them"
        )
        notes += (f"{' and '.join(map(repr, when))} {tell}",)
    far = {name: value for name, value in _far(raw, train) if name not in texts}
    odd = tuple(
        f'column {name!r} has {value:g} in some rows, far from all its other values: does it mean "no value"? A plan'
        f' says so: missing = ["{value:g}"] (glassfleet data import)'
        for name, value in far.items()
    )
    warnings = (*raw.warnings, *odd, *_constant_columns(raw.columns, train, features))
    targets: NDArray[Any] = raw.labels if labels else raw.columns.pop(label)
    inputs = [np.empty((np.count_nonzero(rows), len(features))) for rows in (train, test)]
    for index, name in enumerate(features):
        column = raw.columns.pop(name)  # all rows are there once
        for X, rows in zip(inputs, (train, test), strict=True):
            X[:, index] = column[rows]
    known, unseen = (
        Dataset(features, label, X, targets[rows], categories=texts)
        for X, rows in zip(inputs, (train, test), strict=True)
    )
    return Source(known, unseen, warnings, notes, place.reader.origin(place), tuple(far), how)


def _far(raw: Raw, rows: NDArray[np.bool_]) -> Iterator[tuple[str, float]]:
    """Yield columns with a value that is hardly one, and that value."""
    for name, whole in raw.columns.items():
        column = whole[rows & ~np.isnan(whole)]
        if not column.size:
            continue
        low, high = float(column.min()), float(column.max())
        for value, inner, other in ((high, column[column < high], low), (low, column[column > low], high)):
            if inner.size:
                nearest = float(inner.max() if value == high else inner.min())
                if is_sentinel(value, nearest, other, column.size - inner.size, column.size):
                    yield name, value
                    break


def _drives(raw: Raw, texts: Mapping[str, tuple[str, ...]]) -> NDArray[Any] | None:
    """Return which drive each row is of, where a column tells it."""
    names = (name for name in raw.columns if name.lower() in DRIVES and name not in texts)
    return next((raw.columns[name] for name in names), None)


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

    def choose(names: tuple[str, ...]) -> tuple[Collection[str], Collection[str]]:
        return (), names if missing is None else missing

    _, columns = taken(place, None, partial(read_columns, choose=choose), whole=True)
    text = tuple(name for name, column in columns.items() if column.dtype == object)
    for name in text:
        gaps = missing is None or name in missing
        columns[name] = np.array(
            [MISSING if gaps and is_empty(cell) else str(cell) for cell in columns[name]], dtype=object
        )
    return Table(place.shown, tuple(columns), tuple(columns.values()), text, place.reader.origin(place).units)


def _constant_columns(
    columns: Mapping[str, NDArray[np.float64]], rows: NDArray[np.bool_], features: Sequence[str]
) -> tuple[str, ...]:
    first = np.argmax(rows)
    return tuple(
        f"column {name!r} has the same value in all training rows; it cannot help the model here"
        if name in features
        else f"the target {name!r} has the same value in all training rows"
        for name, column in columns.items()
        if (column[rows] == column[first]).all()
    )
