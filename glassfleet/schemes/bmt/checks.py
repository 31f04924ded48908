"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact but for the rounding of
two factors of a term, for which each row is given some units. They find broken agents and crude lies; they cannot find
a plausible lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.fuzzy.category_sums import category_shapes, check_category_sums
from glassfleet.numerics.statistics import triangle, unpack_symmetric
from glassfleet.scheme import Contribution
from glassfleet.schemes.bmt.bins import CELLS, GROUP
from glassfleet.schemes.bmt.joint import SCALE
from glassfleet.schemes.bmt.messages import Question
from glassfleet.schemes.bmt.params import GRID_BITS, MAX_RESIDUAL, SCORE_BITS
from glassfleet.untrusted import check_names, check_semidefinite

Ints = NDArray[np.int64]

UNIT = 1 << (2 * GRID_BITS)
"""One row's full weight, in sums of products."""


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows = contribution.sums, contribution.rows
    shapes = _shapes(question)
    check_names("sums", sums, shapes)
    for name, shape in shapes.items():
        if sums[name].shape != shape:
            raise ContributionError(f"{name} has shape {sums[name].shape}, expected {shape}")
    if question.kind == "levels":
        check_category_sums(question.domain, sums, rows)
    elif question.kind == "scan":
        _between(sums["histogram"], 0, rows, "a histogram counts more rows than there are")
        _between(sums["rows"], 0, rows, "more rows train than there are")
        if (sums["histogram"].sum(axis=1) != rows).any() or int(sums["rows"].sum()) != rows:
            raise ContributionError("a histogram, or training and held-out rows, do not count every row once")
        _check_products(sums["gram"], question.n_features + 2, rows)
    elif question.kind == "bins":
        if question.latest:
            _check_products(sums["gram"].reshape(-1, question.width), question.columns, rows)
            _between(sums["target"], 0, rows * UNIT, "a sum over a leaf exceeds the agent's rows")
        if question.leaves:
            _check_bins(sums["scores"], sums["means"], rows)
    else:
        _check_products(sums["squares"].reshape(-1, question.width), question.columns, rows)
        _between(sums["scores"][:, -1], 0, rows * UNIT, "a ramp's side holds more rows than there are")
        most = int(MAX_RESIDUAL) * rows * UNIT
        _between(sums["scores"], -most, most, "a ramp's sum of residuals exceeds what residuals can be")


def _shapes(question: Question) -> dict[str, tuple[int, ...]]:
    if question.kind == "levels":
        return category_shapes(question.domain)
    if question.kind == "scan":
        return {"histogram": (question.n_features, CELLS), "gram": (2, question.width), "rows": (2,)}
    k = question.columns
    if question.kind == "ramps":
        return {"squares": (len(question.candidates), 2, question.width), "scores": (len(question.candidates), k + 1)}
    shapes: dict[str, tuple[int, ...]] = {}
    if question.latest:
        shapes |= {"gram": (2, len(question.pairs), question.width), "target": (2, len(question.new), k + 1)}
    if question.leaves:
        asked, bins = (len(question.leaves), len(question.features)), question.parameters.bins
        shapes |= {"scores": (*asked, bins, k + 1), "means": (*asked, bins // GROUP, k)}
    return shapes


def _between(numbers: Ints, least: int, most: int | Ints, what: str) -> None:
    if (numbers < least).any() or (numbers > most).any():
        raise ContributionError(what)


def _check_products(gram: Ints, k: int, rows: int) -> None:
    """Check sums of the products of k columns in [0, 1], the first of which is 1, shape (m, k (k + 1) / 2)."""
    first, second = triangle(k)
    _between(gram, 0, rows * UNIT, "a sum of products exceeds the agent's rows")
    # The first k entries are the sums of the columns; no product in [0, 1] exceeds either of its factors.
    _between(gram, 0, gram[:, first], "a sum of products exceeds the sum of one of its factors")
    _between(gram, 0, gram[:, second], "a sum of products exceeds the sum of one of its factors")
    full = unpack_symmetric(gram.astype(np.float64) * SCALE, k)
    # Weights and products are rounded by at most half a unit of 2^-20 each.
    slack = rows * 2.0**-19 * k + 1e-9 * np.trace(full, axis1=1, axis2=2)
    check_semidefinite(full, slack, "sums of products are not positive semi-definite")


def _check_bins(scores: Ints, means: Ints, rows: int) -> None:
    """Check sums of w and w z r by bin, and of w^2 z by group of bins."""
    weight = scores[..., :1]
    _between(weight, 0, rows << SCORE_BITS, "a bin holds more rows than there are")
    _between(weight.sum(axis=2), 0, rows << SCORE_BITS, "the bins of an input hold more rows than there are")
    grouped = weight.reshape(*means.shape[:3], GROUP).sum(axis=3)
    _between(means, 0, grouped[..., None] + rows, "a sum over bins exceeds their weight")
    _between(means, 0, means[..., :1], "a sum over bins exceeds their weight")
    if (np.abs(scores[..., 1:]) > int(MAX_RESIDUAL) * weight + rows).any():
        raise ContributionError("a bin's sum of residuals exceeds what residuals can be")
