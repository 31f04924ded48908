"""The rows of a vehicle that a task is answered from: its columns, its classes, at most so many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.data.sampling import draw
from glassfleet.errors import TaskError

Ints = NDArray[np.int64]


def select_columns(data: Dataset, domain: Domain) -> Dataset:
    """Return the columns of `data` that `domain` names, in its order.

    Raises
    ------
    TaskError
        One is missing, or has empty cells that the run does not know.
    """
    try:
        selected = data.select(domain.names)
    except KeyError as fault:
        raise TaskError(f"there is no column {fault} here") from fault
    empty = np.isnan(selected.X)
    for index in np.flatnonzero(empty.any(axis=0)).tolist():
        variable = domain.features[index]
        if variable.missing is None and not (variable.categories and empty[:, index].all()):
            raise TaskError(
                f"column {variable.name!r} has empty cells here, and the run knows none: fill them, or use a "
                "scheme that takes them and limits that are found, or a domain that says what they are taken for"
            )
    return selected


def select_numbers(data: Dataset, domain: Domain) -> Dataset:
    """Return the rows for a run with a numeric target: columns as :func:`select_columns`.

    Raises
    ------
    TaskError
        The vehicle has another target, or one that is not numeric, or lacks a column.
    """
    _check_target(data, domain)
    if data.y.dtype.kind != "f":
        raise TaskError("the target here is not numeric")
    return select_columns(data, domain)


def class_numbers(data: Dataset, domain: Domain) -> Ints:
    """Return each row's position among the classes of the run, shape (n,); -1 for other labels.

    Raises
    ------
    TaskError
        The vehicle has another target, or a numeric one.
    """
    _check_target(data, domain)
    if data.y.dtype.kind not in "UO":
        raise TaskError(f"the target {data.target!r} is numeric here; this run needs class labels (text)")
    known, labels = np.array(domain.classes, dtype=np.str_), data.y.astype(np.str_)
    number = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[number] == labels, number, -1).astype(np.int64)


def known_class_numbers(data: Dataset, domain: Domain) -> Ints:
    """Return the same of rows of which at least one has a class of the run; raises TaskError for others, too."""
    numbers = class_numbers(data, domain)
    if data.rows and (numbers < 0).all():
        raise TaskError(
            f"no row's {data.target!r} is one of the run's {len(domain.classes)} classes: "
            f"{', '.join(domain.classes[:10])}"
        )
    return numbers


def _check_target(data: Dataset, domain: Domain) -> None:
    if data.target != domain.target_name:
        raise TaskError(f"the target here is {data.target!r}, the run asks for {domain.target_name!r}")


def drawn_for(task: Task, data: Dataset) -> Dataset:
    """Return the rows that `task` is answered from: at most its ``max_rows_each``; raises TaskError.

    Histograms of discovery are of all rows, whatever the task says: those of k and of k + 1 rows would differ by one
    row, and questions that narrow then read it in all columns. The coordinator weighs them down instead.
    """
    if task.scheme == "domain" or data.rows <= task.max_rows_each or not task.max_rows_each:
        return data
    domain = task.body.get("domain")
    named: Any = domain.get("features") if isinstance(domain, dict) else None
    if not isinstance(named, list):
        raise TaskError("the task limits the rows of a vehicle, and does not say by which columns they are drawn")
    try:
        return draw(data, [each["name"] if isinstance(each, dict) else each for each in named], task.max_rows_each)
    except KeyError as fault:
        raise TaskError(f"column {fault} is missing here") from fault
