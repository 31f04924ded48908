"""Files of a table: plain CSV by the standard library's parser, and Parquet by pyarrow, an extra."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.inputs import without_index
from edge_agent.imports.plan import PLAN_KEY, UNITS_KEY
from edge_agent.sources.cells import column_names, no_cell
from edge_agent.sources.location import Location, Origin, Reader
from schemas.errors import DataError

if TYPE_CHECKING:  # an extra, and large: who reads CSV must not pay for it
    import pyarrow as pa

BLOCK: Final = 512
"""Rows that are read and turned into numbers at once."""


@contextmanager
def _csv_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[str]]]]]:
    """Open a table of plain cells, as `edge_agent.sources.readers` found it to be; it may be compressed."""
    is_packed = place.text.lower().endswith(".gz")
    try:
        with (gzip.open if is_packed else open)(place.text, "rt", encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text)
            names = column_names(place.shown, next(reader, []))
            filled = (cells for cells in reader if cells)  # blank lines (an editor's last one, say) are skipped
            yield names, iter(lambda: list(islice(filled, BLOCK)), [])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as fault:
        mend = "Look at its begin, and copy it again"
        raise DataError(f"cannot be read as CSV ({fault})", mend, place.shown) from fault


def _parquet_columns(place: Location) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Return names and columns of a Parquet file; points and spans of time become seconds, as from a database."""
    path = Path(place.text)
    if not path.exists():
        raise DataError("there is no such file", "Check its name and its folder", str(path))
    try:
        # Optional, and large: an agent that reads CSV must not pay for it.
        from pyarrow import ArrowException, parquet  # noqa: PLC0415

    except ImportError as fault:
        mend = "Install it with: pip install 'glassfleet[parquet]', or convert the file to CSV"
        raise DataError("reading Parquet needs pyarrow", mend, str(path)) from fault
    try:
        schema = parquet.read_schema(path)  # before its rows: two columns of one name are told by pyarrow on many lines
        column_names(str(path), schema.names)
        table = parquet.read_table(path, columns=without_index(schema))
        names = column_names(str(path), table.column_names)
        return names, [column_of(str(path), name, column) for name, column in zip(names, table.columns, strict=True)]
    except (ArrowException, OSError) as fault:
        reason = str(fault).partition("\n")[0].partition(". ")[0]
        raise DataError(f"not a readable Parquet file ({reason})", "Write or copy it again", str(path)) from fault


def _origin(place: Location) -> Origin:
    from pyarrow import parquet  # noqa: PLC0415 - optional, and loaded already when its rows were read

    metadata = parquet.read_schema(place.text).metadata or {}
    plan = metadata.get(PLAN_KEY.encode())
    units = json.loads(metadata.get(UNITS_KEY.encode(), b"{}"))
    return Origin("" if plan is None else hashlib.sha256(plan).hexdigest(), units)


@contextmanager
def _parquet_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    names, columns = _parquet_columns(place)
    yield names, iter([[list(row) for row in zip(*columns, strict=True)]])


CSV: Final = Reader(
    "a table as loggers and spreadsheets write it, or JSON (.json, .jsonl); one that is not plain needs duckdb",
    _csv_rows,
    endings=(".csv", ".csv.gz"),
    is_text=True,
)
PARQUET: Final = Reader(
    "the same; needs pyarrow",
    _parquet_rows,
    endings=(".parquet",),
    columns=_parquet_columns,
    origin=_origin,
)


def column_of(where: str, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as an array: float64 seconds for points and spans of time, dtype object where values are missing.

    Parameters
    ----------
    where, name : str
        For messages.
    column : ChunkedArray, n values

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    DataError
        Its values are neither numbers nor texts nor times.
    """
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_temporal(kind):
        column = _seconds(column)
    elif not _is_cell(kind):
        raise no_cell(where, name, str(kind))
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy())


def _is_cell(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    kinds = pa.types
    numbers = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_boolean(kind)
    return bool(numbers or kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind))


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return points of time as seconds since 1970 (UTC where no zone is told), times of day and spans as seconds.

    Whatever unit a file has, the number is the same: vehicles whose loggers differ can learn together.
    """
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"), safe=False)
    elif pa.types.is_time32(kind):
        column = column.cast(pa.time64("us")) if kind.unit == "ms" else column
    unit = getattr(column.type, "unit", "s")
    per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    whole = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64()).cast(pa.float64(), safe=False)
    return pa.compute.divide(whole, per_second)
