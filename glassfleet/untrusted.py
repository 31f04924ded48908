"""What schemes share when they read what a peer sent: tasks, answers, and rows that may not be the ones asked for.

A scheme's own rules stay in its folder; here is what would stand in each of them word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.numerics.statistics import are_semidefinite, gram_value, limb_bits, triangle, unpack_symmetric
from glassfleet.scheme import Contribution, Task
from schemas.codec import Value
from schemas.errors import UsageError

K = TypeVar("K", bound=str)
P = TypeVar("P", bound=BaseModel)
Q = TypeVar("Q")

Ints = NDArray[np.int64]

_REMEMBERED = 4


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


def check_head(task: Task, contribution: Contribution, max_rows: int | None = None, *, sums_only: bool = False) -> None:
    """Raise :class:`ContributionError` unless an answer is of the task's kind, and from at most `max_rows` rows.

    `sums_only`: it must hold nothing else than sums.
    """
    if contribution.kind != task.kind:
        raise ContributionError(f"the answer is about {contribution.kind!r}, the question was {task.kind!r}")
    if max_rows is not None and contribution.rows > max_rows:
        raise ContributionError(f"{contribution.rows} rows, the grid is good for {max_rows}")
    if sums_only and contribution.values:
        raise ContributionError("this scheme sends sums only")


def check_names(what: str, given: Mapping[str, Any], expected: Collection[str]) -> None:
    """Raise :class:`ContributionError` unless `given` has the members `expected`; `what` they are, for the message."""
    if set(given) != set(expected):
        raise ContributionError(f"expected the {what} {sorted(expected)}, got {sorted(map(str, given))[:12]}")


def check_shapes(
    sums: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]], signed: Collection[str] = ()
) -> None:
    """Raise :class:`ContributionError` unless `sums` are those of `shapes`, by name, and none but `signed` negative."""
    check_names("sums", sums, shapes)
    for name, shape in shapes.items():
        if sums[name].shape != shape:
            raise ContributionError(f"{name} has shape {sums[name].shape}, expected {shape}")
    positive = [name for name in shapes if name not in signed]
    # All at once: of a coordinator's time for a small answer most is spent on calls, not on numbers.
    if positive and (np.concatenate([sums[name].ravel() for name in positive]) < 0).any():
        negative = next(name for name in positive if (sums[name] < 0).any())
        place = np.argwhere(sums[negative] < 0)[0].tolist()
        raise ContributionError(f"{negative} is negative at {place}: {sums[negative][tuple(place)]}")


def at_most(
    left: NDArray[Any] | float,
    right: NDArray[Any] | float,
    what: str,
    where: Callable[[Sequence[int]], object] = list,
) -> None:
    """Raise :class:`ContributionError` where `left` is above `right`: `what`, both numbers, and the first place.

    `where` names a place; the sender then knows which cell it has to look at.
    """
    above = np.greater(left, right)
    if above.any():  # `np.any` takes two to three times as long for a small answer
        place = tuple(np.argwhere(above)[0].tolist())
        found, most = (np.broadcast_to(each, above.shape)[place] for each in (left, right))
        raise ContributionError(f"{what}: {found} is above {most}" + (f" at {where(place)}" if place else ""))


def check_told(contribution: Contribution, least: int, name: str = "rows") -> None:
    """Raise :class:`ContributionError` unless the counts `name` end at `least` in each vehicle: more is not told."""
    vehicles = 1 if contribution.vehicles is None else contribution.vehicles
    most = min(contribution.rows, least * max(1, vehicles))
    at_most(contribution.sums[name], most, "more rows than can be told")


def check_histogram(histogram: Ints, rows: int) -> None:
    """Raise :class:`ContributionError` unless the histogram of each input, shape (F, bins), counts each row once."""
    at_most(histogram, rows, "a histogram counts more rows than there are")
    of_each = histogram.sum(axis=1)
    if (of_each != rows).any():
        column = int(np.flatnonzero(of_each != rows)[0])
        raise ContributionError(f"the histogram of input {column} counts {of_each[column]} rows, expected {rows}")


def check_products(sums: Ints, k: int, rows: int, bits: int) -> None:
    """Raise :class:`ContributionError` unless sums of products, none negative, can be those of so many rows.

    Parameters
    ----------
    sums : ndarray of int64, shape (m, k (k + 1) / 2)
        Of weights in [0, 1], times the products of all pairs of k columns in [0, 1], of which the first is 1.
    k, rows : int
    bits : int
        Weights and products are rounded to multiples of 2^-bits each.

    Notes
    -----
    Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact.
    """
    first, second = triangle(k)
    at_most(sums[:, 0], rows << (2 * bits), "a node's weight exceeds the agent's rows")
    # The first k entries are the sums of the columns; no product in [0, 1] exceeds either of its factors.
    at_most(sums, sums[:, first], "a sum of products exceeds the sum of one of its factors")
    at_most(sums, sums[:, second], "a sum of products exceeds the sum of one of its factors")
    full = unpack_symmetric(sums.astype(np.float64) * 2.0 ** (-2 * bits), k)
    # Weights and products are rounded by at most half a unit each.
    slack = rows * 2.0 ** (1 - bits) * k + 1e-9 * np.trace(full, axis1=1, axis2=2)
    check_semidefinite(full, slack, "sums of products are not positive semi-definite")


def check_regressions(what: str, contribution: Contribution, columns: int, bits: int, gram_bits: int) -> None:
    """Raise :class:`ContributionError` unless weighted regressions of rows in [0, 1] can have these sums.

    Bounds are exact where rounding is monotone, and have a small tolerance elsewhere.

    Parameters
    ----------
    what : str
        What has a regression, for the message: a leaf, or a rule.
    contribution : Contribution
        Of an agent, or the sum of a group. Its sums are, for each of r: ``count`` of rows and ``ws``, the sum of
        weights w, shape (r,); ``gram_high`` and ``gram_low``, limbs of the upper triangle of the Gram sums of
        sqrt(w) [x, 1, y].
    columns : int
        Of a regression, the target included.
    bits, gram_bits : int
        Fraction bits of weights, and of the entries of regressions.
    """
    sums = contribution.sums
    count, ws = sums["count"], sums["ws"]
    at_most(count, contribution.rows, f"a {what}'s count exceeds the agent's rows")
    at_most(ws, count << bits, f"a {what}'s WS exceeds its count")
    # Each vehicle carries its own limbs; those of a group's sum are not carried yet.
    if (sums["gram_low"] >> limb_bits(gram_bits) >= max(1, contribution.vehicles or 1)).any():
        raise ContributionError("a low limb of a Gram matrix is too large")
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=gram_bits), columns)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    ones = diagonal[:, -2]  # the intercept's column: sqrt(w), the largest entry of each row
    if (gram > ones[:, None, None]).any():
        raise ContributionError("a Gram entry exceeds the intercept's")
    # The sum of rounded sqrt(w) squared is WS up to (sqrt(w) + 1 / 4) grid units per row, and WS up to half a unit.
    expected = ws.astype(np.float64) * 2.0 ** (2 * gram_bits - bits)
    tolerance = count.astype(np.float64) * (2.0**gram_bits + 1.0 + 2.0 ** (2 * gram_bits - bits)) + 1e-9 * expected
    if (np.abs(ones - expected) > tolerance).any():
        raise ContributionError(f"a {what}'s Gram matrix contradicts its WS")
    check_semidefinite(gram, 1e-9 * diagonal.sum(axis=1), f"a {what}'s Gram matrix is not positive semi-definite")


def check_semidefinite(matrices: NDArray[np.float64], room: NDArray[np.float64], what: str) -> None:
    """Raise :class:`ContributionError` with the text `what` unless symmetric matrices are positive semi-definite.

    Parameters
    ----------
    matrices : ndarray, shape (m, k, k)
    room : ndarray, shape (m,)
        How far below 0 an eigenvalue of each may be, for rounding; >= 0.
    """
    if not are_semidefinite(matrices, room):
        raise ContributionError(what)


def check_qualities(what: str, contribution: Contribution, bits: int) -> None:
    """Raise :class:`ContributionError` unless ``ws`` and ``wq`` can be sums of weights, and of their qualities."""
    sums = contribution.sums
    at_most(sums["ws"], contribution.rows << bits, f"a {what}'s WS exceeds the agent's rows")
    at_most(sums["wq"], sums["ws"], f"a {what}'s quality sum exceeds its WS")


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
