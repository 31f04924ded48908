"""Headers and cells: what a table may hold, and the words for what it may not. Every fault names its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import DataError

SPLIT: Final = "split"
"""Name of the column that says which rows train and which test."""

LONGEST_NAME: Final = 200
"""Most characters of a column's name."""


def no_column(where: str, name: str, names: Sequence[str]) -> DataError:
    """Say that there is no such column, and which there are."""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return DataError(f"{where}: there is no column {name!r}. The columns are: {shown}. Name the target with --target")


def text_cell(where: str, name: str, row: int, cell: str) -> DataError:
    """Say that a cell should be a number."""
    return DataError(
        f"{where}: row {row + 1} (after the header), column {name!r}: {cell[:40]!r} is not a number. "
        "Inputs and target must be numbers: encode the column as numbers, or remove it"
    )


def empty_cell(where: str, name: str, row: int) -> DataError:
    """Say that a cell is empty."""
    return DataError(
        f"{where}: row {row + 1} (after the header), column {name!r}: the cell is empty. Fill it in, or remove the row"
    )


def not_finite(where: str, name: str, row: int, value: float) -> DataError:
    """Say that a number is not finite."""
    return DataError(
        f"{where}: row {row + 1} (after the header), column {name!r}: {value} is not a finite number. "
        "Correct it, or remove the row"
    )


def header(where: str, cells: Sequence[str]) -> tuple[str, ...]:
    """Return the columns' names, stripped; raises DataError when they cannot name columns."""
    names = tuple(cell.strip() for cell in cells)
    if not names:
        raise DataError(f"{where}: the file is empty. A header row with the column names is needed")
    if len(names) == 1:
        for mark, what in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                raise DataError(f"{where}: the columns are separated by {what}. Save the file with commas")
    if all(is_number(name) for name in names):
        raise DataError(f"{where}: the first row holds numbers only. A header row with the column names is needed")
    for index, name in enumerate(names):
        if not name:
            raise DataError(f"{where}: column {index + 1} has no name. Name it in the header row")
        if len(name) > LONGEST_NAME:
            raise DataError(f"{where}: the name of column {index + 1} is longer than {LONGEST_NAME} characters")
        if name in names[:index]:
            raise DataError(
                f"{where}: two columns are called {name!r} "
                f"({names.index(name) + 1} and {index + 1}). Rename one of them"
            )
    return names


def check_roles(where: str, names: tuple[str, ...], target: str | None) -> None:
    """Raise DataError when target or split column cannot be what they are said to be."""
    if target is not None and target not in names:
        raise no_column(where, target, names)
    if target == SPLIT:
        raise DataError(f"{where}: the column {SPLIT!r} says which rows train and test; it cannot be the target")
    if all(name == SPLIT for name in names):
        raise DataError(f"{where}: there is no column beside {SPLIT!r}")


def check_widths(where: str, block: list[list[Any]], width: int, row: int) -> None:
    """Raise DataError naming the first row that has not as many cells as the header."""
    for offset, cells in enumerate(block):
        if len(cells) != width:
            raise DataError(
                f"{where}: row {row + offset + 1} (after the header) has {len(cells)} cells, "
                f"the header has {width} columns"
            )


def train_rows(where: str, splits: list[Any], row: int) -> NDArray[np.bool_]:
    """Return which rows train; raises DataError for another word than train and test."""
    train = np.empty(len(splits), dtype=np.bool_)
    for offset, value in enumerate(splits):
        if value not in ("train", "test"):
            raise DataError(
                f"{where}: row {row + offset + 1}, column {SPLIT!r}: "
                f"{str(value)[:40]!r} is neither 'train' nor 'test'. "
                "Correct it, or remove the column to train on all rows"
            )
        train[offset] = value == "train"
    return train


def class_labels(where: str, label: str, values: list[Any], row: int) -> Iterator[str]:
    """Yield labels as text; raises DataError for an empty one."""
    for offset, value in enumerate(values):
        text = "" if value is None else str(value).strip()
        if not text:
            raise empty_cell(where, label, row + offset)
        yield text


def block_of_numbers(where: str, block: list[list[Any]], names: Sequence[str], row: int) -> NDArray[np.float64]:
    """Return a block of rows as floats; raises DataError naming the first cell that is no finite number."""
    try:
        numbers = np.array(block, dtype=np.float64).reshape(len(block), len(names))
    except (ValueError, TypeError) as fault:
        for offset, cells in enumerate(block):
            for name, cell in zip(names, cells, strict=True):
                if cell is None or (isinstance(cell, str) and not cell.strip()):
                    raise empty_cell(where, name, row + offset) from fault
                if not is_number(cell):
                    raise text_cell(where, name, row + offset, str(cell)) from fault
        raise DataError(f"{where}: rows {row + 1} to {row + len(block)} are not numbers ({fault})") from fault
    finite = np.isfinite(numbers)
    if not finite.all():
        offset, index = (int(part) for part in np.argwhere(~finite)[0])
        if block[offset][index] is None:  # which numpy takes for nan
            raise empty_cell(where, names[index], row + offset)
        raise not_finite(where, names[index], row + offset, numbers[offset, index])
    return numbers


def as_numbers(where: str, name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as floats when all its cells are numbers, else as the text that it is (dtype object)."""
    if column.dtype == object:
        blank = next((row for row, cell in enumerate(column) if cell is None or not str(cell).strip()), None)
        if blank is not None:
            raise empty_cell(where, name, blank)
        try:
            column = column.astype(np.float64)
        except (ValueError, TypeError):
            return np.array([str(cell) for cell in column], dtype=object)
    numbers = column.astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        raise not_finite(where, name, row, numbers[row])
    return numbers


def is_number(cell: Any) -> bool:
    """Whether a cell can be read as a number (nan and inf can)."""
    try:
        float(cell)
    except (ValueError, TypeError):
        return False
    return True


def empty_table(where: str) -> DataError:
    """Say that a table has columns, but no rows."""
    return DataError(f"{where}: the file has a header but no rows. Collect data first, or leave this vehicle out")
