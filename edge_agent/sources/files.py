"""Files of a table: CSV with the standard library's parser, plain or gzip-compressed, and Parquet."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from edge_agent.imports.plan import PLAN_KEY, UNITS_KEY
from edge_agent.sources.cells import column_names, header
from edge_agent.sources.location import Location, Origin, Reader
from schemas.errors import DataError

BLOCK: Final = 512
"""Rows that are read and turned into numbers at once."""


@contextmanager
def _csv_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[str]]]]]:
    """Open a table of plain cells, as `edge_agent.sources.door` found it to be; it may be compressed."""
    is_packed = place.text.lower().endswith(".gz")
    try:
        with (gzip.open if is_packed else open)(place.text, "rt", encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text)  # type: ignore[arg-type]
            names = header(place.text, next(reader, []))
            filled = (cells for cells in reader if cells)  # blank lines (an editor's last one, say) are skipped
            yield names, iter(lambda: list(islice(filled, BLOCK)), [])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as fault:
        raise DataError(
            f"cannot be read as CSV ({fault})", "Look at its begin, and copy it again", place.text
        ) from fault


def _parquet_columns(place: Location) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Return names and columns of a Parquet file; points and spans of time become seconds, as from a database."""
    path = Path(place.text)
    if not path.exists():
        raise DataError("there is no such file", "Check its name and its folder", str(path))
    try:
        # Optional, and large: an agent that reads CSV must not pay for it.
        from pyarrow import ArrowException, parquet  # noqa: PLC0415

        from edge_agent.sources.arrow import column_of  # noqa: PLC0415
    except ImportError as fault:
        mend = "Install it with: pip install 'glassfleet[parquet]', or convert the file to CSV"
        raise DataError("reading Parquet needs pyarrow", mend, str(path)) from fault
    try:
        schema = parquet.read_schema(path)  # before its rows: two columns of one name are told by pyarrow on many lines
        column_names(str(path), schema.names)
        table = parquet.read_table(path, columns=[name for name in schema.names if name not in _index_of(schema)])
        names = column_names(str(path), table.column_names)
        return names, [column_of(str(path), name, column) for name, column in zip(names, table.columns, strict=True)]
    except (ArrowException, OSError) as fault:
        reason = str(fault).partition("\n")[0].partition(". ")[0]
        raise DataError(f"not a readable Parquet file ({reason})", "Write or copy it again", str(path)) from fault


def _index_of(schema: Any) -> set[str]:
    """Return the columns that pandas wrote to number the rows: they say nothing of a drive."""
    index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return {name for name in schema.names if name in index or re.fullmatch(r"__index_level_\d+__", name)}


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
    "a table as loggers and spreadsheets write it; one that is not plain is converted first, which needs duckdb",
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
