"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.fuzzy.hinges import bends_contradict
from glassfleet.numerics.statistics import triangle, unpack_symmetric
from glassfleet.scheme import Contribution
from glassfleet.schemes.fmt.checks import check_cuts
from glassfleet.schemes.fmt.grow import UNIT
from glassfleet.schemes.fmt.params import ERROR_BITS, GRID_BITS
from glassfleet.schemes.fmt.partition import BINS
from glassfleet.schemes.fmt_classes.messages import Question
from glassfleet.untrusted import at_most, check_histogram, check_products, check_shapes

Ints = NDArray[np.int64]


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows = contribution.sums, contribution.rows
    check_shapes(sums, shapes_of(question))
    if question.kind == "scan":
        at_most(sums["training"], rows, "more rows train than there are")
        check_histogram(sums["histogram"], rows)
        _check_node_sums(question, sums["gram"][None], rows)
    elif question.kind == "hinges":
        _check_node_sums(question, sums["gram"][None], rows)
    elif question.kind == "grow":
        _check_node_sums(question, sums["whole"], rows)
        check_cuts(question, sums["whole"], sums["lower"])
    elif question.kind == "sizes":
        at_most(sums["held_out"], rows, "more rows are held out than there are")
        most = (int(sums["held_out"][0]) << ERROR_BITS) * question.n_scores
        at_most(sums["errors"], most, "an error exceeds what there can be")
    else:
        _check_newton(question, contribution)


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    if question.kind == "scan":
        return {"histogram": (question.n_inputs, BINS), "gram": (question.width,), "training": (1,)}
    if question.kind == "hinges":
        return {"gram": (question.width,)}
    if question.kind == "grow":
        cuts = sum(len(question.cuts_of[node]) for node in question.nodes)
        return {"whole": (len(question.nodes), question.width), "lower": (cuts, question.width)}
    nodes, scores, k = question.tree.size, question.n_scores, len(question.columns) + 1
    if question.kind == "newton":
        squares = (nodes, scores * (scores + 1) // 2, question.squares)
        return {"squares": squares, "expected": (nodes, scores, k), "observed": (nodes, scores, k), "weight": (nodes,)}
    assert question.coefficients is not None
    return {"errors": (len(question.coefficients), len(question.tree.splits) + 1), "held_out": (1,)}


def _check_node_sums(question: Question, sums: Ints, rows: int) -> None:
    """Check sums of products and of classes, shape (m, width): each class has sums that rows can have."""
    for own in question.triangles(sums):
        if own.size and int(own.min()) < 0:
            raise ContributionError("a class has more than all classes together")
        check_products(own, len(question.columns) + 2, rows, GRID_BITS)
    k = len(question.columns) + 1
    classes = sums[:, question.squares :].reshape(len(sums), -1, k)
    at_most(classes.sum(axis=1), sums[:, :k], "the classes have more than all rows together")
    _check_bends(question, sums[:, : question.squares], classes, rows)


def _check_bends(question: Question, squares: Ints, vectors: Ints, rows: int) -> None:
    """Check triangles of products, shape (.., squares), and sums of ``[1, x]``, shape (.., k): hinges follow inputs."""
    if not question.hinges:
        return
    k, place = len(question.columns) + 1, {own: column for column, own in enumerate(question.columns, start=1)}
    hinges = [
        (place[question.n_inputs + number], place[at], knot)
        for number, (at, knot) in enumerate(question.hinges)
        if at in place and question.n_inputs + number in place
    ]
    # Weights and products are rounded to the grid, which is a millionth of a row.
    slack = float(rows * (4 << GRID_BITS))
    matrices = unpack_symmetric(squares.reshape(-1, question.squares).astype(np.float64), k)
    if any(bends_contradict(sums, hinges, slack) for sums in (matrices, vectors.astype(np.float64))):
        raise ContributionError("the sums of a line that bends contradict those of its input")


def _check_newton(question: Question, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    weight = sums["weight"]
    at_most(weight, rows * UNIT, "a node's weight exceeds the agent's rows")
    for name in ("expected", "observed"):
        at_most(sums[name][:, :, 0], weight[:, None], f"a node's {name} rows exceed its weight")
        at_most(sums[name], sums[name][:, :, :1], f"a sum of {name} products exceeds the {name} rows")
    at_most(sums["observed"].sum(axis=1)[:, 0], weight, "the classes of a node exceed its weight")
    squares = sums["squares"]
    _check_bends(question, squares, np.concatenate([sums["expected"], sums["observed"]]), rows)
    first, second = triangle(len(question.columns) + 1)
    # The first k entries are the sums of 1 and x; no product in [0, 1] exceeds either of its factors.
    at_most(squares, squares[:, :, first], "a sum of products exceeds the sum of one of its factors")
    at_most(squares, squares[:, :, second], "a sum of products exceeds the sum of one of its factors")
    # p (1 - p) and p_a p_b are a quarter at most; half a unit of the grid for each row's rounding.
    at_most(squares[:, :, 0] // 2, weight[:, None] // 8 + rows * (1 << 20), "a node's curvature exceeds its weight")
