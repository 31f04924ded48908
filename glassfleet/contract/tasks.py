"""Reading tasks without trust, each only once, and checking that a domain is one that a scheme can learn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from glassfleet.contract.messages import Task
from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from schemas.codec import Value
from schemas.errors import UsageError

K = TypeVar("K", bound=str)
P = TypeVar("P", bound=BaseModel)
Q = TypeVar("Q")

_REMEMBERED = 32
"""Tasks: those of a usual run, as at its end each vehicle's answers to all of them are looked at once more."""


@dataclass(frozen=True)
class SchemeQuestion:
    """A task, read and checked: what every scheme's questions have.

    Attributes
    ----------
    kind : str
        Which question.
    parameters : Parameters
        The run's parameters.
    domain : Domain
        The run's domain.
    """

    kind: str
    parameters: Any
    domain: Domain

    @property
    def n_features(self) -> int:
        """Number of inputs, F."""
        return len(self.domain.features)

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.domain.classes)

    @property
    def most_told(self) -> int:
        """At which number the counts of an answer end, where this is a question of support."""
        return 0


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


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError about what an operator asked for into a :class:`UsageError` with the same text."""
    try:
        yield
    except ValueError as fault:
        raise UsageError(str(fault)) from fault


def task_head(parameters: BaseModel, domain: Domain, max_rows: int | None = None) -> dict[str, Any]:
    """Return what the body of every task holds, `max_rows` where it is given; :func:`read_task_head` reads it."""
    head = {"parameters": parameters.model_dump(mode="json"), "domain": domain.to_document()}
    return head if max_rows is None else {**head, "max_rows": max_rows}


def read_task_head(
    task: Task, name: str, kinds: Collection[K], Parameters: type[P], max_rows: int | None = None
) -> tuple[K, P, Domain]:
    """Read what every task of the scheme `name` holds; return kind, parameters and domain.

    Raises
    ------
    TaskError
        The task is another scheme's, of no known kind, or malformed; or its grid is good for another number of rows
        than `max_rows`.
    """
    kind = next((known for known in kinds if known == task.kind), None)
    if task.scheme != name or kind is None:
        raise TaskError(f"not a question of {name}: {task.scheme}/{task.kind}")
    if not isinstance(task.body, Mapping):
        raise TaskError("the task has no body")
    with task_errors():
        if max_rows is not None and task.body["max_rows"] != max_rows:
            raise TaskError(f"the run's grid is good for {task.body['max_rows']!r} rows, this agent's for {max_rows}")
        return kind, Parameters.model_validate(task.body["parameters"]), Domain.from_document(task.body["domain"])


def check_integer(name: str, value: object, least: int, most: int) -> int:
    """Return `value`; raises TaskError, a ValueError, unless it is an integer from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise TaskError(f"{name} must be an integer in [{least}, {most}]")
    return value


def increasing(name: str, numbers: object, limit: int) -> tuple[int, ...]:
    """Return a task's list of numbers; raises TaskError unless they increase from 0 at least to below `limit`."""
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise TaskError(f"{name} is not a list of integers")
    if any(not 0 <= number < limit for number in numbers):
        raise TaskError(f"{name} holds a number outside [0, {limit})")
    if any(a >= b for a, b in pairwise(numbers)):
        raise TaskError(f"{name} does not increase")
    return tuple(numbers)


def check_array(name: str, value: object, dtype: type[np.generic], shape: Sequence[int | None]) -> NDArray[Any]:
    """Return `value`; raises TaskError, a ValueError, unless it is finite, of `dtype` and `shape` (None: any)."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        raise TaskError(f"{name} must be an array of {dtype.__name__}")
    if value.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise TaskError(f"{name} must have the shape ({wanted})")
    if not np.isfinite(value).all():
        raise TaskError(f"{name} must be finite")
    return value


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


def check_numeric(domain: Domain, scheme: str, most_inputs: int | None = None) -> None:
    """Raise ValueError, with the reason, unless `scheme` can learn the domain's target from so many inputs."""
    if domain.target is None:
        raise ValueError(f"{scheme} learns a numeric target; the domain has classes")
    check_inputs(domain, scheme, most_inputs)


def check_inputs(domain: Domain, scheme: str, most: int | None) -> None:
    """Raise ValueError unless the domain has at most `most` inputs; None: any number."""
    if most is not None and len(domain.features) > most:
        raise ValueError(f"{len(domain.features)} inputs; {scheme} takes at most {most}: choose fewer columns")


def check_classes(domain: Domain, scheme: str, most: int) -> None:
    """Raise ValueError, with the reason, unless `scheme` can learn the domain's classes, of at most `most`."""
    if domain.target is not None:
        raise ValueError(f"{scheme} learns classes; the domain has the numeric target {domain.target_name!r}")
    if len(domain.classes) > most:
        raise ValueError(
            f"{len(domain.classes)} classes, at most {most} are possible; is {domain.target_name!r} a class?"
        )
    check_class_order(domain)


def check_class_order(domain: Domain) -> None:
    """Raise ValueError unless the domain's classes, if any, are in the order that class numbers rest on."""
    if list(domain.classes) != sorted(set(domain.classes)):
        raise ValueError("the domain's classes must differ from each other and be in lexicographic order")
