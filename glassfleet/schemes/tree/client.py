"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.numerics.grids import histogram
from glassfleet.numerics.softmax import probabilities
from glassfleet.numerics.statistics import to_grid
from glassfleet.private.layout import draws
from glassfleet.schemes.tree.bins import CELLS
from glassfleet.schemes.tree.messages import BEFORE_SCAN, TreeQuestion
from glassfleet.schemes.tree.params import (
    GROUP,
    LEAST_CURVATURE,
    MAX_RESIDUAL,
    MAX_ROWS,
    SCORE_BITS,
)
from glassfleet.schemes.tree.products import sum_by_cell, sum_columns, sum_pairs
from glassfleet.schemes.tree.rows import TrainingRows, training_rows
from glassfleet.schemes.tree.rules import outputs_of
from glassfleet.schemes.tree.start import first_answer
from glassfleet.schemes.tree.support import (
    about_bands,
    about_category,
    about_counts,
    about_pairs,
    band_of,
    bands_of,
    between_edges,
    by_category,
    count_rows,
    reached_by,
    shares,
    slices_of,
)
from glassfleet.schemes.tree.tree import Ramp, lower_side

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.intp]


def _targets(question: TreeQuestion, rows: TrainingRows) -> Array:
    """Return the targets, shape (T, n): the scaled number, or indicators of the classes."""
    if question.domain.target is not None:
        return rows.y[None]
    first = 1 if question.targets == 1 else 0
    indicators: Array = (rows.y == np.arange(first, first + question.targets)[:, None]).astype(np.float64)
    return indicators


class _Reached:
    """Which rows reach the leaves of a question's tree, with which degrees and columns."""

    def __init__(self, question: TreeQuestion, rows: TrainingRows) -> None:
        self.every = reached_by(question, rows)
        self.columns = rows.columns(question.regressors)
        # Of Booleans they are found in a fifth of the time.
        self.there = {leaf: np.flatnonzero(self.every[leaf] > 0.0) for leaf in question.tree.leaves}

    def of(self, leaf: int) -> tuple[Places, Array, Array]:
        """Return the rows that reach a leaf, their degrees, shape (n,), and columns, shape (k, n)."""
        there = self.there[leaf]
        return there, self.every[leaf].take(there), self.columns.take(there, axis=1)


def _residual(question: TreeQuestion, rows: TrainingRows, reached: _Reached) -> Array:
    """Return the residuals of the model asked about, clipped, shape (T, n)."""
    left = _blend(question, reached, _targets(question, rows), -1.0)
    return np.minimum(np.maximum(left, -MAX_RESIDUAL), MAX_RESIDUAL)


def _blend(question: TreeQuestion, reached: _Reached, start: Array, sign: float = 1.0) -> Array:
    """Add what the leaves asked about say together, of each target, to `start`, shape (T, n); or subtract it."""
    assert question.coefficients is not None
    total = start.copy()
    for leaf, lines in zip(question.tree.leaves, question.coefficients, strict=True):
        there, degree, columns = reached.of(leaf)
        for target, line in enumerate(lines):
            total[target, there] += sign * degree * outputs_of(line, columns[1:])
    return total


# --- the answers ----------------------------------------------------------------------------------------------------


