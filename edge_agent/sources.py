"""A vehicle's data: CSV, gzip-compressed CSV or Parquet, read once, checked in full, every fault named with its place.

The file has a header row, one row per observation, an optional ``split`` column (``train`` or ``test``; without it all
rows train), and the target last or named. Cells are numbers; there are no empty ones.

CSV is read in blocks with the standard library's parser and turned into floats a block at a time: 36,000 rows of 15
columns take a fraction of a second and little more memory than the numbers themselves, without pandas.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data import Dataset
from schemas.errors import DataError
from schemas.limits import MAX_FEATURES

SPLIT = "split"
"""Name of the column that says which rows train and which test."""

_BLOCK = 512
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Table:
    """A file's columns.

    Attributes
    ----------
    path : Path
    names : tuple of str
        Column names in the file's order, all different.
    columns : tuple of ndarray, each of shape (n,)
        float64 and finite, or text (dtype object, elements str) for the columns in `text`.
    text : tuple of str
        Names of the columns that hold text.
    """

    path: Path
    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    text: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    def column(self, name: str) -> NDArray[Any]:
        """Return one column; raises DataError, listing the columns, when there is none of that name."""
        return self.columns[self._position(name)]

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return numeric columns side by side, shape (n, len(names)); raises DataError for missing and text columns."""
        for name in names:
            if name in self.text:
                column = self.column(name)
                raise _text_cell(self.path, name, 0, str(column[0]))
        wanted = [self.columns[self._position(name)] for name in names]
        out = np.empty((self.rows, len(names)), dtype=np.float64)
        for index, column in enumerate(wanted):
            out[:, index] = column
        return out

    def _position(self, name: str) -> int:
        try:
            return self.names.index(name)
        except ValueError as fault:
            raise _no_column(self.path, name, self.names) from fault


@dataclass(frozen=True)
class Source:
    """A vehicle's rows.

    Attributes
    ----------
    train, test : Dataset
        `test` has no rows when the file has no split column.
    warnings : tuple of str
        What is odd but usable: constant columns.
    """

    train: Dataset
    test: Dataset
    warnings: tuple[str, ...] = ()


def read_source(
    path: Path | str, *, target: str | None = None, labels: bool = False, categories: bool = False
) -> Source:
    """Read a vehicle's data.

    Parameters
    ----------
    path : Path
        ``.csv``, ``.csv.gz`` or ``.parquet``.
    target : str or None
        Target column; None: the last column.
    labels : bool
        The target is a class label, kept as text; otherwise it must be a number.
    categories : bool
        Other columns of text are taken too, as positions among their categories; otherwise text is a fault.

    Raises
    ------
    DataError
        The file cannot be used; the text names the column and row, and what to do.
    """
    path = Path(path)
    raw, texts = (
        _read_categories(path, target=target, labels=labels)
        if categories
        else (_read(path, target=target, labels=labels), {})
    )
    label = target if target is not None else [name for name in raw.names if name != SPLIT][-1]
    features = tuple(name for name in raw.names if name not in (SPLIT, label))
    if not features:
        raise DataError(f"{path}: there is no input column beside the target {label!r}")
    if len(features) > MAX_FEATURES:
        raise DataError(f"{path}: {len(features)} input columns; at most {MAX_FEATURES} are allowed")
    train = raw.train
    if train.sum() < 2:
        which = "" if SPLIT not in raw.names else " with split 'train'"
        found = f"only one row{which}" if train.any() else f"no rows{which}"
        raise DataError(
            f"{path}: {found}; an agent needs at least 2 rows to learn from. "
            "Collect more data, or leave this vehicle out"
        )
    warnings = _constant_columns(raw.numbers[train], raw.numeric_names, features)
    whole = len(train) == train.sum()

    def dataset(rows: NDArray[np.bool_]) -> Dataset:
        numbers = raw.numbers if whole and rows is train else raw.numbers[rows]
        columns = [raw.numeric_names.index(name) for name in features]
        adjacent = columns == list(range(len(columns)))
        X = np.ascontiguousarray(numbers[:, : len(columns)] if adjacent else numbers[:, columns])
        y: NDArray[Any] = raw.labels[rows] if labels else numbers[:, raw.numeric_names.index(label)].copy()
        return Dataset(features, label, X, y, categories=texts)

    return Source(dataset(train), dataset(~train), warnings)


