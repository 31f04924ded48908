"""What schemes of exact sums share: how they ask, add up, and keep a digest of all that a model rests on."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.checks import check_head, check_shapes
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Abilities, Cost, Participation, PrivateRuns, Purpose
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_classes,
    check_numeric,
    read_task_head,
    task_errors,
    task_head,
    usage_errors,
)
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.model.protocol import Model
from schemas.codec import Value, encode
from schemas.errors import RunFailedError

Q = TypeVar("Q", bound="SchemeQuestion")
P = TypeVar("P", bound=BaseModel)
Sums = dict[str, NDArray[np.int64]]
Memory = dict[str, Any]
"""What a server half keeps while a question is open."""


class SumScheme(ABC, Generic[Q]):
    """A scheme whose clients answer with exact sums, over their rows as they are or condensed: both of its halves.

    A subclass says what it asks, what a vehicle answers and what follows; messages, checks of shapes, private runs and
    costs are here.

    Attributes
    ----------
    name, title, purpose, participation, Parameters
        As :class:`~glassfleet.contract.scheme.Scheme` has them.
    kinds : tuple of str
        Of its questions, the first one first, where `read` and `first` are not its own.
    own_kinds : frozenset of str
        Of questions whose answers hold more than sums; `check_sums` alone checks these.
    signed : frozenset of str
        Sums that may be negative.
    max_classes : int
        Most classes of a scheme that learns these alone.
    is_exact : bool
        Whether `equals_central` says when fleet and central model are equal; else they never are.
    declared : Abilities
        What the scheme can do beside, without what is said here.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    purpose: ClassVar[frozenset[Purpose]]
    participation: ClassVar[frozenset[Participation]] = frozenset({"cohort", "elastic"})
    Parameters: ClassVar[type[BaseModel]]
    kinds: ClassVar[tuple[str, ...]] = ()
    own_kinds: ClassVar[frozenset[str]] = frozenset()
    signed: ClassVar[frozenset[str]] = frozenset()
    max_classes: ClassVar[int] = 256
    is_exact: ClassVar[bool] = True
    declared: ClassVar[Abilities] = Abilities()

    def __init__(self) -> None:
        self._read = self.read if isinstance(self.read, Remembered) else Remembered(self.read)

    @abstractmethod
    def shapes(self, question: Q) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums that answer `question`; raises TaskError where they are no sums."""

    @abstractmethod
    def answer(self, question: Q, data: Dataset) -> Contribution:
        """Return a vehicle's answer; raises TaskError where it has none."""

    @abstractmethod
    def step(self, question: Q, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
        """Return what follows from all answers to `question`; `memory` is what was kept when it was asked."""

    @abstractmethod
    def from_document(self, document: Mapping[str, Any]) -> Model:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""

    def check_domain(self, domain: Domain) -> None:
        """Raise ValueError, with the reason, unless the scheme can learn the domain's target."""
        if self.purpose == {"regression"}:
            check_numeric(domain, self.name)
        elif self.purpose == {"classification"}:
            check_classes(domain, self.name, self.max_classes)

    def first(self, parameters: Any, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - mostly nothing is random
        """Return the first step, see `ask`, for a domain that was checked; raises ValueError."""
        task = Task(self.name, self.kinds[0], task_head(parameters, domain))
        return Next({"kind": task.kind, "body": task.body}, task)

    def read(self, task: Task) -> Q:
        """Read a task without trust; raises TaskError."""
        kind, parameters, domain = read_task_head(task, self.name, self.kinds, self.Parameters)
        with task_errors():
            self.check_domain(domain)
        return cast("Q", SchemeQuestion(kind, parameters, domain))

    def check_sums(self, question: Q, contribution: Contribution) -> None:
        """Raise ContributionError unless sums of the right shapes can be a true answer to `question`."""

    def shown(self, question: Q, memory: Memory) -> Mapping[str, Value]:  # noqa: ARG002 - as the scheme likes
        """Return what has grown so far, for displays; see :meth:`glassfleet.contract.scheme.Server.progress`."""
        return {"stage": question.kind}

    def max_rows(self, parameters: Any) -> int:
        """Return the largest total number of rows that the sums are good for."""
        most: int = getattr(parameters, "max_rows", 1 << 31)
        return most

    def exact(self, parameters: P) -> P:
        """Return `parameters` with which rows are neither condensed nor protected otherwise."""
        least = {"min_rows": 1, "nullify": False}
        return parameters.model_copy(update={name: least[name] for name in least if hasattr(parameters, name)})

    def equals_central(self, parameters: Any) -> bool:
        """Return whether the fleet's model equals the central one whoever has which rows: where all is asked.

        With `support` it does so under the run's record of what was withheld.
        """
        return not getattr(parameters, "support", 0)

    def private(self, parameters: Any) -> Any:
        """Return the parameters of a private run."""
        return self.exact(parameters)

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        return self.shapes(self._read(task))

    def cost(self, question: Q, rows: int) -> Cost:
        """Return what an answer may take: a pass over the rows, and the sums."""
        sums, cells = sum(map(math.prod, self.shapes(question).values())), rows * question.n_features
        return Cost(1e-7 * (cells + sums), (40 * cells + 40 * sums) / 1e6)

    # --- the contract -----------------------------------------------------------------------------------------------

    @property
    def client(self) -> Self:
        """The client half."""
        return self

    @property
    def server(self) -> Self:
        """The server half."""
        return self

    @cached_property
    def abilities(self) -> Abilities:
        """What the scheme can do beside: what it declares, and what follows from its answers being sums."""
        return replace(
            self.declared,
            equals_central=self.equals_central if self.is_exact else None,
            cost=lambda task, rows: self.cost(self._read(task), rows),
            private=PrivateRuns(self.layout, self.private, lambda task: self._read(task).most_told),
        )

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:  # noqa: ARG002
        """Answer `task`; see :class:`glassfleet.contract.scheme.Client`. No randomness is used."""
        question = self._read(task)
        given, most = self.answer(question, data), self.max_rows(question.parameters)
        if given.rows > most:
            raise TaskError(f"{given.rows} rows, the run's grid is good for {most}")
        return given

    def start(self, parameters: Any, domain: Domain, seed: int) -> Next:
        """Return the first state and task."""
        with usage_errors():
            self.check_domain(domain)
            return self.first(parameters, domain, seed)

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        question = self._read(task)
        own = question.kind in self.own_kinds
        check_head(task, contribution, self.max_rows(question.parameters), sums_only=not own)
        if not own:
            check_shapes(contribution.sums, self.shapes(question), self.signed)
        self.check_sums(question, contribution)

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task into the next task or the model."""
        return self.step(self._open(state), memory_of(state), contributions)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Say in a few numbers and words what has grown so far."""
        return self.shown(self._open(state), memory_of(state))

    def _open(self, state: State) -> Q:
        return self._read(Task(self.name, state["kind"], state["body"]))


class Asks(Protocol):
    """A scheme's question."""

    def to_task(self) -> Task:
        """Return the task that asks this."""


def ask(question: Asks, memory: Mapping[str, Value]) -> Next:
    """Return the step that asks `question`; the server half keeps `memory`, which :func:`memory_of` returns."""
    task = question.to_task()
    return Next({**memory, "kind": task.kind, "body": task.body}, task)


def memory_of(state: State) -> dict[str, Any]:
    """Return what a server half kept when it asked the open task."""
    return {name: value for name, value in state.items() if name not in ("kind", "body")}


def taken_up(memory: Mapping[str, Any], contributions: Sequence[Contribution], most: int) -> tuple[int, Sums, Memory]:
    """Return the rows of all who answered, the sums of all answers, and the memory with ``sums_digest`` chained.

    Raises
    ------
    RunFailedError
        As :func:`count_rows`.
    """
    rows, sums = count_rows(contributions, most), add_up(contributions)
    return rows, sums, with_digest(memory, rows, sums)


def with_digest(memory: Mapping[str, Any], rows: int, sums: Mapping[str, Value]) -> Memory:
    """Return the memory with the digest of all sums so far."""
    digest = chained_digest(memory.get("sums_digest", ""), {"rows": rows, "sums": dict(sums)})
    return {**memory, "sums_digest": digest}


def add_up(contributions: Sequence[Contribution]) -> Sums:
    """Return the sums of all contributions, which have the same names and shapes, by name."""
    total = {name: array.copy() for name, array in contributions[0].sums.items()}
    for contribution in contributions[1:]:
        for name, array in contribution.sums.items():
            total[name] += array
    return total


def count_rows(contributions: Sequence[Contribution], most: int) -> int:
    """Return the rows of all who answered.

    Raises
    ------
    RunFailedError
        ``no-rows``; or ``too-many-rows``: more than `most`, for which the sums are good.
    """
    rows = sum(contribution.rows for contribution in contributions)
    if rows == 0:
        raise RunFailedError(
            "no agent that answered has any rows to use. Bring more rows: where they are condensed, more different "
            "ones than there are columns, and at least min_rows; or use them as they are (min_rows=1)",
            "no-rows",
        )
    if rows > most:
        raise RunFailedError(
            f"{rows} rows in all, the sums are good for {most}; use fewer agents, or let fewer rows of each count "
            "(max_rows_each)",
            "too-many-rows",
        )
    return rows


def chained_digest(before: str, value: Mapping[str, Value]) -> str:
    """Return the digest of all sums so far: SHA-256 of the previous digest and this round's encoded value."""
    return hashlib.sha256(before.encode() + encode(dict(value))).hexdigest()