def _scan(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Count all rows in histograms; sum products of inputs, all or those that vary, over training and held-out rows."""
    gram = np.zeros((2, question.width), dtype=np.int64)
    every, one = rows.every, np.ones((1, rows.count))
    columns = np.concatenate([one, every[list(question.scanned)], _targets(question, rows)])
    gram[rows.part] = sum_pairs(one, columns, rows.times)[0]
    return {
        "histogram": histogram(every, CELLS, rows.times),
        "gram": gram,
        "rows": np.array(rows.weighed, dtype=np.int64),
    }


def _bins(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum what is new to the joint fit, over training rows and those held out; and the bins of some leaves."""
    answer: dict[str, Ints] = {}
    reached = _Reached(question, rows)
    if question.latest:
        answer |= _joint(question, rows, reached)
    if question.leaves:
        answer |= _binned(question, rows, reached)
    return answer


def _joint(question: TreeQuestion, rows: TrainingRows, reached: _Reached) -> dict[str, Ints]:
    """Sum w_l w_m z z' of pairs of leaves, and w z y and w y^2 of leaves, over training rows and those held out."""
    gram = np.zeros((2, len(question.pairs), question.width), dtype=np.int64)
    target = np.zeros((2, len(question.new), question.targets * (question.columns + 1)), dtype=np.int64)
    targets = _targets(question, rows)
    for line, leaf in enumerate(question.new):
        there, degree, columns = reached.of(leaf)
        times = rows.times_of(there)
        if mine := question.partners[leaf]:
            weights = np.stack([reached.every[other].take(there) for _, other in mine]) * degree
            gram[rows.part, [place for place, _ in mine]] = sum_pairs(weights, columns, times)
        terms = _with_targets(columns, targets[:, there])
        target[rows.part, line] = sum_columns(degree[None], terms, times)[0]
    return {"gram": gram, "target": target}


def _with_targets(columns: Array, targets: Array) -> Array:
    """Return ``z y`` and ``y^2`` of each target in turn, shape (T (k + 1), n)."""
    return np.concatenate([np.concatenate([columns, y[None]]) * y for y in targets])


def _terms(columns: Array, degree: Array, residual: Array) -> Array:
    """Return w, w z r of each target in turn, and w^2 z of each row, shape (1 + T k + k, n)."""
    k = len(columns)
    terms = np.empty((1 + (len(residual) + 1) * k, len(degree)))
    terms[0] = degree
    for start, weight in zip(range(1, len(terms), k), [*(degree * residual), degree * degree], strict=True):
        np.multiply(columns, weight, out=terms[start : start + k])
    return terms


def _binned(question: TreeQuestion, rows: TrainingRows, reached: _Reached) -> dict[str, Ints]:
    """Sum w and w r by bin, and w x r and w^2 z by group of bins, of each leaf and input asked about."""
    k, bins, features = question.columns, question.parameters.bins, list(question.features)
    scored = 1 + question.targets * k
    total = np.zeros((len(question.leaves), len(features) * bins, scored + k), dtype=np.int64)
    if rows.training:
        residual = _residual(question, rows, reached)
        places = between_edges(question, rows)[features].astype(np.intp)
        for line, leaf in enumerate(question.leaves):
            there, degree, columns = reached.of(leaf)
            terms = _terms(columns, degree, residual[:, there])
            sums = sum_by_cell(terms, places[:, there], bins, rows.times_of(there), many=rows.many)
            total[line] = sums.reshape(total.shape[1:])
    shape = (len(question.leaves), len(features))

    def together(columns: Ints, size: int) -> Ints:
        summed: Ints = columns.reshape(*shape, bins // size, size, -1).sum(axis=3)
        return summed

    sums = total[:, :, 1:scored].reshape(*total.shape[:2], question.targets, k)
    slopes = np.ascontiguousarray(sums[..., 1:]).reshape(*total.shape[:2], -1)
    return {
        "scores": together(np.concatenate([total[:, :, :1], sums[..., 0]], axis=2), 1),
        "slopes": together(slopes, question.parameters.slope_bins),
        "means": together(total[:, :, scored:], GROUP),
    }


def _ramps(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum w^2 mu^2 z z', w^2 mu (1 - mu) z z', w mu z r and w mu for each ramp, with its lower side's degree mu."""
    squares = np.zeros((len(question.candidates), 2, question.width), dtype=np.int64)
    scores = np.zeros((len(question.candidates), question.targets * question.columns + 1), dtype=np.int64)
    if not rows.training:
        return {"squares": squares, "scores": scores}
    reached = _Reached(question, rows)
    residual = _residual(question, rows, reached)
    by_leaf: dict[int, list[tuple[int, Ramp]]] = {}
    for place, (leaf, ramp) in enumerate(question.candidates):
        by_leaf.setdefault(leaf, []).append((place, ramp))
    for leaf, asked in by_leaf.items():
        there, degree, columns = reached.of(leaf)
        times = rows.times_of(there)
        low = np.stack([lower_side(rows.inputs[f].take(there), a, b) for _, (f, a, b) in asked]) * degree
        places = [place for place, _ in asked]
        products = sum_pairs(np.concatenate([low * low, low * (degree - low)]), columns, times)
        squares[places, 0], squares[places, 1] = products[: len(asked)], products[len(asked) :]
        terms = [*(columns * own for own in residual[:, there]), columns[:1]]
        scores[places] = sum_columns(low, np.concatenate(terms), times)
    return {"squares": squares, "scores": scores}


def _newton(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum, for each leaf of each tree asked about, what a Newton step of its scores needs.

    With the chances p of the classes by the blend of all leaves of the tree, ``squares``: w p_a (1 - p_a) z z' of each
    score, then w p_a p_b z z' of each pair. ``expected``: w p_a z. ``observed``: w z of the rows of the class.
    ``weight``: w. They are of training rows; ``errors`` are of those held out: of each tree the squared errors of p,
    and the squares of how they differ from the first tree's. Or all are of all rows.
    """
    scores, k, end = question.targets, question.columns, rows.count if question.of_all else rows.training
    pairs = [(a, b) for a in range(scores) for b in range(a + 1, scores)]
    squares = np.zeros((question.scored, scores + len(pairs), question.width), dtype=np.int64)
    sums = np.zeros((question.scored, 1 + 2 * scores, k), dtype=np.int64)
    errors = np.zeros((2, len(question.sizes)), dtype=np.int64)
    y = _targets(question, rows)
    at, first = 0, np.zeros(0)
    for number, one in enumerate(question.each_size):
        reached = _Reached(one, rows)
        chances = probabilities(_blend(one, reached, np.zeros((scores, rows.count))))[-scores:]
        apart = np.add.accumulate((y - chances)[:, end:] ** 2)[-1]
        first = first if number else apart
        for line, terms in enumerate((apart, (apart - first) ** 2)):
            counted = to_grid(terms, SCORE_BITS)
            held = rows.times_of(slice(end, rows.count))
            errors[line, number] = int((counted if held is None else counted * held).astype(np.int64).sum())
        for leaf in one.tree.leaves if end else ():
            there, w, z = reached.of(leaf)
            p = chances[:, there]
            curved = [w * np.maximum(own * (1.0 - own), LEAST_CURVATURE) for own in p]
            times = rows.times_of(there)
            squares[at] = sum_pairs(np.stack([*curved, *(w * (p[a] * p[b]) for a, b in pairs)]), z, times)
            sums[at] = sum_columns(np.concatenate([w[None], w * p, w * y[:, there]]), z, times)
            at += 1
    return {
        "errors": errors,
        "squares": squares,
        "expected": sums[:, 1 : 1 + scores].copy(),
        "observed": sums[:, 1 + scores :].copy(),
        "weight": sums[:, 0, 0].copy(),
    }


# --- with support ---------------------------------------------------------------------------------------------------


def _support(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Count the rows on which sums would rest."""
    return {"rows": count_rows(question, rows)}


def _categories(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum 1 and r over the rows of each category that may be told, with draws of each input's own."""
    residual = _residual(question, rows, _Reached(question, rows))
    terms = np.concatenate([np.ones((1, rows.count)), residual]).T
    total, begin = np.zeros((len(question.disclosed), terms.shape[1]), dtype=np.int64), 0
    for variable in question.domain.features:
        end = begin + len(variable.categories)
        if end > begin:
            drawn = draws(rows.hashes, about_category(question, variable.name))
            total[begin:end] = by_category(question, rows, to_grid(terms * drawn[:, None], SCORE_BITS))[begin:end]
        begin = end
    return {"scores": total * question.disclosed[:, None]}


def _bands(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum w^2 z z' of leaves, and w, w z r and w^2 z by band of each leaf and input; each with draws of its own."""
    k, reached = question.columns, _Reached(question, rows)
    residual = _residual(question, rows, reached)
    own = np.zeros((len(question.leaves), question.width), dtype=np.int64)
    scored = 1 + question.targets * k
    total, spans = np.zeros((bands_of(question.kept), scored + k), dtype=np.int64), slices_of(question.kept)
    for line, leaf in enumerate(question.leaves):
        there, degree, columns = reached.of(leaf)
        drawn = draws(rows.hashes, about_counts(question, line, 0))[there]  # with the first input's the leaf is counted
        own[line] = sum_pairs((degree * degree * drawn)[None], columns)[0]
        terms = _terms(columns, degree, residual[:, there])
        for place in range(len(question.features)):
            band, span = band_of(question, rows, question.kept, line, place)[there], spans[line, place]
            drawn = draws(rows.hashes, about_bands(question, line, place))[there]
            total[span] = sum_by_cell(terms * drawn, band[None], span.stop - span.start)[0]
    return {"own": own, "scores": np.ascontiguousarray(total[:, :scored]), "means": total[:, scored:].copy()}


def _whole(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
    """Sum w_l w_m z z' of all pairs of leaves, and w z y and w y^2 of leaves, with one draw for each row."""
    drawn, leaves = draws(rows.hashes, about_pairs(question)), question.tree.leaves
    columns, targets = rows.columns(question.regressors), _targets(question, rows)
    share = dict(zip(leaves, shares(question, rows), strict=True))
    gram = np.zeros((len(question.tree.overlaps), question.width), dtype=np.int64)
    target = np.zeros((len(leaves), question.targets * (question.columns + 1)), dtype=np.int64)
    for at, (i, j) in enumerate(question.tree.overlaps):
        weight = share[i] * share[j]
        there = np.flatnonzero(weight)
        gram[at] = sum_pairs((weight * drawn)[None, there], columns.take(there, axis=1))[0]
    for at, leaf in enumerate(leaves):
        there = np.flatnonzero(share[leaf])
        terms = _with_targets(columns.take(there, axis=1), targets[:, there])
        target[at] = sum_columns((share[leaf] * drawn)[None, there], terms)[0]
    return {"gram": gram, "target": target}


def _by_block(answer: Callable[[TreeQuestion, TrainingRows], dict[str, Ints]]) -> Callable[..., dict[str, Ints]]:
    """Return `answer`, computed for a block of rows after the other: the sums are the same, and little is in memory."""

    def whole(question: TreeQuestion, rows: TrainingRows) -> dict[str, Ints]:
        first, *others = rows.blocks
        total = answer(question, first)
        for block in others:
            for name, part in answer(question, block).items():
                total[name] += part
        return total if rows.parts == 1 else _in_rows(total, rows)

    return whole


def _in_rows(sums: dict[str, Ints], rows: TrainingRows) -> dict[str, Ints]:
    """Return sums of rows out of sums of parts of rows: rounded, and histograms so that they count all rows."""
    result = {name: (part + rows.parts // 2) // rows.parts for name, part in sums.items()}
    if "histogram" in sums:
        above = np.cumsum(sums["histogram"], axis=1)
        counted = above * sum(rows.weighed) // np.maximum(above[:, -1:], 1)
        result |= {"histogram": np.diff(counted, prepend=0, axis=1), "rows": np.array(rows.weighed, dtype=np.int64)}
    return result


_ANSWERS = {"scan": _by_block(_scan), "bins": _by_block(_bins), "ramps": _by_block(_ramps)} | {
    "newton": _by_block(_newton), SUPPORT: _support, "categories": _categories, "bands": _bands, "joint": _whole,
}  # fmt: skip


def answer(question: TreeQuestion, data: Dataset) -> Contribution:
    """Return the sums of a question over one vehicle's rows."""
    parameters = question.parameters
    rows = training_rows(data, question.domain, parameters.group_rows, question.holdout, question.levels)
    if rows.total > MAX_ROWS:
        raise TaskError(f"{rows.total} rows, the run's grid is good for {MAX_ROWS}")
    if question.kind in BEFORE_SCAN:
        return first_answer(question, rows)
    return Contribution(question.kind, sum(rows.weighed), _ANSWERS[question.kind](question, rows))
