"""A file as the rows of an experiment: inputs, target, and the categories of columns of text."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from edge_agent.sources import SPLIT, Source, read_source, read_table
from edge_agent.sources.columns import target_of
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset, pool
from schemas.errors import DataError, UsageError

MAX_CLASSES = 100
"""Most classes of a target: one with more is rather a number."""


def read_rows(path: Path, target: str | None, scheme: Scheme, *, labels: bool = False) -> Dataset:
    """Read all rows of a file for a scheme, without a column ``split``: the protocol makes its own folds.

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
    source = source_of(path, target, scheme, labels=labels)
    for line in source.warnings:
        click.echo(f"{path}: {line}", err=True)
    data = source.train
    if source.test.rows:
        click.echo(f"{path}: the column {SPLIT!r} is left out; the protocol makes its own folds", err=True)
        data = pool([source.train, source.test])
    if data.y.dtype.kind == "U" and (different := len(np.unique(data.y))) > MAX_CLASSES:
        raise DataError(
            f"{path}: the target {data.target!r} has {different} different values, more than {MAX_CLASSES} classes. "
            "Name a column of classes with --target, or use a scheme for regression such as frt"
        )
    return data


def source_of(
    path: Path, target: str | None, scheme: Scheme, *, labels: bool = False, hold_back: bool = False
) -> Source:
    """Read a file as a vehicle with a scheme does; see :func:`edge_agent.sources.read_source`.

    The target is classes where it is text or `labels`, if the scheme learns them.
    """
    if not labels and len(scheme.purpose) > 1:
        table = read_table(path, missing=None)
        labels = target_of(target, table.names) in table.text
    takes = {"categories": scheme.abilities.categories, "missing": scheme.abilities.missing_cells}
    classes = labels or "regression" not in scheme.purpose
    return read_source(path, target=target, labels=classes, hold_back=hold_back, **takes)
