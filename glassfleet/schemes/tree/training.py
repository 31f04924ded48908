"""What learners share that hold some rows out: these rows, the first questions about them, and both halves around.

All begin alike: sums over categories where inputs are text, which give each category a level, then histograms and
products of all inputs (``"scan"``). In a private run with `support` it is asked before which inputs these may be
(``"columns"``). What follows is the learner's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.checks import check_head, check_shapes
from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Done, Next, State, Task
from glassfleet.contract.rows import class_numbers, known_class_numbers, select_columns, select_numbers
from glassfleet.contract.sums import Sums, ask, memory_of, taken_up
from glassfleet.contract.tasks import SchemeQuestion, increasing, read_task_head, task_errors, task_head, usage_errors
from glassfleet.data.categories import encode_inputs
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.data.holdout import is_first, is_held_out, row_hashes
from glassfleet.errors import TaskError
from glassfleet.fuzzy.category_sums import category_shapes, category_sums, check_category_sums, levels_of
from glassfleet.fuzzy.levels import Levels, check_levels, first_levels, has_categories, needs_levels, scaled_inputs
from glassfleet.fuzzy.splits import SplitTree
from glassfleet.model.rules import Condition
from glassfleet.numerics.edges import cells_of
from glassfleet.numerics.statistics import blocks
from glassfleet.private.columns import check_classes, check_values, columns_of, count_values, decide_columns
from glassfleet.private.support import noted, read_noted
from schemas.codec import Value
from schemas.errors import RunFailedError

Memory = dict[str, Any]

BEFORE_SCAN = frozenset({"levels", COLUMNS})
"""Kinds of questions that come before a scan."""

AHEAD_OF_LEVELS = frozenset({COLUMNS, "scan", SUPPORT, "categories"})
"""Kinds of questions that a run with `support` may ask before categories have levels."""


MOST_TIMES = 64
"""What a row may count at a time, so that sums of products of few rows stay exact."""

BLOCK_ROWS = 1 << 13
"""Rows of a block: what is computed of them fits into a processor's cache, and outweighs the calls."""


