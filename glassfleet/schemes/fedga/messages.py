"""What travels: the three questions of FedGA, reading them without trust, and whether an answer can be true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassfleet.contract.checks import check_names
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_class_order,
    check_integer,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.crisp import Forest
from glassfleet.crisp.cuts import GRID
from glassfleet.crisp.forest import widen
from glassfleet.errors import ContributionError, TaskError
from glassfleet.schemes.fedga.params import MAX_DEPTH, MAX_STRUCTURES, FedgaParameters

NAME = "fedga"
Kind = Literal["depth", "local", "candidates"]
KINDS: tuple[Kind, ...] = ("depth", "local", "candidates")


@dataclass(frozen=True)
class FedgaQuestion(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"depth", "local", "candidates"}
        How deep would you go; which structure do you grow; how good are these structures.
    seed : int
        Of the vehicles' splits into folds, and into fitting and scoring rows. Not of any privacy noise.
    depth : int
        Of the trees; 0 where it is still asked for.
    generation : int
        Of the candidates.
    fit_on_all : bool
        Fit and score on all rows.
    forest : Forest or None
        The candidates.
    """

    kind: Kind
    parameters: FedgaParameters
    seed: int
    depth: int = 0
    generation: int = 0
    fit_on_all: bool = False
    forest: Forest | None = None

    @property
    def positive(self) -> int | None:
        """Class whose F1 is the fitness: the second of two; None: the mean over the classes, or no classes at all."""
        return 1 if len(self.domain.classes) == 2 else None

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Any] = {**task_head(self.parameters, self.domain), "seed": self.seed}
        if self.kind != "depth":
            body["depth"] = self.depth
        if self.forest is not None:
            body["generation"] = self.generation
            body["fit_on_all"] = self.fit_on_all
            body["structures"] = self.forest.to_value(self.n_features)
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> FedgaQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, FedgaParameters)
        body = task.body
        with task_errors():
            check_class_order(domain)
            seed = check_integer("seed", body["seed"], 0, 2**63 - 1)
            if kind == "depth":
                return cls(kind, parameters, domain, seed)
            depth = check_integer("depth", body["depth"], 1, MAX_DEPTH)
            if kind == "local":
                return cls(kind, parameters, domain, seed, depth)
            generation = check_integer("generation", body["generation"], 0, 2**31)
            if not isinstance(body["fit_on_all"], bool):
                raise TaskError("fit_on_all must be true or false")
            forest = Forest.from_value(body["structures"], len(domain.features), depth, MAX_STRUCTURES)
        return cls(kind, parameters, domain, seed, depth, generation, body["fit_on_all"], forest)


read_task = Remembered(FedgaQuestion.from_task)
"""``FedgaQuestion.from_task``, once for each task."""


# --- can an answer be true? Ranges and shapes, checked before an answer is weighed with others' -----------------------


_NOISE = 100.0
"""Noise beyond this many of its scales is a lie (its chance is e^-100)."""


def check_answer(question: FedgaQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless `contribution` can answer `question`."""
    {"depth": _check_depth, "local": _check_local, "candidates": _check_scores}[question.kind](question, contribution)


def _check_depth(question: FedgaQuestion, contribution: Contribution) -> None:
    parameters, rows, sums = question.parameters, contribution.rows, contribution.sums
    check_names("values", contribution.values, {"depth", "weight"})
    depth, weight = contribution.values["depth"], contribution.values["weight"]
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= max(parameters.max_depth, 15):
        raise ContributionError(f"depth must be an integer in [0, {parameters.max_depth}]")
    if not isinstance(weight, float) or not math.isfinite(weight):
        raise ContributionError("weight must be a number")
    slack = _NOISE / parameters.row_epsilon if parameters.row_epsilon is not None else 0.0
    lowest = max(1.0, rows - slack) if rows else 0.0
    highest = max(1.0, rows + slack) if rows else 0.0
    if not lowest <= weight <= highest:
        raise ContributionError(f"a weight of {weight:g} is too far from {rows} rows")
    if (depth == 0) != (rows == 0):
        raise ContributionError("a depth of 0 is the answer of a vehicle without rows, and of no other")
    if question.domain.target is None:
        check_names("sums", sums, {"class_rows"})
        counts = sums["class_rows"]
        if counts.shape != (len(question.domain.classes),) or bool(((counts < 0) | (counts > rows)).any()):
            raise ContributionError(f"class_rows must be one count per class, in [0, {rows}]")
        if int(counts.sum()) > rows or bool(((counts > 0) & (counts < parameters.min_rows)).any()):
            raise ContributionError("class_rows add up to more than the rows, or hold a count below min_rows")
    else:
        check_names("sums", sums, {"target"})
        target = sums["target"]
        if target.shape != (2,):
            raise ContributionError(f"target has shape {target.shape}, expected (2,)")
        count, total = int(target[0]), int(target[1])
        expected = rows if rows >= parameters.min_rows else 0
        if count != expected or not 0 <= total <= count * int(GRID):
            raise ContributionError("the sum of the target contradicts the rows")


def _check_local(question: FedgaQuestion, contribution: Contribution) -> None:
    check_names("sums", contribution.sums, set())
    check_names("values", contribution.values, {"structure", "votes"})
    check_structure(question, contribution.values["structure"])
    votes = contribution.values["votes"]
    if not isinstance(votes, dict) or set(votes) != {"fit_on_all", "elitism"}:
        raise ContributionError("votes are fit_on_all and elitism")
    if not all(isinstance(vote, bool) for vote in votes.values()):
        raise ContributionError("a vote is true or false")


def _check_scores(question: FedgaQuestion, contribution: Contribution) -> None:
    assert question.forest is not None
    check_names("sums", contribution.sums, set())
    check_names("values", contribution.values, {"scores", "structure"})
    check_structure(question, contribution.values["structure"])
    scores = contribution.values["scores"]
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64 or scores.shape != (question.forest.size,):
        raise ContributionError(f"scores must be {question.forest.size} numbers, one per structure")
    # Targets and leaves are in [0, 1] after scaling, so a squared error is as well.
    low, high = (0.0, 1.0) if question.domain.target is None else (-1.0, 0.0)
    if not bool(((scores >= low - 1e-9) & (scores <= high + 1e-9)).all()):
        raise ContributionError(f"scores must be in [{low:g}, {high:g}]")


def check_structure(question: FedgaQuestion, value: Any) -> None:
    """Raise :class:`ContributionError` unless `value` is a structure, or no genes at all."""
    try:
        genes = widen(value, question.n_features)
        # Length first: what is far too long is not worth a walk.
        if 0 < len(genes) < 2 << question.depth:
            Forest.of([genes]).check(question.depth)
            return
    except ValueError as fault:
        raise ContributionError(f"the structure: {fault}") from fault
    if len(genes):
        raise ContributionError(f"the structure: longer than depth {question.depth} allows")
