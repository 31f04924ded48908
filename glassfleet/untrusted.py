"""What schemes share when they read what a peer sent: tasks, answers, and rows that may not be the ones asked for.

A scheme's own rules stay in its folder; here is what would stand in each of them word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Task
from schemas.codec import Value

K = TypeVar("K", bound=str)
P = TypeVar("P", bound=BaseModel)
Q = TypeVar("Q")

_REMEMBERED = 4


@contextmanager
def task_errors() -> Iterator[None]:
    """Turn what malformed values raise into a :class:`TaskError` with the reason."""
    try:
        yield
    except TaskError:
        raise
    except ValidationError as fault:
        first = fault.errors()[0]
        raise TaskError(f"{fault.title}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from fault
    except (KeyError, TypeError, AttributeError) as fault:
        raise TaskError(f"the task lacks or misshapes {fault}") from fault
    except ValueError as fault:
        raise TaskError(str(fault)) from fault


def read_task_head(task: Task, name: str, kinds: Collection[K], Parameters: type[P]) -> tuple[K, P, Domain]:
    """Read what every task of the scheme `name` holds; return kind, parameters and domain.

    Raises
    ------
    TaskError
        The task is another scheme's, of no known kind, or malformed.
    """
    kind = next((known for known in kinds if known == task.kind), None)
    if task.scheme != name or kind is None:
        raise TaskError(f"not a question of {name}: {task.scheme}/{task.kind}")
    if not isinstance(task.body, Mapping):
        raise TaskError("the task has no body")
    with task_errors():
        return kind, Parameters.model_validate(task.body["parameters"]), Domain.from_document(task.body["domain"])


class Remembered(Generic[Q]):
    """Reads tasks, each only once: a coordinator checks a thousand answers against one task.

    Bodies are compared by identity and held, so that a body can neither be taken for another nor be collected while it
    is remembered.

    Parameters
    ----------
    read : callable
        Reads a task; raises TaskError.
    """

    def __init__(self, read: Callable[[Task], Q]) -> None:
        self._read = read
        self._recent: list[tuple[Mapping[str, Value], str, str, Q]] = []

    def __call__(self, task: Task) -> Q:
        """Return what `task` asks; raises TaskError with the reason, and nothing else, whatever it holds."""
        for body, scheme, kind, question in self._recent:
            if body is task.body and (scheme, kind) == (task.scheme, task.kind):
                return question
        question = self._read(task)
        self._recent[:] = [(task.body, task.scheme, task.kind, question), *self._recent[: _REMEMBERED - 1]]
        return question


def check_names(what: str, given: Mapping[str, Any], expected: Collection[str]) -> None:
    """Raise :class:`ContributionError` unless `given` has the members `expected`; `what` they are, for the message."""
    if set(given) != set(expected):
        raise ContributionError(f"expected the {what} {sorted(expected)}, got {sorted(map(str, given))[:12]}")


def check_shapes(sums: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise :class:`ContributionError` unless `sums` are those of `shapes`, by name, and not negative."""
    check_names("sums", sums, shapes)
    for name, shape in shapes.items():
        if sums[name].shape != shape:
            raise ContributionError(f"{name} has shape {sums[name].shape}, expected {shape}")
        if sums[name].size and int(sums[name].min()) < 0:
            raise ContributionError(f"{name} is negative")


def select_columns(data: Dataset, domain: Domain) -> Dataset:
    """Return the columns of `data` that `domain` names, in its order; raises TaskError when one is missing."""
    try:
        return data.select(domain.names)
    except KeyError as fault:
        raise TaskError(f"there is no column {fault} here") from fault


def select_numbers(data: Dataset, domain: Domain) -> Dataset:
    """Return the rows for a run with a numeric target: columns as :func:`select_columns`.

    Raises
    ------
    TaskError
        The vehicle has another target, or one that is not numeric, or lacks a column.
    """
    if data.target != domain.target_name:
        raise TaskError(f"the target here is {data.target!r}, the run asks for {domain.target_name!r}")
    if data.y.dtype.kind != "f":
        raise TaskError("the target here is not numeric")
    return select_columns(data, domain)