@dataclass(frozen=True)
class TrainingRows:
    """Rows for one domain.

    Attributes
    ----------
    domain : Domain
    X : ndarray of float64, shape (m, F)
        The domain's inputs in their own units; categories as positions among the domain's.
    order : ndarray of intp, shape (n,)
        Which of `X` the rows are: not a copy of what the vehicle has in memory.
    y : ndarray, shape (n,)
        The scaled target (float64), or class numbers (int64).
    training : int
        So many rows come first; the others are held out.
    levels : tuple of tuple of float
        Of categories, see :mod:`glassfleet.fuzzy.levels`; empty where there are none, or not yet.
    memo : dict
        A cache for what follows from the inputs.
    times : ndarray of float64, shape (n,), or None
        How often each row counts, a whole number up to :data:`MOST_TIMES`; None: all once.
    parts : int
        So many times are one row.
    """

    domain: Domain
    X: NDArray[np.float64]
    order: NDArray[np.intp]
    y: NDArray[Any]
    training: int
    levels: Levels = ()
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    times: NDArray[np.float64] | None = None
    parts: int = 1

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def weighed(self) -> tuple[int, int]:
        """How many rows train and are held out, by their weights; a part of a row counts as one."""
        if self.times is None:
            return self.training, self.count - self.training
        sums = [int(part.sum()) for part in (self.times[: self.training], self.times[self.training :])]
        return -(-sums[0] // self.parts), -(-sums[1] // self.parts)

    def times_of(self, chosen: slice | NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Return how often chosen rows count; None: all once."""
        return None if self.times is None else self.times[chosen]

    @cached_property
    def inputs(self) -> NDArray[np.float64]:
        """The inputs in [0, 1], shape (F, n)."""
        return np.minimum(scaled_inputs(self.domain, self.levels, self.X[self.order]), 1.0)  # excess may be more

    @property
    def target(self) -> NDArray[np.float64]:
        """The target in [0, 1], shape (n,): of classes their numbers, at equal steps."""
        return self.y if self.domain.target else class_values(self.domain)[self.y]

    @cached_property
    def blocks(self) -> list[Self]:
        """The same rows in parts, at least one, for sums that add up."""
        return [
            replace(
                self,
                order=self.order[block],
                y=self.y[block],
                times=self.times_of(block),
                training=min(max(self.training - block.start, 0), block.stop - block.start),
                memo={},
            )
            for block in blocks(self.count, BLOCK_ROWS)
        ] or [self]

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """A hash of each row with a number as its target, shape (n,)."""
        return row_hashes(self.inputs, self.y)

    @cached_property
    def different(self) -> NDArray[np.bool_]:
        """Which rows are no repetition of another one, shape (n,)."""
        return is_first(self.hashes)


def class_values(domain: Domain) -> NDArray[np.float64]:
    """Return a value of the target in [0, 1] for each class, shape (C,)."""
    return np.arange(len(domain.classes)) / max(1, len(domain.classes) - 1)


def training_rows(data: Dataset, domain: Domain, min_rows: int, holdout: float, levels: Levels = ()) -> TrainingRows:
    """Return the rows of `data` for a run, prepared once and kept in the dataset's memo.

    Parameters
    ----------
    data : Dataset
    domain : Domain
        The run's. Rows of classes that it lacks are left out.
    min_rows : int
        Fewest rows of a group of condensed rows; 1: rows are not condensed.
    holdout : float
        Share of the rows that are held out, in [0, 1).
    levels : tuple of tuple of float
        Of the domain's categories, where they are known.

    Raises
    ------
    TaskError
        The vehicle lacks a column, has another target or one of the other kind, or has none of the run's classes.
    """
    key = (domain, min_rows, holdout)
    plain = remembered(data.memo, "training rows", key, lambda: _prepared(data, *key))
    return remembered(plain.memo, "levels", levels, lambda: replace(plain, levels=levels, memo={}))


def _prepared(data: Dataset, domain: Domain, min_rows: int, holdout: float) -> TrainingRows:
    y: NDArray[Any]
    if domain.target is None:
        known_class_numbers(data, domain)
        own = condensed(select_columns(data, domain), domain, min_rows)
        y = class_numbers(own, domain)
        known = y >= 0
        X, y = domain.completed(encode_inputs(own, domain))[known], y[known]
    else:
        own = condensed(select_numbers(data, domain), domain, min_rows)
        X, y = domain.completed(encode_inputs(own, domain)), domain.scale_target(own.y)
    held = is_held_out(domain.scale_inputs(X).T, y.astype(np.float64), holdout)
    order = np.argsort(held, kind="stable")
    if own.weights is None:
        return TrainingRows(domain, X, order, y[order], int((~held).sum()))
    weights = own.weights if domain.target is not None else own.weights[known]
    pieces = -(-weights // MOST_TIMES)  # a heavy row stands there several times
    begins = np.cumsum(pieces[order]) - pieces[order]
    order, training = np.repeat(order, pieces[order]), int(pieces[~held].sum())
    before = MOST_TIMES * (np.arange(len(order)) - np.repeat(begins, pieces[order[begins]]))
    times = np.minimum(weights[order] - before, MOST_TIMES).astype(np.float64)
    return TrainingRows(domain, X, order, y[order], training, times=times, parts=own.parts)


@dataclass(frozen=True)
class TrainingQuestion(SchemeQuestion, ABC):
    """A task, read and checked: ``"levels"``, ``"columns"``, ``"scan"``, or of a kind of the learner's own.

    The learner adds what his own ask.

    Attributes
    ----------
    levels : tuple of tuple of float
        Of each input's categories; see :mod:`glassfleet.fuzzy.levels`. Empty where all inputs are numbers.
    varied : tuple of int or None
        ``"scan"`` of a run with `support`: inputs that may be columns of products, increasing. None: all may be.
    name, kinds, ParametersType
        The scheme's name, the kinds of its questions, and the class of its parameters.
    """

    levels: Levels = field(default=(), kw_only=True)
    varied: tuple[int, ...] | None = field(default=None, kw_only=True)

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    ParametersType: ClassVar[type[BaseModel]]
    max_rows: ClassVar[int]
    """Largest total number of rows that the sums are good for."""
    cells: ClassVar[int]
    """Cells of the histogram of an input."""

    @staticmethod
    @abstractmethod
    def check_domain(domain: Domain) -> None:
        """Raise ValueError, with the reason, unless the learner can learn the domain's target."""

    @abstractmethod
    def body(self) -> dict[str, Value]:
        """Return what a task of a kind of the learner's own holds beside parameters, domain and levels."""

    @abstractmethod
    def with_body(self, body: Mapping[str, Any]) -> Self:
        """Return this question with what `body` holds; may raise all that :func:`task_errors` makes a TaskError of."""

    @abstractmethod
    def side(self, node: int) -> Condition:
        """Return what the input that the split above `node` is on must be for a row to reach the node."""

    @property
    @abstractmethod
    def tree(self) -> SplitTree[Any]:
        """The splits so far, in the learner's own kind of tree."""

    @property
    @abstractmethod
    def asked(self) -> Collection[int]:
        """Nodes of the tree that the vehicles are asked about."""

    @property
    def holdout(self) -> float:
        """Share of the rows that are held out."""
        share: float = self.parameters.holdout
        return share

    @property
    def support(self) -> int:
        """Fewest rows on which a number rests that a private run opens; 0: any."""
        return getattr(self.parameters, "support", 0)

    @property
    def scanned(self) -> tuple[int, ...]:
        """``"scan"``: inputs whose products are summed."""
        return tuple(range(self.n_inputs)) if self.varied is None else self.varied

    @property
    def n_inputs(self) -> int:
        """Number of inputs, F, indicators of empty cells and excess among them."""
        return len(self.domain.inputs)

    @property
    def n_plain(self) -> int:
        """Number of inputs that a tree may be split on: all but the excess, which comes last."""
        return self.n_inputs - len(self.domain.excess)

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Value] = task_head(self.parameters, self.domain, self.max_rows)
        if self.levels:
            body["levels"] = [list(line) for line in self.levels]
        if self.kind == "scan" and self.varied is not None:
            body["varied"] = list(self.varied)
        return Task(self.name, self.kind, body if self.kind in BEFORE_SCAN | {"scan"} else body | self.body())

    @classmethod
    def from_task(cls, task: Task) -> Self:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, cls.name, cls.kinds, cls.ParametersType, cls.max_rows)
        with task_errors():
            cls.check_domain(domain)
            known = cls(kind, parameters, domain)
            if kind == "levels":
                if not has_categories(domain) or known.support:
                    raise TaskError("levels are asked for, and no input is text, or in a run with support")
                return known
            later = kind in AHEAD_OF_LEVELS and known.support > 0 and has_categories(domain)
            if "levels" in task.body or (needs_levels(domain) and not later):
                known = replace(known, levels=check_levels(task.body["levels"], domain))
            if kind == COLUMNS and not known.support:
                raise TaskError("a question of runs with support")
            if kind == "scan" and known.support:
                return replace(known, varied=increasing("varied", task.body["varied"], known.n_inputs))
            return known if kind in BEFORE_SCAN | {"scan"} else known.with_body(task.body)


