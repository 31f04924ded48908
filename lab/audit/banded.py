"""Rows from the sums of tree with support: one row left over where sums, or columns of one, are subtracted.

- margins: sums by band add up to those below an edge. Those below an edge of one input, and of another input or leaf,
  may differ by one row. Then w d, w d [1, x] r and w^2 d [1, x], with the row's degree w and draw d, agree with each
  other. Its target is what the question's model says of it, and r.
- remainders: the same of product sums, of leaves and in the joint fit: a difference of rank one. The joint fit tells
  the row's target; of a leaf alone it is not told.
- columns: as in `sums`, one row that has another value of a column than all others, 0 or 1. Of a leaf its degree and
  its draw must agree with its inputs; sums with target or residual then tell the target.
- classes: the only row of a class in a leaf of the joint fit, or of all rows: sums of [1, x] over the class are it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.private.layout import DRAWS
from glassfleet.schemes.tree.joint import SCALE
from glassfleet.schemes.tree.messages import TreeQuestion, read_task
from glassfleet.schemes.tree.params import SCORE_BITS
from glassfleet.schemes.tree.support import STEP, slices_of
from glassfleet.schemes.tree.tree import degrees
from lab.audit.sums import COMMON, NEAR, Rows, from_grams, off_value, stacked
from lab.audit.transcript import Sums, View
from lab.audit.tree import forecast, rows_of

Array = NDArray[np.float64]

MOST_LINES = 4000
"""Sums of a view that are subtracted from each other: pairs grow with the square."""

_LEAST = 1e-4
"""Least weight times residual whose ratios tell a row: sums are rounded to 2^-28."""

_LIGHTEST = 0.5 * STEP
"""Least weight of a row in a sum: its degree times its draw."""


# --- sums by band ---------------------------------------------------------------------------------------------------


def margins(*seen: View) -> Rows:
    """Return the row by which two sums over bands differ, as far as that can be told."""
    rows = []
    for asked in _alike(seen, ("bands",)):
        lines = [(question, line) for question, sums in asked for part in _below(question, sums) for line in part]
        lines = lines[:MOST_LINES]
        table = np.stack([line for _, line in lines])
        for question, line in lines:
            for target in range(question.targets):
                inputs, residual = _lone(np.concatenate([line - table, line[None]]), question, target)
                if len(inputs):
                    rows.append(rows_of(question, inputs, forecast(question, inputs) + residual))
    return stacked(rows)


def _alike(seen: Iterable[View], kinds: Sequence[str]) -> list[list[tuple[TreeQuestion, Sums]]]:
    """Return the questions of some kinds with their answers, those of the same columns together."""
    found: dict[tuple[int, ...], list[tuple[TreeQuestion, Sums]]] = {}
    for task, sums in (one for view in seen for one in view if one[0].kind in kinds):
        question = read_task(task)
        found.setdefault(question.regressors, []).append((question, sums))
    return list(found.values())


def _below(question: TreeQuestion, sums: Sums) -> Iterator[Array]:
    """Yield the sums below each edge between bands of a leaf and an input, and of all bands, (bands, 1 + T k + k)."""
    bands = np.concatenate([sums["scores"], sums["means"]], axis=1) / 2.0**SCORE_BITS
    for span in slices_of(question.kept).values():
        yield np.cumsum(bands[span], axis=0)


def _lone(left: Array, question: TreeQuestion, target: int) -> tuple[Array, Array]:
    """Return regressors, shape (m, R), and residuals, (m, T), of lines of sums that are one row's, by one target's."""
    k, targets = question.columns, question.targets
    each, means = left[:, 1 : 1 + targets * k].reshape(-1, targets, k), left[:, 1 + targets * k :]
    weight, square, first = left[:, 0], means[:, 0], each[:, target, 0]
    is_row = (weight > _LIGHTEST - NEAR) & (weight < 1.0 + NEAR) & (np.abs(first) > _LEAST)
    is_row &= (square > STEP * _LIGHTEST - NEAR) & (square < weight + NEAR)
    inputs = means[:, 1:] / np.where(is_row, square, 1.0)[:, None]
    is_row &= ((inputs > -NEAR) & (inputs < 1.0 + NEAR)).all(axis=1)
    made = inputs * first[:, None]
    is_row &= (np.abs(made - each[:, target, 1:]) < NEAR * np.maximum(np.abs(first), 1e-2)[:, None]).all(axis=1)
    return inputs[is_row], each[is_row, :, 0] / weight[is_row, None]


# --- product sums ---------------------------------------------------------------------------------------------------


def remainders(*seen: View) -> Rows:
    """Return the row by which two product sums differ, as far as that can be told."""
    rows = []
    for asked in _alike(seen, ("bands", "joint")):
        grams, targets = (np.concatenate(parts) for parts in zip(*(_products(*one) for one in asked), strict=True))
        question, _ = asked[0]
        rows.append(_of_rank_one(question, grams, targets))
        rows += [_of_rank_one(question, grams - gram, targets - own) for gram, own in zip(grams, targets, strict=True)]
    return stacked(rows)


def _products(question: TreeQuestion, sums: Sums) -> tuple[Array, Array]:
    """Return product sums, shape (m, k, k), and those with targets and their squares, (m, T, k + 1); NaN: none."""
    k = question.columns
    if question.kind == "bands":
        own = unpack_symmetric(sums["own"].astype(np.float64) * SCALE, k)
        return own, np.full((len(own), question.targets, k + 1), np.nan)
    grams = unpack_symmetric(sums["gram"].astype(np.float64) * SCALE, k)
    target = sums["target"].astype(np.float64).reshape(-1, question.targets, k + 1) * SCALE
    place = {leaf: at for at, leaf in enumerate(question.tree.leaves)}
    nothing = np.full((question.targets, k + 1), np.nan)
    return grams, np.stack([target[place[i]] if i == j else nothing for i, j in question.tree.overlaps])


def _of_rank_one(question: TreeQuestion, gram: Array, target: Array) -> Rows:
    """Return the rows of product sums of rank one."""
    weight = gram[:, 0, 0]
    is_row = (weight > STEP * _LIGHTEST - NEAR) & (weight < 1.0 + NEAR)
    line = gram[:, 0] / np.where(is_row, weight, 1.0)[:, None]
    is_row &= ((line > -NEAR) & (line < 1.0 + NEAR)).all(axis=1)
    made = weight[:, None, None] * line[:, :, None] * line[:, None, :]
    is_row &= (np.abs(made - gram) < NEAR * np.maximum(weight, 1e-2)[:, None, None]).all(axis=(1, 2))
    first = target[is_row, :, 0]
    if question.domain.classes:
        y = np.where(np.isnan(first), np.nan, first > 0.5 * weight[is_row, None])
    else:
        y = target[is_row, :, -1] / np.where(np.abs(first) > _LEAST, first, np.nan)
    return rows_of(question, line[is_row, 1:], y)


# --- columns --------------------------------------------------------------------------------------------------------


def columns(view: View) -> Rows:
    """Return the row that products tell if all other rows of a leaf have one value of a column."""
    rows = []
    for task, sums in view:
        if task.kind == "scan":
            question = read_task(task)
            k, targets = 1 + len(question.scanned), question.targets
            grams = unpack_symmetric(sums["gram"].astype(np.float64) * SCALE, k + targets)[:, : k + 1, : k + 1]
            every = from_grams(question.scanned, question.n_inputs, grams, np.ones(len(grams), dtype=np.bool_))
            found = [off_value(every, value) for value in COMMON]
            for each in found if targets > 1 else ():
                each[:, -1] = np.nan  # an indicator of the first class
            rows += found
        if task.kind in ("bands", "joint"):
            question = read_task(task)
            rows += [_off_value(question, *one, value) for one in _leaves(question, sums) for value in COMMON]
    return stacked(rows)


def _leaves(question: TreeQuestion, sums: Sums) -> Iterator[tuple[int, Array, Array, Array]]:
    """Yield leaves, product sums, (k, k), and of equal draws ``w z y`` or ``w z r``, (T, k), and ``w^2 z``, (k,)."""
    k = question.columns
    if question.kind == "bands":
        own = unpack_symmetric(sums["own"].astype(np.float64) * SCALE, k)
        for (line, _), span in slices_of(question.kept).items():
            of_bands = (sums["scores"][span, 1:], sums["means"][span])
            right, squares = (part.sum(axis=0) / 2.0**SCORE_BITS for part in of_bands)
            yield question.leaves[line], own[line], right.reshape(-1, k), squares
        return
    grams, targets = _products(question, sums)
    for (leaf, other), gram, target in zip(question.tree.overlaps, grams, targets, strict=True):
        if leaf == other:
            yield leaf, gram, target[:, :-1], gram[0]


def _off_value(question: TreeQuestion, leaf: int, gram: Array, right: Array, squares: Array, value: float) -> Rows:  # noqa: PLR0917
    """Return the rows that each column less `value` tells, where degree and draw agree."""
    left, base = gram[1:] - value * gram[0], squares[1:] - value * squares[0]
    other = (right[:, 1:] - value * right[:, :1]).T
    weight = left[:, 0]
    is_row = np.abs(weight) > _LEAST
    inputs = left[:, 1:] / np.where(is_row, weight, 1.0)[:, None]
    is_row &= ((inputs > -NEAR) & (inputs < 1.0 + NEAR)).all(axis=1)
    scaled = np.zeros((question.n_inputs, len(inputs)))
    scaled[list(question.regressors)] = np.clip(inputs.T, 0.0, 1.0)
    degree = degrees(question.tree, scaled, STEP)[leaf]
    alone = degree * degree * (np.diagonal(inputs) - value)
    drawn = weight / np.where(np.abs(alone) > _LEAST, alone, np.nan)
    is_row &= np.abs(16.0 * drawn - np.rint(16.0 * drawn)) < 0.05
    is_row &= (drawn > DRAWS[0] - NEAR) & (drawn < DRAWS[-1] + NEAR)
    target = (other * (degree / np.where(is_row & (base != 0.0), base, np.nan))[:, None])[is_row]
    rows = inputs[is_row]
    return rows_of(question, rows, target + (forecast(question, rows) if question.kind == "bands" else 0.0))


# --- classes --------------------------------------------------------------------------------------------------------


def classes(view: View) -> Rows:
    """Return the row that may be the only one of its class among all rows, or in a leaf of the joint fit."""
    rows = []
    for task, sums in view:
        question = read_task(task) if task.kind in ("scan", "joint") else None
        if question is None or not question.domain.classes:
            continue
        if question.kind == "scan":
            k = 1 + len(question.scanned)
            question = replace(question, regressors=question.scanned)
            grams = unpack_symmetric(sums["gram"].astype(np.float64) * SCALE, k + question.targets)
            whole, each = grams[:, 0, :k], grams[:, k:, :k]
        else:
            grams, targets = _products(question, sums)
            pairs = np.array(question.tree.overlaps)
            is_own = pairs[:, 0] == pairs[:, 1]
            each = targets[is_own, :, :-1]
            whole = np.stack([grams[(pairs == leaf).any(axis=1), 0].sum(axis=0) for leaf in pairs[is_own, 0]])
        if question.targets == 1:
            each = np.stack([whole - each[:, 0], each[:, 0]], axis=1)
        for number, own in enumerate(each.swapaxes(0, 1)):
            # Two leaves may differ by one row, if they share all others to the same degree.
            left = [own - share / (1.0 - share) * other for other in own for share in np.arange(STEP, 1.0, STEP)]
            lines = np.concatenate([own, *left])
            weight = lines[:, :1]
            inputs = lines[:, 1:] / np.where(weight > 0.0, weight, 1.0)
            is_row = (weight[:, 0] > STEP * _LIGHTEST) & (weight[:, 0] < 1.0 + NEAR)
            is_row &= ((inputs > -NEAR) & (inputs < 1.0 + NEAR)).all(axis=1)
            indicators = np.tile(np.arange(len(question.domain.classes)) == number, (is_row.sum(), 1))
            target = indicators.astype(np.float64)[:, -question.targets :]
            rows.append(rows_of(question, inputs[is_row], target))
    return stacked(rows)
