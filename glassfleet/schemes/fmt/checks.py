"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact. They find broken agents
and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.fuzzy.category_sums import category_shapes, check_category_sums
from glassfleet.numerics.statistics import triangle
from glassfleet.scheme import SUPPORT, Contribution
from glassfleet.schemes.fmt.grow import UNIT
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.linear import moments
from glassfleet.schemes.fmt.messages import Question
from glassfleet.schemes.fmt.params import ERROR_BITS
from glassfleet.schemes.fmt.partition import BINS
from glassfleet.untrusted import check_semidefinite, check_shapes

Ints = NDArray[np.int64]


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows = contribution.sums, contribution.rows
    check_shapes(sums, shapes_of(question))
    if question.kind == "levels":
        check_category_sums(question.domain, sums, rows)
    elif question.kind == "scan":
        _at_most(sums["training"], rows, "more rows train than there are")
        _at_most(sums["histogram"], rows, "a histogram counts more rows than there are")
        if (sums["histogram"].sum(axis=1) != rows).any():
            raise ContributionError("a histogram does not count every row once")
        check_gram(sums["gram"][None], len(question.columns) + 2, rows)
    elif question.kind == "grow":
        check_gram(sums["whole"], len(question.columns) + 2, rows)
        check_cuts(question, sums["whole"], sums["lower"])
    elif question.kind == SUPPORT:
        vehicles = 1 if contribution.vehicles is None else contribution.vehicles
        _at_most(sums["rows"], min(rows, question.least_rows * max(1, vehicles)), "more rows than can be told")
    elif question.kind == "leaves":
        check_gram(sums["gram"], len(question.columns) + 2, rows)
        _at_most(sums["gram"][:, 0].astype(np.float64).sum(keepdims=True), _weight(rows), "the leaves hold too much")
    else:
        _at_most(sums["held_out"], rows, "more rows are held out than there are")
        _at_most(sums["errors"], int(sums["held_out"][0]) << ERROR_BITS, "an error exceeds the target's range")


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    if question.kind == "levels":
        return category_shapes(question.domain)
    if question.kind == "scan":
        return {"histogram": (question.n_features, BINS), "gram": (question.width,), "training": (1,)}
    if question.kind == "grow":
        cuts = sum(len(question.cuts_of[node]) for node in question.nodes)
        return {"whole": (len(question.nodes), question.width), "lower": (cuts, question.width)}
    if question.kind == "leaves":
        return {"gram": (len(question.asked_leaves), question.width)}
    if question.kind == SUPPORT:
        return {"rows": (len(question.children) * (len(question.split_features) + 1), question.n_cells)}
    assert question.coefficients is not None
    return {"errors": (len(question.coefficients), 2, len(question.tree.splits) + 1), "held_out": (1,)}


def _at_most(left: NDArray[np.int64] | NDArray[np.float64], right: Ints | float, what: str) -> None:
    if (left > right).any():
        raise ContributionError(what)


def _weight(rows: int) -> float:
    # Degrees of leaves add up to one, but each is rounded: half a unit of the grid a leaf, generously.
    return float(rows) * UNIT * 1.001


def check_gram(gram: Ints, k: int, rows: int) -> None:
    """Check sums over `k` columns ``[1, x, y]``, shape (m, p)."""
    first, second = triangle(k)
    _at_most(gram[:, 0], rows * UNIT, "a node's weight exceeds the agent's rows")
    # The first k entries are the sums of 1, x and y; no product in [0, 1] exceeds either of its factors.
    _at_most(gram, gram[:, first], "a sum of products exceeds the sum of one of its factors")
    _at_most(gram, gram[:, second], "a sum of products exceeds the sum of one of its factors")
    full = np.ascontiguousarray(moments(gram, k).transpose(2, 0, 1))
    # Weights and products are rounded by at most half a unit of 2^-20 each.
    slack = rows * 2.0**-19 * k + 1e-9 * np.trace(full, axis1=1, axis2=2)
    check_semidefinite(full, slack, "sums of products are not positive semi-definite")


def check_cuts(question: GrowthQuestion, whole: Ints, lower: Ints) -> None:
    """Check that the lower side of a cut holds no more than its node, and no less than that of a lower cut."""
    start = 0
    for line, node in enumerate(question.nodes):
        places = question.cuts_of[node]
        part = lower[start : start + len(places)]
        start += len(places)
        _at_most(part, whole[line], "one side of a cut exceeds its node")
        feature = np.array([question.cuts[place][0] for place in places])
        same = feature[1:] == feature[:-1]
        _at_most(part[:-1][same], part[1:][same], "a lower cut exceeds a higher one")