def first_shapes(question: TrainingQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer a question that comes before the scan."""
    if question.kind == COLUMNS:
        return {"rows": (question.n_inputs + 1, question.cells)}
    return category_shapes(question.domain)


Q = TypeVar("Q", bound=TrainingQuestion)


@dataclass(frozen=True)
class TrainingClient(Generic[Q]):
    """The vehicle's half.

    Attributes
    ----------
    read_task : callable
        Returns a task's question; raises TaskError.
    answers : mapping of str to callable
        By kind of question from ``"scan"`` on: returns the sums over a vehicle's rows.
    """

    read_task: Callable[[Task], Q]
    answers: Mapping[str, Callable[[Q, TrainingRows], Sums]]

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:  # noqa: ARG002
        """Answer `task`; see :class:`glassfleet.contract.scheme.Client`. No randomness is used."""
        question = self.read_task(task)
        parameters, domain = question.parameters, question.domain
        rows = training_rows(data, domain, parameters.group_rows, question.holdout, question.levels)
        count = rows.count if rows.times is None else int(rows.times.sum())
        if count > question.max_rows:
            raise TaskError(f"{count} rows, the run's grid is good for {question.max_rows}")
        if question.kind == "levels":
            every = (
                np.arange(rows.count) if rows.times is None else np.arange(rows.count).repeat(rows.times.astype(int))
            )
            return Contribution("levels", count, category_sums(domain, rows.X[rows.order[every]], rows.y[every]))
        if question.kind == COLUMNS:
            own = np.flatnonzero(rows.different[: rows.training])
            counts = count_values(rows.inputs[:, own], rows.target[own], question.cells)
            return Contribution(COLUMNS, rows.count, {"rows": counts})
        return Contribution(question.kind, sum(rows.weighed), self.answers[question.kind](question, rows))


@dataclass(frozen=True)
class TrainingServer(Generic[Q]):
    """The coordinator's half: turns summed answers into the next question, or into the model.

    Attributes
    ----------
    Question : type of TrainingQuestion
    read_task : callable
        Returns a task's question; raises TaskError.
    check_sums : callable
        Raises ContributionError unless sums can answer a question from ``"scan"`` on.
    step : callable
        Returns what follows from the answers to a question from ``"scan"`` on: it is given the question, what was kept
        when it was asked, the rows of all who answered, and the sums.
    supported : callable or None
        Of learners that ask questions of :data:`~glassfleet.contract.messages.SUPPORT`: the same of these; it is given
        the question, what was kept, and the answers themselves.
    """

    Question: type[Q]
    read_task: Callable[[Task], Q]
    check_sums: Callable[[Q, Contribution], None]
    step: Callable[[Q, Memory, int, Sums], Next | Done]
    supported: Callable[[Q, Memory, Sequence[Contribution]], Next | Done] | None = None

    def start(self, parameters: Any, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - nothing is random
        """Ask for the sums of categories; where there are none, for histograms and the root's sums.

        With `support` first on how many rows it rests that an input has different values; of categories later.
        """
        with usage_errors():
            self.Question.check_domain(domain)
        levels = () if has_categories(domain) else first_levels(domain)
        first = self.Question("scan", parameters, domain, levels=levels)
        if first.support or has_categories(domain):
            first = replace(first, kind=COLUMNS if first.support else "levels")
        return ask(first, {"sums_digest": ""})

    def max_rows(self, parameters: Any) -> int:  # noqa: ARG002 - the same for all
        """Return the largest total number of rows that the sums are good for."""
        return self.Question.max_rows

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        question = self.read_task(task)
        check_head(task, contribution, question.max_rows, sums_only=True)
        if question.kind not in BEFORE_SCAN:
            self.check_sums(question, contribution)
            return
        sums, rows = contribution.sums, contribution.rows
        check_shapes(sums, first_shapes(question))
        if question.kind == COLUMNS:
            check_values(sums["rows"], rows)
        else:
            check_category_sums(question.domain, sums, rows)

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task into the next task or the model."""
        question = self._open(state)
        if question.kind == COLUMNS:
            return self._decided(question, memory_of(state), contributions)
        if self.supported is not None and question.kind == SUPPORT:
            return self.supported(question, memory_of(state), contributions)
        rows, sums, memory = taken_up(state, contributions, question.max_rows)
        if question.kind == "levels":
            return ask(replace(question, kind="scan", levels=levels_of(question.domain, sums)), memory)
        return self.step(question, memory, rows, sums)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Return stage, rules so far, leaves that are asked about, depth, and the tree drawn in lines."""
        question = self._open(state)

        def words_of(node: int) -> tuple[str, str]:
            condition = question.side(node)
            return condition.feature, condition.term

        return {"stage": question.kind, **question.tree.progress(question.asked, words_of)}

    def _decided(self, question: Q, memory: Memory, contributions: Sequence[Contribution]) -> Next:
        """Ask for the products of the inputs that may be columns."""
        domain, task, support = question.domain, question.to_task(), question.support
        texts = [place for place, variable in enumerate(domain.inputs) if variable.categories]
        # What empty cells are taken for.
        filled = domain.scale_inputs(domain.completed(np.full((1, len(domain.features)), np.nan)))[0]
        known = tuple((place, int(cells_of(filled[place], question.cells))) for place in domain.gaps)
        if domain.classes:
            cells = cells_of(class_values(domain), question.cells)
            check_classes(contributions, task, support, dict(zip(domain.classes, cells.tolist(), strict=True)))
        decision = decide_columns(contributions, task, support, texts, known)
        memory |= {"withheld": [noted(decision)], "values": decision}
        return ask(replace(question, kind="scan", varied=columns_of(decision)), memory)

    def _open(self, state: State) -> Q:
        return self.read_task(Task(self.Question.name, state["kind"], state["body"]))


def of_support(question: TrainingQuestion, memory: Mapping[str, Any]) -> dict[str, Value]:
    """Return what the summary of a run with `support` says: the record, and inputs that are no columns of products."""
    columns = columns_of(read_noted(memory["withheld"][0]))
    names = [each.name for place, each in enumerate(question.domain.inputs) if place not in columns]
    return {"withheld": memory["withheld"], "without_slopes": names}


def check_trained(rows: int, root: int) -> None:
    """Raise RunFailedError unless there are rows to train on, and they have weight: the root's first sum."""
    if rows == 0 or root == 0:
        raise RunFailedError("no agent has enough rows to train on; lower holdout, or wait for more rows")
