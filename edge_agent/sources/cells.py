"""Headers and cells: what a table may hold, and the words for what it may not. Every fault names its place."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.clocks import SPLIT
from edge_agent.imports.judge import LONGEST_NAME
from glassfleet.data.cells import is_empty
from schemas.errors import DataError

NO_TEST_ROWS: Final = "no test rows: no model is scored here, and a version that no vehicle scores stays a candidate"
HOW_TO_TEST: Final = f"Collect more rows, or add a column {SPLIT!r} with 'train' and 'test'"

_CELLS: Final = frozenset({float, int, str, bool, type(None), Decimal})


def no_column(where: str, name: str, names: Sequence[str]) -> DataError:
    """Say that there is no such column, and which there are."""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    what = f"there is no column {name!r}"
    return DataError(what, f"The columns are: {shown}. Name the target with --target", where, what)


def wrong_cell(where: str, name: str, row: int, what: str, mend: str) -> DataError:
    """Say what is wrong with a cell, and the way out."""
    tells = f"column {name!r} has a cell that cannot be used"
    return DataError(f"row {row + 1} of the data, column {name!r}: {what}", mend, where, tells)


def text_cell(where: str, name: str, row: int, cell: str) -> DataError:
    """Say that a cell should be a number."""
    what = "is not a number"
    mend = "An agent takes columns of text with --categories, and a target of texts with --labels"
    if "," in cell and is_number(cell.replace(",", "")):
        what, mend = "has a comma", "Write a point for a decimal comma, and nothing between thousands"
    return wrong_cell(where, name, row, f"{cell[:40]!r} {what}", mend)


class EmptyCellError(DataError):
    """A cell is empty that may not be; `marks` are in words the cells of its column that an import took for empty."""

    def __init__(self, where: str, column: str, row: int, marks: str = "") -> None:
        what = "the cell is empty" + (f" (the column has {marks})" if marks else "")
        fault = wrong_cell(
            where, column, row, what, "An agent takes empty cells of inputs with --missing; else fill it in"
        )
        super().__init__(fault.what, fault.mend, fault.where, fault.tells)
        self.column, self.row = column, row


def not_finite(where: str, name: str, row: int, value: float) -> DataError:
    """Say that a number is not finite."""
    return wrong_cell(where, name, row, f"{value} is not a finite number", "Correct it, or remove the row")


def column_names(where: str, cells: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, stripped; raises DataError when they cannot be that."""
    names = tuple(cell.strip() for cell in cells)
    if all(is_number(name) for name in names):
        what = f"the columns' names are numbers: {', '.join(names[:5])}" if names else "there are no columns"
        raise DataError(what, "Name the columns", where)
    for index, name in enumerate(names):
        if not name:
            raise DataError(f"column {index + 1} has no name", "Give it one", where)
        if len(name) > LONGEST_NAME:
            raise DataError(f"the name of column {index + 1} is longer than {LONGEST_NAME} characters", where=where)
        if name in names[:index]:
            what = f"two columns are called {name!r} ({names.index(name) + 1} and {index + 1})"
            raise DataError(what, "Rename one of them", where)
    return names


def check_roles(where: str, names: tuple[str, ...], target: str | None) -> None:
    """Raise DataError when target or split column cannot be what they are said to be."""
    if target is not None and target not in names:
        raise no_column(where, target, names)
    if target == SPLIT:
        raise DataError(f"the column {SPLIT!r} says which rows train and test; it cannot be the target", where=where)
    if all(name == SPLIT for name in names):
        raise DataError(f"there is no column beside {SPLIT!r}", where=where)


def train_rows(where: str, splits: list[Any], row: int) -> NDArray[np.bool_]:
    """Return which rows train; raises DataError for another word than train and test."""
    train = np.empty(len(splits), dtype=np.bool_)
    for offset, value in enumerate(splits):
        if value not in ("train", "test"):
            what = f"{str(value)[:40]!r} is neither 'train' nor 'test'"
            raise wrong_cell(where, SPLIT, row + offset, what, "Correct it, or remove the column to train on all rows")
        train[offset] = value == "train"
    return train


