"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact but for the rounding of
two factors of a term, for which each row is given some units. They find broken agents and crude lies; they cannot find
a plausible lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.scheme import SUPPORT, Contribution
from glassfleet.schemes.tree.bins import CELLS
from glassfleet.schemes.tree.messages import Question
from glassfleet.schemes.tree.params import GRID_BITS, GROUP, MAX_RESIDUAL, SCORE_BITS
from glassfleet.schemes.tree.support import bands_of
from glassfleet.training import BEFORE_SCAN, first_shapes
from glassfleet.untrusted import at_most, check_histogram, check_products, check_shapes, check_told

Ints = NDArray[np.int64]

UNIT = 1 << (2 * GRID_BITS)
"""One row's full weight, in sums of products."""


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows = contribution.sums, contribution.rows
    check_shapes(sums, shapes_of(question), signed=("scores", "slopes"))
    if question.kind == "scan":
        check_histogram(sums["histogram"], rows)
        at_most(sums["rows"], rows, "more rows train than there are")
        if int(sums["rows"].sum()) != rows:
            raise ContributionError("training and held-out rows do not count every row once")
        check_products(sums["gram"], len(question.scanned) + 2, rows, GRID_BITS)
    elif question.kind == "bins":
        if question.latest:
            check_products(sums["gram"].reshape(-1, question.width), question.columns, rows, GRID_BITS)
            at_most(sums["target"], rows * UNIT, "a sum over a leaf exceeds the agent's rows")
        if question.leaves:
            _check_bins(sums["scores"], sums["slopes"], sums["means"], rows)
    elif question.kind == SUPPORT:
        check_told(contribution, question.most_told)
    elif question.kind == "bands":
        check_products(sums["own"], question.columns, rows, GRID_BITS)
        _check_sums_by_bin(sums["scores"], sums["means"], sums["scores"][..., :1], rows)
    elif question.kind == "joint":
        check_products(sums["gram"], question.columns, rows, GRID_BITS)
        at_most(sums["target"], rows * UNIT, "a sum over a leaf exceeds the agent's rows")
    else:
        check_products(sums["squares"].reshape(-1, question.width), question.columns, rows, GRID_BITS)
        _between(sums["scores"][:, -1], 0, rows * UNIT, "a ramp's side holds more rows than there are")
        most = int(MAX_RESIDUAL) * rows * UNIT
        _between(sums["scores"], -most, most, "a ramp's sum of residuals exceeds what residuals can be")


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    if question.kind in BEFORE_SCAN:
        return first_shapes(question)
    if question.kind == "scan":
        return {"histogram": (question.n_inputs, CELLS), "gram": (2, question.width), "rows": (2,)}
    k = question.columns
    if question.kind == SUPPORT:
        if question.is_of_pairs:
            return {"rows": (len(question.tree.overlaps), len(question.least_of))}
        return {"rows": (bands_of(question.counted), len(question.least_of))}
    if question.kind == "bands":
        bands = bands_of(question.kept)
        return {"own": (len(question.leaves), question.width), "scores": (bands, k + 1), "means": (bands, k)}
    if question.kind == "joint":
        return {"gram": (len(question.tree.overlaps), question.width), "target": (len(question.tree.leaves), k + 1)}
    if question.kind == "ramps":
        return {"squares": (len(question.candidates), 2, question.width), "scores": (len(question.candidates), k + 1)}
    shapes: dict[str, tuple[int, ...]] = {}
    if question.latest:
        shapes |= {"gram": (2, len(question.pairs), question.width), "target": (2, len(question.new), k + 1)}
    if question.leaves:
        asked, bins = (len(question.leaves), len(question.features)), question.parameters.bins
        slopes = (*asked, bins // question.parameters.slope_bins, k - 1)
        shapes |= {"scores": (*asked, bins, 2), "slopes": slopes, "means": (*asked, bins // GROUP, k)}
    return shapes


def _between(numbers: Ints, least: int | Ints, most: int | Ints, what: str) -> None:
    at_most(least, numbers, what)
    at_most(numbers, most, what)


def _check_bins(scores: Ints, slopes: Ints, means: Ints, rows: int) -> None:
    """Check sums of w and w r by bin, and of w x r and w^2 z by group of bins."""
    weight = scores[..., :1]
    at_most(weight.sum(axis=2), rows << SCORE_BITS, "the bins of an input hold more rows than there are")
    grouped, wide = (weight.reshape(*part.shape[:3], -1, 1).sum(axis=3) for part in (means, slopes))
    _check_sums_by_bin(scores, means, grouped, rows)
    _check_residuals(slopes, wide, rows)


def _check_sums_by_bin(scores: Ints, means: Ints, grouped: Ints, rows: int) -> None:
    """Check sums of w and w z r, and of w^2 z, where `grouped` is the sum of w of the rows of each line of means."""
    weight = scores[..., :1]
    _between(weight, 0, rows << SCORE_BITS, "a bin holds more rows than there are")
    at_most(means, grouped + rows, "a sum over bins exceeds their weight")
    at_most(means, means[..., :1], "a sum over bins exceeds their weight")
    _check_residuals(scores[..., 1:], weight, rows)


def _check_residuals(sums: Ints, weight: Ints, rows: int) -> None:
    most = int(MAX_RESIDUAL) * weight + rows
    _between(sums, -most, most, "a bin's sum of residuals exceeds what residuals can be")
