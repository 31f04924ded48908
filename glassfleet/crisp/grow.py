"""CART: growing a tree that may split on any input, and choosing its depth by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.crisp.cuts import Columns, Rows, Sets, Summary, cut_ordered, part, summarise
from glassfleet.crisp.fit import TreeTally, finish_tree, spreads
from glassfleet.crisp.tree import CrispTree

MIN_DEPTH = 2
_MAX_DEPTH, _FOLDS = 15, 5


@dataclass(frozen=True)
class _Level:
    """The sets of one depth: what they hold, where they came from, and how they are cut."""

    summary: Summary
    variance: NDArray[np.float64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]


def grow_tree(columns: Columns, train: Rows, depth: int) -> CrispTree:
    """Return the CART of the rows `train`, at least one, with at most `depth` splits on a path."""
    levels = [level for level, _ in _grow(columns, train, train[:0], depth, variance=True)]
    offsets = np.cumsum([0, *(len(level.feature) for level in levels)])
    total = np.concatenate([level.summary.total for level in levels])
    rows = np.concatenate([level.summary.count for level in levels]).astype(np.float64)
    feature = np.concatenate([level.feature for level in levels])
    threshold = np.concatenate([level.threshold for level in levels])
    variance = np.concatenate([level.variance for level in levels])
    left = np.full(len(feature), -1, dtype=np.intp)
    for number, level in enumerate(levels):
        split = np.flatnonzero(level.feature >= 0)
        left[offsets[number] + split] = offsets[number + 1] + 2 * np.arange(len(split))
    order = _pre_order(left)
    new = np.empty(len(order), dtype=np.intp)
    new[order] = np.arange(len(order))
    right = np.where(left[order] >= 0, new[left[order] + 1], -1)
    return finish_tree(
        columns,
        feature=feature[order],
        threshold=threshold[order],
        right=right,
        total=total[order],
        variance=variance[order],
        rows=rows[order],
    )


def _pre_order(left: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return node numbers in pre-order; children of a node are `left` and the next number."""
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if left[node] >= 0:
            stack += [int(left[node]) + 1, int(left[node])]
    return np.array(order, dtype=np.intp)


def _grow(
    columns: Columns, train: Rows, test: Rows, depth: int, *, variance: bool = False
) -> Iterator[tuple[_Level, Sets]]:
    """Yield each depth, and the test rows of its sets.

    The rows stand in the order of every input from the beginning, and are only regrouped by set from level to level, so
    that nothing is sorted by value twice.
    """
    here, beyond = Sets(train, np.array([len(train)])), Sets(test, np.array([len(test)]))
    inputs = np.arange(columns.features)[:, None]
    ordered = _only(columns.order, train, columns.rows)
    for number in range(depth + 1):
        summary = summarise(columns, here)
        size = len(here.count)
        feature, threshold = np.full(size, -1, dtype=np.int32), np.zeros(size)
        spread = spreads(columns, here) if variance and not columns.classes else np.zeros(size)
        level = _Level(summary, spread, feature, threshold)
        opens = np.flatnonzero(~summary.pure)
        if number == depth or not opens.size:
            yield level, beyond
            return
        ordered, group = _regroup(ordered, here.take(opens), columns.rows)
        cuts = cut_ordered(
            columns,
            Sets(ordered.ravel(), np.tile(here.count[opens], len(inputs))),
            number=(group + inputs * len(opens)).ravel(),
            value=columns.X[ordered, inputs].ravel(),
            total=np.tile(summary.total[opens], (len(inputs), 1)),
        )
        best = cuts.gain.reshape(-1, len(opens)).argmax(axis=0)
        place = best * len(opens) + np.arange(len(opens))
        good = cuts.left[place] > 0
        chosen, split, cut = best[good], opens[good], cuts.threshold[place[good]]
        feature[split], threshold[split] = chosen, cut
        yield level, beyond
        if not split.size:
            return
        here, beyond = (part(columns, sets.take(split), chosen, cut) for sets in (here, beyond))


