"""What people give estimators, as schemes take it: texts of a data frame's columns, names and labels of targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.scheme import Scheme
from glassfleet.data.categories import MAX_LENGTH
from glassfleet.data.cells import MISSING, truth_of


def text_columns(tables: Sequence[Any]) -> set[str]:
    """Return the columns of data frames that are of text: to all of them, also where one has other cells alone."""
    frames = [frame for table in tables if (frame := _frame(table)) is not None]
    return {column.name for frame in frames for column in frame.iter_columns() if _has_text(column)}


def _frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return a data frame of any library; None where it is none."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _cells(column: nw.Series[Any]) -> list[Any]:
    """Return a column's cells, None where they are empty."""
    return [None if gone else cell for cell, gone in zip(column.to_list(), column.is_null().to_list(), strict=True)]


def _has_text(column: nw.Series[Any]) -> bool:
    is_plain = column.dtype.is_numeric() or column.dtype == nw.Boolean
    return not is_plain and any(isinstance(cell, str) for cell in column.to_list())


def coded(X: Any, scheme: Scheme, learner: str, texts: Collection[str] = ()) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return a data frame with its texts as positions among them, and the texts by column; other rows as given.

    Columns `texts` are of text, though only whole numbers or empty cells may be here.

    Raises
    ------
    ValueError
        A column is of a kind that `scheme`, whose estimator is called `learner`, does not take.
    """
    categories: dict[str, tuple[str, ...]] = {}
    frame = _frame(X)
    if frame is None:
        return X, categories
    for column in frame.iter_columns():
        name = column.name
        if column.dtype.is_temporal():
            raise ValueError(f"column {name!r} holds times: make numbers of it, e.g. the hour, or leave it out")
        if name not in texts and not _has_text(column):
            continue
        cells = _cells(column)
        some = [cell for cell in cells if cell is not None]
        if column.dtype == nw.Boolean or (column.dtype.is_float() and some):
            continue
        if not scheme.abilities.categories:
            truth = truth_of(cell for cell in some if isinstance(cell, str))
            if truth is None:
                raise ValueError(f"column {name!r} holds text, and {learner} takes numbers: leave it out, or encode it")
            numbers = [truth.get(cell, np.nan) for cell in cells]
        else:
            if len(some) < len(cells) and not scheme.abilities.missing_cells:
                raise ValueError(f"column {name!r} has empty cells: fill them, or leave these rows out")
            own = sorted({MISSING if cell is None else str(cell) for cell in cells})
            place = {text: float(number) for number, text in enumerate(own)}
            numbers, categories[name] = [place[MISSING if cell is None else str(cell)] for cell in cells], tuple(own)
        frame = frame.with_columns(nw.new_series(name, numbers, nw.Float64, backend=frame.implementation).alias(name))
    return frame.to_native(), categories


def row_of(x: Any) -> Any:
    """Return a data frame of one row as a mapping of column to value; anything else as it is."""
    frame = _frame(x)
    if frame is None:
        return x.to_dict() if hasattr(x, "to_dict") and np.ndim(x) == 1 else x
    if len(frame) != 1:
        raise ValueError(f"one row is needed, got {len(frame)}")
    return {column.name: _cells(column)[0] for column in frame.iter_columns()}


def without_sign_of_zero(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels; -0.0 becomes 0.0, which is the same label and another text."""
    return labels + 0 if labels.dtype.kind == "f" else labels


def name_of(y: Any) -> str:
    """Return the name of a column of targets as pandas knows it; ``"y"`` where it has none."""
    names = getattr(y, "columns", [getattr(y, "name", None)])
    return names[0] if len(names) == 1 and isinstance(names[0], str) and names[0] else "y"


def label_texts(labels: Iterable[Any]) -> list[str]:
    """Return labels as the texts that name them in documents and rules: 1 is ``"1"``."""
    texts = [str(label) for label in labels]
    for text in texts:
        if not 0 < len(text) <= MAX_LENGTH:
            raise ValueError(f"a class label must be a text of 1 to {MAX_LENGTH} characters, got {text[:20]!r}")
    return texts
