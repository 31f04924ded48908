"""Rows from the sums of tree: bins of one row, and spans of product sums.

- bins: weight and weight times [1, x] times the residual, of the rows of a leaf between two edges. One row is their
  ratio; its target is what the model, which the question holds, says of it, and its residual. With `compact` what has x
  is of four bins together, and so are squared weights times [1, x]: of two rows, each alone in a bin, both follow.
- spans: product sums over [1, x] of pairs of leaves, of both sides of ramps, and over held-out rows. As in `sums`, two
  groups that share one row meet in it; the group's sums of products with the target, or with the residual, then tell
  the row's target (`sums.completed`): b is the root of a = d'G d. Of classes the sums of a Newton round are such
  groups, too, of each leaf with the weights w p (1 - p); [1, x] of the rows of a class then tell which the row has.

Of classes each indicator is a target, and a row's class is the one whose indicator is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COUNTS
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.private.layout import DRAWS
from glassfleet.schemes.tree.joint import SCALE
from glassfleet.schemes.tree.messages import TreeQuestion, read_task
from glassfleet.schemes.tree.params import GRID_BITS, GROUP, SCORE_BITS
from glassfleet.schemes.tree.rules import outputs_of
from glassfleet.schemes.tree.server import root_sums, taken_in
from glassfleet.schemes.tree.support import STEP
from glassfleet.schemes.tree.tree import degrees
from lab.audit.sums import MOST_GROUPS, NEAR, ProductSums, Rows, completed, stacked
from lab.audit.transcript import Sums, View

Array = NDArray[np.float64]

CLASS_NEAR = 0.05
"""An indicator that is read is this near to 0 or 1."""

_LEAST = 1e-4
"""Least residual times weight whose ratio to the products tells a row: they are rounded to 2^-28."""


# --- bins -----------------------------------------------------------------------------------------------------------


def bins(view: View) -> Rows:
    """Return the row behind each bin that one row is in, as far as that can be told."""
    rows = []
    for task, sums in view:
        if task.kind == "bins" and "scores" in sums:
            question = read_task(task)
            for target in range(question.targets):
                scores, slopes, means = (sums[name] / 2.0**SCORE_BITS for name in ("scores", "slopes", "means"))
                each = _by_bin(question, scores, slopes, means)
                inputs, residual = _lone(question, scores[..., 0], each, means, target)
                rows.append(rows_of(question, inputs, forecast(question, inputs) + residual))
    return stacked(rows)


def _by_bin(question: TreeQuestion, scores: Array, slopes: Array, means: Array) -> Array:
    """Return the sums of w r and w x r by bin, shape (leaves, features, bins, T, k); NaN: that of x is not told."""
    first, by_bin = scores[..., 1:], slopes.reshape(*slopes.shape[:3], question.targets, -1)
    if question.parameters.slope_bins > 1:
        groups = scores.reshape(*means.shape[:3], GROUP, -1)
        count = np.count_nonzero(groups[..., 0], axis=-1)[..., None, None]
        order = np.argsort(groups[..., 0] == 0.0, axis=-1, kind="stable")[..., :2, None]
        (one, other), summed = np.moveaxis(np.take_along_axis(groups, order, axis=-2), -2, 0)[..., None], by_bin
        # w^2 x and w x r of both add up to what is told; where there is one row, it is all of that.
        squares, products = (one[..., :1, :] ** 2, other[..., :1, :] ** 2), (one[..., 1:, :], other[..., 1:, :])
        whole, both = means[..., None, 1:], squares[0] * products[1] - squares[1] * products[0]
        both = np.where((count == 2) & (np.abs(both) > _LEAST), both, np.nan)
        first_of_two = products[0] * (whole * products[1] - summed * squares[1]) / both
        alone = np.where(count == 1, summed, first_of_two)
        by_bin = np.full((*groups.shape[:-1], *summed.shape[3:]), np.nan)
        for place, part in enumerate((alone, summed - first_of_two)):
            np.put_along_axis(by_bin, order[..., place : place + 1, :, None], part[..., None, :, :], axis=-3)
        by_bin = by_bin.reshape(*first.shape, -1)
    return np.concatenate([first[..., None], by_bin], axis=-1)


def _lone(question: TreeQuestion, weight: Array, each: Array, means: Array, target: int) -> tuple[Array, Array]:
    """Return regressors, shape (m, R), and residuals, (m, T), of the rows that are alone in a bin, by one target's."""
    assert question.edges is not None
    first = each[..., target, 0]
    is_told = (weight > NEAR) & (weight < 1.0 + NEAR) & (np.abs(first) > _LEAST)
    values = each[..., target, 1:] / np.where(is_told, first, 1.0)[..., None]
    is_told &= ((values > -NEAR) & (values < 1.0 + NEAR)).all(axis=-1)
    for place, feature in enumerate(question.features):
        if feature in question.regressors:
            own, edges = values[:, place, :, question.regressors.index(feature)], question.edges[feature]
            is_told[:, place] &= (own > edges[:-1] - NEAR) & (own < edges[1:] + NEAR)
    # Squared weights times [1, x] are told of four bins together: they must be those of the rows taken to be alone.
    made = np.where(is_told, weight * weight, 0.0)[..., None] * np.concatenate(
        [np.ones_like(values[..., :1]), values], -1
    )
    made = made.reshape(*means.shape[:3], GROUP, means.shape[3]).sum(axis=3)
    is_right = (np.abs(made - means) < NEAR).all(axis=-1)
    is_told &= np.repeat(is_right, GROUP, axis=-1) | (weight == 1.0)
    return values[is_told], each[is_told][..., 0] / weight[is_told][:, None]


