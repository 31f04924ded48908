"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.scheme import SUPPORT, Contribution
from glassfleet.schemes.fmt.grow import UNIT
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.messages import Question
from glassfleet.schemes.fmt.params import ERROR_BITS, GRID_BITS
from glassfleet.schemes.fmt.partition import BINS
from glassfleet.training import BEFORE_SCAN, first_shapes
from glassfleet.untrusted import at_most, check_histogram, check_products, check_shapes, check_told

Ints = NDArray[np.int64]


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows, k = contribution.sums, contribution.rows, len(question.columns) + 2
    check_shapes(sums, shapes_of(question))
    if question.kind == "scan":
        at_most(sums["training"], rows, "more rows train than there are")
        check_histogram(sums["histogram"], rows)
        check_products(sums["gram"][None], k, rows, GRID_BITS)
    elif question.kind == "grow":
        check_products(sums["whole"], k, rows, GRID_BITS)
        check_cuts(question, sums["whole"], sums["lower"])
    elif question.kind == SUPPORT:
        check_told(contribution, question.most_told)
    elif question.kind == "leaves":
        check_products(sums["gram"], k, rows, GRID_BITS)
        # Degrees of leaves add up to one, but each is rounded: half a unit of the grid a leaf, generously.
        held = sums["gram"][:, 0].astype(np.float64).sum(keepdims=True)
        at_most(held, float(rows) * UNIT * 1.001, "the leaves hold too much")
    else:
        at_most(sums["held_out"], rows, "more rows are held out than there are")
        at_most(sums["errors"], int(sums["held_out"][0]) << ERROR_BITS, "an error exceeds the target's range")


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    if question.kind in BEFORE_SCAN:
        return first_shapes(question)
    if question.kind == "scan":
        return {"histogram": (question.n_inputs, BINS), "gram": (question.width,), "training": (1,)}
    if question.kind == "grow":
        cuts = sum(len(question.cuts_of[node]) for node in question.nodes)
        return {"whole": (len(question.nodes), question.width), "lower": (cuts, question.width)}
    if question.kind == "leaves":
        return {"gram": (len(question.asked_leaves), question.width)}
    if question.kind == SUPPORT:
        lines = len(question.children) * len(question.least_of) * (len(question.split_features) + 1)
        return {"rows": (lines, question.n_cells)}
    assert question.coefficients is not None
    return {"errors": (len(question.coefficients), 2, len(question.tree.splits) + 1), "held_out": (1,)}


def check_cuts(question: GrowthQuestion, whole: Ints, lower: Ints) -> None:
    """Check that the lower side of a cut holds no more than its node, and no less than that of a lower cut."""
    start = 0
    for line, node in enumerate(question.nodes):
        places = question.cuts_of[node]
        part = lower[start : start + len(places)]
        start += len(places)
        at_most(part, whole[line], "one side of a cut exceeds its node")
        feature = np.array([question.cuts[place][0] for place in places])
        same = feature[1:] == feature[:-1]
        at_most(part[:-1][same], part[1:][same], "a lower cut exceeds a higher one")