def _only(order: NDArray[np.intp], rows: Rows, whole: int) -> NDArray[np.intp]:
    """Return `order`, shape (F, n), with the given rows alone."""
    wanted = np.zeros(whole, dtype=np.bool_)
    wanted[rows] = True
    return order[wanted[order]].reshape(len(order), len(rows))


def _regroup(ordered: NDArray[np.intp], sets: Sets, whole: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of `sets` in the order of set and value, per input, and the set of each; both of shape (F, m)."""
    # Small integers: a stable sort of them is a radix sort.
    kind = np.int16 if len(sets.count) < 1 << 15 else np.int64
    belongs: NDArray[Any] = np.full(whole, -1, dtype=kind)
    belongs[sets.rows] = sets.number()
    group = belongs[ordered]
    if len(sets.rows) < ordered.shape[1]:
        stays = group >= 0
        shape = (len(ordered), len(sets.rows))
        ordered, group = ordered[stays].reshape(shape), group[stays].reshape(shape)
    if len(sets.count) == 1:
        return ordered, group.astype(np.intp)
    order = np.argsort(group, axis=1, kind="stable")
    return np.take_along_axis(ordered, order, axis=1), np.take_along_axis(group, order, axis=1).astype(np.intp)


def depth_scores(
    columns: Columns, folds: list[tuple[Rows, Rows]], depth: int, *, positive: int | None
) -> NDArray[np.float64]:
    """Return the fitness of the CART of each fold cut off at each depth, shape (folds, depth + 1).

    One tree per fold is grown; cutting it off at a smaller depth gives the tree that would have been grown to that
    depth.
    """
    scores = np.empty((len(folds), depth + 1))
    for line, (train, test) in enumerate(folds):
        ended = TreeTally(columns, 1, test)
        for at, (level, beyond) in enumerate(_grow(columns, train, test, depth)):
            whole = ended.copy()
            everyone = np.arange(len(level.feature))
            whole.add(level.summary, beyond, np.zeros(len(everyone), dtype=np.intp), everyone)
            leaves = np.flatnonzero(level.feature < 0)
            ended.add(level.summary, beyond, np.zeros(len(leaves), dtype=np.intp), leaves)
            scores[line, at:] = whole.fitness(positive)[0]
    return scores


def best_depth(scores: NDArray[np.float64]) -> int:
    """Return the depth, at least MIN_DEPTH, with the best mean score; ties go to the smallest."""
    mean = scores.mean(axis=0)
    if len(mean) <= MIN_DEPTH:
        return len(mean) - 1
    return int(mean[MIN_DEPTH:].argmax()) + MIN_DEPTH


def stratified_parts(columns: Columns, parts: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return a part, in [0, `parts`), for each row, at random and with equal shares of every class."""
    shuffled = rng.permutation(columns.rows)
    if columns.classes:
        shuffled = shuffled[np.argsort(columns.y[shuffled], kind="stable")]
    part_of = np.empty(columns.rows, dtype=np.intp)
    part_of[shuffled] = np.arange(columns.rows) % parts
    return part_of


def kfold_parts(part_of: NDArray[np.intp], parts: int) -> list[tuple[Rows, Rows]]:
    """Return (training, test) rows of each part; parts that would leave nothing to train or test on are left out."""
    folds = [(np.flatnonzero(part_of != fold), np.flatnonzero(part_of == fold)) for fold in range(parts)]
    return [(train, test) for train, test in folds if len(train) and len(test)]


def cross_validated_tree(columns: Columns, rng: np.random.Generator, *, positive: int | None) -> CrispTree:
    """Return the CART of all rows, at least one, to the depth in [2, 15] that cross-validation in 5 folds chooses.

    Parameters
    ----------
    rng : Generator
        Draws the folds.
    positive : int or None
        Class whose F1 counts; None: the mean over the classes (or the squared error).
    """
    parts = kfold_parts(stratified_parts(columns, _FOLDS, rng), _FOLDS)
    depth = best_depth(depth_scores(columns, parts, _MAX_DEPTH, positive=positive)) if parts else MIN_DEPTH
    return grow_tree(columns, np.arange(columns.rows), depth)