def forecast(question: TreeQuestion, inputs: Array) -> Array:
    """Return what the question's model says of rows, shape (m, T); NaN where it asks for an input that is not told."""
    assert question.coefficients is not None
    scaled = np.full((question.n_inputs, len(inputs)), np.nan)
    scaled[list(question.regressors)] = inputs.T
    reached = degrees(question.tree, scaled, STEP if question.parameters.support else 0.0)
    total = np.zeros((len(inputs), question.targets))
    for leaf, lines in zip(question.tree.leaves, question.coefficients, strict=True):
        total += np.stack([reached[leaf] * outputs_of(line, inputs.T) for line in lines], axis=1)
    return total


def rows_of(question: TreeQuestion, inputs: Array, target: Array) -> Rows:
    """Return rows of all columns from targets, shape (m, T); NaN: not told. Without those whose target is out of range.

    Of classes indicators are zero and one, the latter of one class.
    """
    is_none = ((target < -NEAR) | (target > 1.0 + NEAR)).any(axis=1)
    known = target[:, 0]
    if question.domain.classes:
        is_none |= (np.abs(target - np.rint(target)) > CLASS_NEAR).any(axis=1)
        known = np.rint(known) if question.targets == 1 else target.argmax(axis=1)
        known = np.where(np.isnan(target).any(axis=1), np.nan, known)
    rows = np.full((len(inputs), question.n_inputs + 1), np.nan)
    rows[:, [*question.regressors, question.n_inputs]] = np.column_stack([inputs, known])
    # Of what is within its limits nothing is beyond them.
    excess = rows[:, question.n_inputs - len(question.domain.excess) : -1]
    own = rows[:, question.domain.excess_of]
    excess[np.isnan(excess) & (own > NEAR) & (own < 1.0 - NEAR)] = 0.0
    return rows[~is_none]


# --- spans ----------------------------------------------------------------------------------------------------------


def spans(*seen: View) -> Rows:
    """Return the row of each group of one row, and of each two groups of few rows whose spans meet in one line."""
    return completed((part for view in seen for part in _parts(view)), MOST_GROUPS * len(seen))


def _part(question: TreeQuestion, gram: Array, right: Array | None = None, *, of_residual: bool = False) -> ProductSums:
    """Return sums of products of [1, x], shape (k, k), and of these with targets or residuals, shape (T, k)."""

    def complete(rows: Array, directions: Array) -> Rows:
        assert right is not None
        weight = np.sqrt(np.maximum(((directions @ gram) * directions).sum(axis=1), 1e-12))
        target = directions @ right.T / weight[:, None] + (forecast(question, rows[:, 1:]) if of_residual else 0.0)
        drawn = DRAWS if question.kind == "joint" else (1.0,)  # a row's own is not known: each may be right
        return stacked([rows_of(question, rows[:, 1:], target / math.sqrt(one)) for one in drawn])

    return ProductSums(gram, question.columns * 2.0**-GRID_BITS, complete if right is not None else None)


def _parts(view: View) -> Iterator[ProductSums]:
    """Yield the groups that the questions of a view are about, and those that follow."""
    for question, memory, sums in _replayed(view):
        if question.kind == "newton":
            yield from _newton(question, sums)
        else:
            yield from _sides(question, memory, sums) if question.kind == "ramps" else _joint(question, memory)


