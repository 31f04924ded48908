"""Can an answer be true? Ranges and shapes, checked before an answer is weighed with others'."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glassfleet.contract.checks import check_names
from glassfleet.contract.messages import Contribution
from glassfleet.crisp import Forest
from glassfleet.crisp.columns import GRID
from glassfleet.crisp.forest import widen
from glassfleet.errors import ContributionError
from glassfleet.schemes.fedga.messages import FedgaQuestion

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
