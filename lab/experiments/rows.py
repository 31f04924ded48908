"""A CSV file as the rows of an experiment: inputs, target, and the categories of columns of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from edge_agent.sources import SPLIT, Table, read_table
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from schemas.errors import DataError, UsageError

MAX_CLASSES = 100
"""Most classes of a target: one with more is rather a number."""


def read_rows(path: Path, target: str | None, scheme: Scheme, *, labels: bool = False) -> Dataset:
    """Read a file for a scheme: a target of text, or a scheme that only classifies, makes it classification.

    Parameters
    ----------
    path : Path
    target : str or None
        Column; None: the last.
    scheme : Scheme
    labels : bool
        Numbers of the target are class labels too.

    Raises
    ------
    DataError
        The file cannot be used; the text names column and row, and what to do.
    UsageError
        `labels`, but the scheme learns numbers only.
    """
    if labels and "classification" not in scheme.purpose:
        raise UsageError(f"{scheme.name} learns numbers, not class labels; leave --labels out, or use frbc")
    table = read_table(path, missing=None if scheme.abilities.missing_cells else ())
    names = list(table.names)
    if SPLIT in names and target != SPLIT:
        names.remove(SPLIT)
        click.echo(f"{path}: the column {SPLIT!r} is left out; the protocol makes its own folds", err=True)
    chosen = target if target is not None else names[-1]
    table.column(chosen)  # says which columns there are when this is none of them
    features = [name for name in names if name != chosen]
    if not features:
        raise DataError(f"{path}: there is no column beside the target {chosen!r}. At least one input is needed")
    classifies = "classification" in scheme.purpose
    if classifies and (labels or "regression" not in scheme.purpose or chosen in table.text):
        y: NDArray[Any] = _labels(path, chosen, table.column(chosen))
    elif chosen in table.text and not classifies:
        raise DataError(
            f"{path}: the target {chosen!r} holds text ({str(table.column(chosen)[0])[:40]!r}), not a number as "
            f"{scheme.name} needs. Name a column of numbers with --target, or use one for classes such as tree"
        )
    else:
        y = table.matrix([chosen])[:, 0].copy()
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise DataError(f"{path}: the target {chosen!r} has an empty cell in row {int(np.isnan(y).argmax()) + 1}")
    X, categories = _inputs(table, features, scheme)
    return Dataset(tuple(features), chosen, X, y, categories=categories)


def _inputs(
    table: Table, features: list[str], scheme: Scheme
) -> tuple[NDArray[np.float64], dict[str, tuple[str, ...]]]:
    if not scheme.abilities.categories:
        return table.matrix(features), {}  # which names the first cell that is not a number
    X = np.empty((table.rows, len(features)))
    categories = {}
    for index, name in enumerate(features):
        column = table.column(name)
        if name in table.text:
            texts, column = np.unique(column.astype(np.str_), return_inverse=True)
            categories[name] = tuple(str(text) for text in texts)
        X[:, index] = column
    return X, categories


def _labels(path: Path, target: str, column: NDArray[Any]) -> NDArray[np.str_]:
    """Return a column as class labels; whole numbers lose their point."""
    texts = [f"{cell:.0f}" if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in column.tolist()]
    labels = np.array(texts, dtype=np.str_)
    different = len(set(texts))
    if different > MAX_CLASSES:
        raise DataError(
            f"{path}: the target {target!r} has {different} different values, more than {MAX_CLASSES} classes. Name a "
            "column of classes with --target, or use a scheme for regression such as frt"
        )
    return labels