def _replayed(view: View) -> Iterator[tuple[TreeQuestion, Mapping[str, Any], Sums]]:
    """Yield the questions after the first, what is known of the joint fit then, as the server keeps it, and answers."""
    scan: Sums = {}
    ways: dict[int, dict[str, Any]] = {}
    for task, sums in view:
        if task.kind in COUNTS | {"categories", "bands"}:
            continue
        question = read_task(task)
        if question.kind == "joint":
            pairs = np.array(question.tree.overlaps, dtype=np.int64)
            known = {"leaves": question.tree.leaves, "pairs": pairs, "gram": sums["gram"][None]}
            target = sums["target"][None]  # of leaves, last T (k + 1) numbers each
            yield question, known | {"target": target.reshape(*target.shape[:-1], question.targets, -1)}, sums
            continue
        if question.kind == "scan":
            scan, ways = sums, {}
            continue
        if not scan:
            continue
        if question.way not in ways:
            columns = [0, *(feature + 1 for feature in question.regressors)]
            full = unpack_symmetric(scan["gram"], question.n_inputs + 1 + question.targets)
            ways[question.way] = root_sums(full, columns, question.targets)
        if question.latest:
            ways[question.way] = taken_in(question, ways[question.way], dict(sums))
        yield question, ways[question.way], sums


def _joint(question: TreeQuestion, memory: Mapping[str, Any]) -> Iterator[ProductSums]:
    """Yield training rows and those held out of each pair of leaves, with the target where both are the same."""
    grams = unpack_symmetric(memory["gram"].astype(np.float64) * SCALE, question.columns)
    rights = memory["target"][..., : question.columns].astype(np.float64) * SCALE
    place = {leaf: at for at, leaf in enumerate(memory["leaves"])}
    for part in range(len(grams)):
        for (i, j), gram in zip(memory["pairs"].tolist(), grams[part], strict=True):
            yield _part(question, gram, rights[part, place[i]] if i == j else None)


def _newton(question: TreeQuestion, sums: Sums) -> Iterator[ProductSums]:
    """Yield the rows of each leaf, weighted by the curvature of each score."""
    grams = unpack_symmetric(sums["squares"].astype(np.float64) * SCALE, question.columns)
    for of_leaf, observed in zip(grams, sums["observed"].astype(np.float64) * SCALE, strict=True):
        for gram in of_leaf[: question.targets]:

            def complete(rows: Array, directions: Array, gram: Array = gram, observed: Array = observed) -> Rows:
                weight = ((directions @ gram) * directions).sum(axis=1)
                # The row's own weight, without the curvature, in the sums of its class; nothing in others'.
                is_of = directions @ observed.T > 0.5 * weight[:, None]
                return rows_of(question, rows[:, 1:], is_of.astype(np.float64))

            yield ProductSums(gram, question.columns * 2.0**-GRID_BITS, complete)


def _sides(question: TreeQuestion, memory: Mapping[str, Any], sums: Sums) -> Iterator[ProductSums]:
    """Yield both sides of each ramp."""
    squares = unpack_symmetric(sums["squares"].astype(np.float64) * SCALE, question.columns)
    scores = sums["scores"][:, :-1].reshape(len(squares), question.targets, -1).astype(np.float64) * SCALE
    pairs = memory["pairs"].tolist()
    for (leaf, _), (lower, both), right in zip(question.candidates, squares, scores, strict=True):
        yield _part(question, lower, right, of_residual=True)
        if [leaf, leaf] in pairs:
            own = memory["gram"][0, pairs.index([leaf, leaf])].astype(np.float64) * SCALE
            yield _part(question, unpack_symmetric(own, question.columns) - 2.0 * both - lower)


# --- trees ----------------------------------------------------------------------------------------------------------


def leaf_means(view: View) -> Rows:
    """Return the mean row of each leaf, once for each row that it holds by weight; see `trees`."""
    result: Rows = np.empty((0, 0))
    for question, memory, _ in _replayed(view):
        grams = unpack_symmetric(memory["gram"][0].astype(np.float64) * SCALE, question.columns)
        pairs, rows = memory["pairs"].tolist(), []
        for place, leaf in enumerate(memory["leaves"]):
            weight = sum(gram[0, 0] for pair, gram in zip(pairs, grams, strict=True) if leaf in pair)
            own = grams[pairs.index([leaf, leaf])][0]
            if own[0] > 2.0**-GRID_BITS:
                target = memory["target"][0, place, :, 0].astype(np.float64) * SCALE / weight
                if question.domain.classes:  # the class of most rows
                    most = np.rint(target) if question.targets == 1 else np.arange(len(target)) == target.argmax()
                    target = most.astype(np.float64)
                row = rows_of(question, own[None, 1:] / own[0], target[None])
                rows.append(np.repeat(row, max(1, round(weight)), axis=0))
        result = np.concatenate(rows) if rows else result
    return result
