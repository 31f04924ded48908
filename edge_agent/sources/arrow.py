"""Columns of Parquet files as arrays; pyarrow is an extra, and this module is imported only where it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edge_agent.sources.cells import no_cell


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
    kinds = pa.types
    numbers = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_boolean(kind)
    return bool(numbers or kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind))


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return points of time as seconds since 1970 (UTC where no zone is told), times of day and spans as seconds.

    Whatever unit a file has, the number is the same: vehicles whose loggers differ can learn together.
    """
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"), safe=False)
    elif pa.types.is_time32(kind):
        column = column.cast(pa.time64("us")) if kind.unit == "ms" else column
    unit = getattr(column.type, "unit", "s")
    per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    whole = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64()).cast(pa.float64(), safe=False)
    return pa.compute.divide(whole, per_second)