def read_table(path: Path | str) -> Table:
    """Read any table with a header row; columns that hold something else than numbers are kept as text and listed.

    Raises
    ------
    DataError
        No such file, not a gzip, no header, no rows, ragged rows, an empty cell, a number that is not finite.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        names, columns = _parquet(path)
    else:
        with _rows_of(path) as (names, reader):
            cells: list[list[str]] = [[] for _ in names]
            row = 0
            for block in _blocks(reader):
                _check_widths(path, block, len(names), row)
                for index, part in enumerate(zip(*block, strict=True)):
                    cells[index].extend(part)
                row += len(block)
        columns = [np.array(texts, dtype=object) for texts in cells]
    if not columns or not len(columns[0]):
        raise DataError(f"{path}: the file has a header but no rows")
    checked: list[NDArray[Any]] = []
    text = []
    for name, column in zip(names, columns, strict=True):
        array = _as_numbers(path, name, column)
        checked.append(array)
        if array.dtype == object:
            text.append(name)
    return Table(path, tuple(names), tuple(checked), tuple(text))


@dataclass(frozen=True)
class _Raw:
    names: tuple[str, ...]
    numeric_names: tuple[str, ...]
    numbers: NDArray[np.float64]
    labels: NDArray[Any]
    train: NDArray[np.bool_]


def _read(path: Path, *, target: str | None, labels: bool) -> _Raw:
    if path.suffix == ".parquet":
        names, columns = _parquet(path)
        _check_roles(path, names, target)
        blocks: Iterator[list[list[Any]]] = iter([[list(row) for row in zip(*columns, strict=True)]])
        return _collect(path, names, blocks, target, labels=labels)
    with _rows_of(path) as (names, reader):
        _check_roles(path, names, target)
        return _collect(path, names, _blocks(reader), target, labels=labels)


def _read_categories(path: Path, *, target: str | None, labels: bool) -> tuple[_Raw, dict[str, tuple[str, ...]]]:
    """Read a file with columns of text: these become positions among their categories, in lexicographic order."""
    table = read_table(path)
    _check_roles(path, table.names, target)
    label = target if target is not None else [name for name in table.names if name != SPLIT][-1]
    names = [name for name in table.names if name != SPLIT and not (labels and name == label)]
    numbers = np.empty((table.rows, len(names)), dtype=np.float64)
    categories: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(names):
        column = table.column(name)
        if name in table.text:
            if name == label:
                raise _text_cell(path, name, 0, str(column[0]))
            texts, column = np.unique(np.array([cell.strip() for cell in column], dtype=np.str_), return_inverse=True)
            categories[name] = tuple(texts.tolist())
        numbers[:, index] = column
    train = (
        _train_rows(path, table.column(SPLIT).tolist(), 0)
        if SPLIT in table.names
        else np.ones(table.rows, dtype=np.bool_)
    )
    own = list(_class_labels(path, label, table.column(label).tolist(), 0)) if labels else []
    given: NDArray[Any] = np.array(own, dtype=np.str_) if labels else np.empty(table.rows)
    return _Raw(table.names, tuple(names), numbers, given, train), categories


def _collect(
    path: Path, names: tuple[str, ...], blocks: Iterator[list[list[Any]]], target: str | None, *, labels: bool
) -> _Raw:
    label = target if target is not None else [name for name in names if name != SPLIT][-1]
    split_at = names.index(SPLIT) if SPLIT in names else None
    label_at = names.index(label) if labels else None
    numeric = [index for index in range(len(names)) if index not in (split_at, label_at)]
    numbers: list[NDArray[np.float64]] = []
    classes: list[str] = []
    train: list[NDArray[np.bool_]] = []
    row = 0
    for block in blocks:
        _check_widths(path, block, len(names), row)
        if split_at is not None:
            splits = [cells[split_at] for cells in block]
            train.append(_train_rows(path, splits, row))
        else:
            train.append(np.ones(len(block), dtype=np.bool_))
        if label_at is not None:
            classes.extend(_class_labels(path, label, [cells[label_at] for cells in block], row))
        if len(numeric) < len(names):
            block = [[cells[index] for index in numeric] for cells in block]  # noqa: PLW2901 - lean: the former block goes
        numbers.append(_block_of_numbers(path, block, [names[index] for index in numeric], row))
        row += len(train[-1])
    if not row:
        raise DataError(f"{path}: the file has a header but no rows. Collect data first, or leave this vehicle out")
    return _Raw(
        names,
        tuple(names[index] for index in numeric),
        np.concatenate(numbers),
        np.array(classes, dtype=np.str_) if labels else np.empty(row),
        np.concatenate(train),
    )


@contextmanager
def _rows_of(path: Path) -> Iterator[tuple[tuple[str, ...], Iterator[list[str]]]]:
    """Open a CSV file; the header's names, and the rows. Faults of the file become DataErrors, while reading too."""
    try:
        with path.open("rb") as raw:
            packed = path.suffix == ".gz"
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
                reader = csv.reader(text)
                names = _header(path, next(reader, []))
                yield names, reader
    except FileNotFoundError as fault:
        raise DataError(f"{path}: there is no such file. Give the vehicle's data with --data FILE") from fault
    except IsADirectoryError as fault:
        raise DataError(f"{path} is a directory. Give one vehicle's file with --data FILE") from fault
    except gzip.BadGzipFile as fault:
        raise DataError(
            f"{path}: not a gzip file, in spite of its name. Rename it to .csv if it is plain, or compress it with gzip"
        ) from fault
    except (EOFError, zlib.error) as fault:
        raise DataError(f"{path}: the gzip file is damaged or cut short ({fault}). Copy it again") from fault
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}: not UTF-8 text (byte {fault.start}). Save it as UTF-8 CSV") from fault
    except csv.Error as fault:
        raise DataError(f"{path}: not a CSV file ({fault})") from fault
    except OSError as fault:
        raise DataError(f"{path}: cannot be read ({fault.strerror})") from fault