def plain_cells(where: str, names: Sequence[str], rows: list[list[Any]]) -> list[list[Any]]:
    """Return a database's rows with every value as a number or a text: points and spans of time in seconds.

    Parameters
    ----------
    where : str
    names : sequence of str
    rows : list of list
        Changed in place.

    Raises
    ------
    DataError
        A value is neither: an array, a document, bytes.
    """
    for cells in rows:
        for index, cell in enumerate(cells):
            if type(cell) not in _CELLS:
                cells[index] = _plain(where, names[index], cell)
    return rows


def _plain(where: str, name: str, cell: Any) -> float | str:
    """Return a time as seconds (UTC where no zone is told, so that every machine reads the same), an id as text."""
    match cell:
        case dt.datetime():
            return (cell if cell.tzinfo else cell.replace(tzinfo=dt.UTC)).timestamp()
        case dt.date():
            return dt.datetime.combine(cell, dt.time(), dt.UTC).timestamp()
        case dt.time():
            return cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
        case dt.timedelta():
            return cell.total_seconds()
        case int() | float() | str() | UUID():
            return str(cell) if isinstance(cell, UUID) else cell
    raise no_cell(where, name, type(cell).__name__)


def no_cell(where: str, name: str, kind: str) -> DataError:
    """Say that a column holds something that can be no cell."""
    what = f"column {name!r} holds values of type {kind}, which are neither numbers nor texts"
    return DataError(what, "Take single numbers out of them, or leave the column out", where)


def floats(
    where: str, name: str, cells: Sequence[Any] | NDArray[Any], row: int, *, may_be_empty: bool
) -> NDArray[np.float64] | None:
    """Return some of a column's cells as float64, NaN where they are empty and `may_be_empty`; None: one is a text.

    Raises DataError for another empty cell, and for a number that is not finite; `row` is that of the first cell.
    """
    numbers = cells if isinstance(cells, np.ndarray) and cells.dtype != object else _parsed(cells, may_be_empty)
    if numbers is None:
        for offset, cell in enumerate(cells):
            if is_blank(cell) and not may_be_empty:
                raise EmptyCellError(where, name, row + offset)
            if isinstance(cell, int) and not is_finite(cell):
                raise not_finite(where, name, row + offset, math.inf)
        return None
    numbers = numbers.astype(np.float64)
    finite = np.isfinite(numbers) | (np.isnan(numbers) if may_be_empty else False)
    if not finite.all():
        at = int(np.argmin(finite))
        if cells[at] is None:  # which numpy takes for nan
            raise EmptyCellError(where, name, row + at)
        raise not_finite(where, name, row + at, numbers[at])
    return numbers


def _parsed(cells: Sequence[Any] | NDArray[Any], may_be_empty: bool) -> NDArray[np.float64] | None:
    """Return cells as numbers; None where one is none, as is what Python alone takes for a number (1_000)."""
    if any("_" in cell for cell in cells if isinstance(cell, str)):
        return None
    try:
        given = [math.nan if is_empty(cell) else cell for cell in cells] if may_be_empty else cells
        return np.array(given, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return None


def is_finite(cell: Any) -> bool:
    """Whether a JSON value is a number that a float can hold; a truth value is 1 or 0."""
    return isinstance(cell, int | float) and abs(cell) <= sys.float_info.max


def is_blank(cell: Any) -> bool:
    """Whether a cell holds nothing at all."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def is_number(cell: Any) -> bool:
    """Whether a cell can be read as a number (nan and inf can, 2026_03 cannot, though Python would)."""
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return not (isinstance(cell, str) and "_" in cell)


def empty_table(where: str) -> DataError:
    """Say that a table has columns, but no rows."""
    return DataError("there are columns but no rows", "Collect data first, or leave this vehicle out", where)
