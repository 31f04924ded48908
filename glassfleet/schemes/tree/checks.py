"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact but for the rounding of
two factors of a term, for which each row is given some units. They find broken agents and crude lies; they cannot find
a plausible lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import at_most, check_histogram, check_products, check_told
from glassfleet.contract.messages import SUPPORT, Contribution
from glassfleet.errors import ContributionError
from glassfleet.numerics.statistics import triangle
from glassfleet.schemes.tree.bins import CELLS
from glassfleet.schemes.tree.messages import BEFORE_SCAN, TreeQuestion, most_rules
from glassfleet.schemes.tree.params import (
    GRID_BITS,
    GROUP,
    MAX_REGRESSORS,
    MAX_RESIDUAL,
    SCORE_BITS,
    UNIT,
    TreeParameters,
)
from glassfleet.schemes.tree.start import check_first, first_shapes
from glassfleet.schemes.tree.support import bands_of, lines_of

Ints = NDArray[np.int64]


def check_sums(question: TreeQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    sums, rows = contribution.sums, contribution.rows
    if question.kind in BEFORE_SCAN:
        check_first(question, contribution)
    elif question.kind == "scan":
        check_histogram(sums["histogram"], rows)
        at_most(sums["rows"], rows, "more rows train than there are")
        if int(sums["rows"].sum()) != rows:
            raise ContributionError("training and held-out rows do not count every row once")
        check_products(sums["gram"], question.scan_columns, rows, GRID_BITS)
    elif question.kind == "bins":
        if question.latest:
            check_products(sums["gram"].reshape(-1, question.width), question.columns, rows, GRID_BITS)
            _check_targets(question, sums["target"], rows)
        if question.leaves:
            _check_bins(sums["scores"], sums["slopes"], sums["means"], rows)
    elif question.parameters.support:
        _check_supported(question, contribution)
    elif question.kind == "newton":
        _check_newton(question, sums, rows)
    else:
        check_products(sums["squares"].reshape(-1, question.width), question.columns, rows, GRID_BITS)
        _between(sums["scores"][:, -1], 0, rows * UNIT, "a ramp's side holds more rows than there are")
        most = int(MAX_RESIDUAL) * rows * UNIT
        _between(sums["scores"], -most, most, "a ramp's sum of residuals exceeds what residuals can be")


def _check_supported(question: TreeQuestion, contribution: Contribution) -> None:
    """Check what is asked in runs with `support` alone."""
    sums, rows = contribution.sums, contribution.rows
    if question.kind == SUPPORT:
        check_told(contribution, question.most_told)
    elif question.kind == "categories":
        weight = sums["scores"][:, :1]
        _between(weight, 0, rows << SCORE_BITS, "a category holds more rows than there are")
        _check_residuals(sums["scores"][:, 1:], weight, rows)
        if sums["scores"][~question.disclosed].any():
            raise ContributionError("a category is told of that was not asked about")
    elif question.kind == "bands":
        check_products(sums["own"], question.columns, rows, GRID_BITS)
        _check_sums_by_bin(sums["scores"], sums["means"], sums["scores"][..., :1], rows)
    else:
        check_products(sums["gram"], question.columns, rows, GRID_BITS)
        _check_targets(question, sums["target"], rows)


def shapes_of(question: TreeQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    if question.kind in BEFORE_SCAN:
        return first_shapes(question)
    if question.kind == "scan":
        return {"histogram": (question.n_inputs, CELLS), "gram": (2, question.width), "rows": (2,)}
    k = question.columns
    targets, scored = question.targets * (k + 1), 1 + question.targets * k
    if question.parameters.support:
        return _supported_shapes(question)
    if question.kind == "ramps":
        return {"squares": (len(question.candidates), 2, question.width), "scores": (len(question.candidates), scored)}
    if question.kind == "newton":
        leaves, scores = question.scored, question.targets
        squares, own = (leaves, scores * (scores + 1) // 2, question.width), (leaves, scores, k)
        return {
            "squares": squares,
            "expected": own,
            "observed": own,
            "weight": (leaves,),
            "errors": (2, len(question.sizes)),
        }
    shapes: dict[str, tuple[int, ...]] = {}
    if question.latest:
        shapes |= {"gram": (2, len(question.pairs), question.width), "target": (2, len(question.new), targets)}
    if question.leaves:
        asked, bins = (len(question.leaves), len(question.features)), question.parameters.bins
        slopes = (*asked, bins // question.parameters.slope_bins, question.targets * (k - 1))
        shapes |= {
            "scores": (*asked, bins, 1 + question.targets),
            "slopes": slopes,
            "means": (*asked, bins // GROUP, k),
        }
    return shapes


def most_bytes(parameters: TreeParameters, inputs: int, classes: int) -> int:
    """Return how many bytes the largest answer of a run can have; most have a fraction. Counts of support are left out.

    Parameters
    ----------
    parameters : Parameters
    inputs : int
        Number of inputs, indicators of empty cells and excess among them.
    classes : int
        0: a number is learned.
    """
    targets = classes if classes > 2 else 1
    k = 1 + min(inputs, parameters.max_regressors if classes else MAX_REGRESSORS)  # of a number excess comes on top
    leaves, width = most_rules(parameters, k, classes), k * (k + 1) // 2
    pairs, split_on = leaves * (leaves + 1) // 2, min(inputs, parameters.max_split_features)
    scan = inputs * CELLS + (inputs + 1 + targets) * (inputs + 2 + targets)
    by_bin = 1 + targets + targets * (k - 1) / parameters.slope_bins + k / GROUP
    joint = 2 * pairs * width + 2 * leaves * targets * (k + 1)
    bins = parameters.bins * by_bin * max(inputs, leaves * split_on)
    ramps = leaves * parameters.exact_ramps * (2 * width + 1 + targets * k)
    scores = targets * (targets + 1) // 2 * width + 2 * targets * k + 1
    newton = 3 * leaves * scores if classes else 0
    return int(8 * max(scan, joint + bins, ramps, newton))


def _supported_shapes(question: TreeQuestion) -> dict[str, tuple[int, ...]]:
    """Return those of questions that are asked in runs with `support` alone."""
    k, targets = question.columns, question.targets
    if question.kind == SUPPORT:
        return {"rows": (lines_of(question), len(question.least_of))}
    if question.kind == "categories":
        return {"scores": (len(question.disclosed), 1 + targets)}
    if question.kind == "bands":
        bands = bands_of(question.kept)
        return {"own": (len(question.leaves), question.width), "scores": (bands, 1 + targets * k), "means": (bands, k)}
    leaves = len(question.tree.leaves)
    return {"gram": (len(question.tree.overlaps), question.width), "target": (leaves, targets * (k + 1))}


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


def _check_targets(question: TreeQuestion, target: Ints, rows: int) -> None:
    """Check sums of w z y and w y^2 of each target in turn: of classes no more than all rows together."""
    each = target.reshape(*target.shape[:-1], question.targets, question.columns + 1)
    at_most(each, rows * UNIT, "a sum over a leaf exceeds the agent's rows")  # first, as sums of more may overflow
    at_most(each.sum(axis=-2), rows * UNIT, "a sum over a leaf exceeds the agent's rows")
    if question.domain.classes:
        at_most(each, each[..., :1], "a sum over a leaf exceeds the rows of its class")


def _check_newton(question: TreeQuestion, sums: Mapping[str, Ints], rows: int) -> None:
    weight, squares = sums["weight"], sums["squares"]
    most = np.array([[2], [4]]) * (rows << SCORE_BITS)  # of a row at most 2, and of a difference its square
    at_most(sums["errors"], most, "an error exceeds what there can be")
    at_most(weight, rows * UNIT, "a leaf's weight exceeds the agent's rows")
    for name in ("expected", "observed"):
        at_most(sums[name][:, :, 0], weight[:, None], f"a leaf's {name} rows exceed its weight")
        at_most(sums[name], sums[name][:, :, :1], f"a sum of {name} products exceeds the {name} rows")
    at_most(sums["observed"].sum(axis=1)[:, 0], weight, "the classes of a leaf exceed its weight")
    first, second = triangle(question.columns)
    # The first k entries are the sums of 1 and x; no product in [0, 1] exceeds either of its factors.
    at_most(squares, squares[:, :, first], "a sum of products exceeds the sum of one of its factors")
    at_most(squares, squares[:, :, second], "a sum of products exceeds the sum of one of its factors")
    # p (1 - p) and p_a p_b are a quarter at most; half a unit of the grid for each row's rounding.
    most = weight[:, None] // 8 + rows * (1 << GRID_BITS)
    at_most(squares[:, :, 0] // 2, most, "a leaf's curvature exceeds its weight")