def _blocks(reader: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    """Rows in blocks; blank lines (an editor's last one, say) are skipped."""
    filled = (cells for cells in reader if cells)
    while block := list(islice(filled, _BLOCK)):
        yield block


def _header(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    if not names:
        raise DataError(f"{path}: the file is empty. A header row with the column names is needed")
    if len(names) == 1:
        for mark, what in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                raise DataError(f"{path}: the columns are separated by {what}. Save the file with commas")
    if all(_is_number(name) for name in names):
        raise DataError(f"{path}: the first row holds numbers only. A header row with the column names is needed")
    for index, name in enumerate(names):
        if not name:
            raise DataError(f"{path}: column {index + 1} has no name. Name it in the header row")
        if len(name) > _LONGEST_NAME:
            raise DataError(f"{path}: the name of column {index + 1} is longer than {_LONGEST_NAME} characters")
        if name in names[:index]:
            raise DataError(
                f"{path}: two columns are called {name!r} ({names.index(name) + 1} and {index + 1}). Rename one of them"
            )
    return names


def _check_roles(path: Path, names: tuple[str, ...], target: str | None) -> None:
    if target is not None and target not in names:
        raise _no_column(path, target, names)
    if target == SPLIT:
        raise DataError(f"{path}: the column {SPLIT!r} says which rows train and test; it cannot be the target")
    if all(name == SPLIT for name in names):
        raise DataError(f"{path}: there is no column beside {SPLIT!r}")


def _check_widths(path: Path, block: list[list[Any]], width: int, row: int) -> None:
    for offset, cells in enumerate(block):
        if len(cells) != width:
            raise DataError(
                f"{path}: row {row + offset + 1} (after the header) has {len(cells)} cells, "
                f"the header has {width} columns"
            )


def _train_rows(path: Path, splits: list[Any], row: int) -> NDArray[np.bool_]:
    train = np.empty(len(splits), dtype=np.bool_)
    for offset, value in enumerate(splits):
        if value not in ("train", "test"):
            raise DataError(
                f"{path}: row {row + offset + 1}, column {SPLIT!r}: {str(value)[:40]!r} is neither 'train' nor 'test'. "
                "Correct it, or remove the column to train on all rows"
            )
        train[offset] = value == "train"
    return train


def _class_labels(path: Path, label: str, values: list[Any], row: int) -> Iterator[str]:
    for offset, value in enumerate(values):
        text = "" if value is None else str(value).strip()
        if not text:
            raise _empty_cell(path, label, row + offset)
        yield text


def _block_of_numbers(path: Path, block: list[list[Any]], names: Sequence[str], row: int) -> NDArray[np.float64]:
    try:
        numbers = np.array(block, dtype=np.float64).reshape(len(block), len(names))
    except (ValueError, TypeError) as fault:
        for offset, cells in enumerate(block):
            for name, cell in zip(names, cells, strict=True):
                if cell is None or (isinstance(cell, str) and not cell.strip()):
                    raise _empty_cell(path, name, row + offset) from fault
                if not _is_number(cell):
                    raise _text_cell(path, name, row + offset, str(cell)) from fault
        raise DataError(f"{path}: rows {row + 1} to {row + len(block)} are not numbers ({fault})") from fault
    finite = np.isfinite(numbers)
    if not finite.all():
        offset, index = (int(part) for part in np.argwhere(~finite)[0])
        raise _not_finite(path, names[index], row + offset, numbers[offset, index])
    return numbers


def _as_numbers(path: Path, name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as floats when all its cells are numbers, else as the text that it is (dtype object)."""
    if column.dtype == object:
        blank = next((row for row, cell in enumerate(column) if cell is None or not str(cell).strip()), None)
        if blank is not None:
            raise _empty_cell(path, name, blank)
        try:
            column = column.astype(np.float64)
        except (ValueError, TypeError):
            return np.array([str(cell) for cell in column], dtype=object)
    numbers = column.astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        raise _not_finite(path, name, row, numbers[row])
    return numbers


def _constant_columns(numbers: NDArray[np.float64], names: Sequence[str], features: Sequence[str]) -> tuple[str, ...]:
    constant = (numbers == numbers[0]).all(axis=0)
    return tuple(
        f"column {name!r} has the same value in all training rows; it cannot help the model here"
        if name in features
        else f"the target {name!r} has the same value in all training rows"
        for name, same in zip(names, constant, strict=True)
        if same
    )


def _parquet(path: Path) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    if not path.exists():
        raise DataError(f"{path}: there is no such file. Give the vehicle's data with --data FILE")
    try:
        # Optional, and large: an agent that reads CSV must not pay for it.
        from pyarrow import ArrowException, parquet  # noqa: PLC0415
    except ImportError as fault:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow. Install it with: pip install 'glassfleet[parquet]', "
            "or convert the file to CSV"
        ) from fault
    try:
        table = parquet.read_table(path)
        names = _header(path, table.column_names)
        columns = []
        for column in table.columns:
            array = column.to_numpy()
            nulls = column.null_count
            if nulls:
                array = np.array(column.to_pylist(), dtype=object)
            columns.append(array)
    except (ArrowException, OSError) as fault:
        raise DataError(f"{path}: not a readable Parquet file ({fault})") from fault
    return names, columns


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError):
        return False
    return True


def _no_column(path: Path, name: str, names: Sequence[str]) -> DataError:
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return DataError(f"{path}: there is no column {name!r}. The columns are: {shown}. Name the target with --target")


def _text_cell(path: Path, name: str, row: int, cell: str) -> DataError:
    return DataError(
        f"{path}: row {row + 1} (after the header), column {name!r}: {cell[:40]!r} is not a number. "
        "Inputs and target must be numbers: encode the column as numbers, or remove it"
    )


def _empty_cell(path: Path, name: str, row: int) -> DataError:
    return DataError(
        f"{path}: row {row + 1} (after the header), column {name!r}: the cell is empty. Fill it in, or remove the row"
    )


def _not_finite(path: Path, name: str, row: int, value: float) -> DataError:
    return DataError(
        f"{path}: row {row + 1} (after the header), column {name!r}: {value} is not a finite number. "
        "Correct it, or remove the row"
    )
