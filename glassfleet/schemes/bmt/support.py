"""Runs with `support`: on how many rows bands and pairs of leaves rest, and the weights of rows in what is asked.

Two sums over nearly the same rows tell, by subtraction, the few in which they differ. Here they do not: in the sums of
each leaf, and by band of each leaf and input, a row has a *draw* of its own as a factor, from a hash of the row and of
what is asked. So the rows that two sums share do not cancel out, as a rule. Only the same question to another edition
has the same draws: the rows of differences of editions are counted. Of products there is one sum a leaf: several, with
other draws each, would determine its rows.

Degrees are multiples of an eighth: nobody hides behind rows of next to no weight. In the sums of the joint fit a row
may be in several leaves. Where two leaves share rows, but too few, the pair is *closed*: these rows move to the leaf
that has more of them. That is decided before anything of the joint fit is summed.

Of rows that have another value of an input, or another target, than many rows have (`glassfleet.private.columns`) there
are none in a leaf, or enough: where all but one have one value, products less this value are that one row's. A leaf
with few of them is not split off; in the joint fit they move as those of a pair do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import remembered
from glassfleet.data.mixing import mixed_in
from glassfleet.private.columns import layers_of, least_others
from glassfleet.private.support import Ints, decided, holds, joined
from glassfleet.scheme import Contribution, Task
from glassfleet.schemes.bmt.bins import CELLS, bins_of
from glassfleet.schemes.bmt.messages import Question, read_task
from glassfleet.schemes.bmt.tree import Tree, degrees
from glassfleet.training import TrainingRows
from schemas.codec import Value, digest_of

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

STEP = 1 / 8
"""Degrees of rows in nodes are rounded to multiples of this."""

DRAWS = tuple(draw / 16.0 for draw in range(8, 16))
"""Factors of rows, one for each of three bits of a hash."""

DRAWN = 23 / 32
"""Mean of the draws: sums are so many times what they would be without."""


# --- what is asked about, in a form that means the same in every task -----------------------------------------------


def _path(tree: Tree, leaf: int) -> list[Value]:
    return [[*split.ramp, upper] for split, upper in tree.path(leaf)]


def about_bins(question: Question, leaf: int, feature: int) -> list[Value]:
    """Return what the counts of a leaf's rows by bins of an input are about."""
    assert question.edges is not None
    return [_path(question.tree, leaf), feature, question.edges[feature].tolist()]


def about_leaf(question: Question, leaf: int) -> list[Value]:
    """Return what the product sums of a leaf are about: with the counts of the first input they are counted."""
    return [*about_bins(question, leaf, question.features[0]), _common(question)]


def _common(question: Question) -> list[Value]:
    return [list(one) for one in question.common]


def about_bands(question: Question, line: int, place: int) -> list[Value]:
    """Return what the sums by band of a leaf and an input, given as lines of ``kept``, are about.

    Where it is the same, so is what the counts were about.
    """
    counted = about_bins(question, question.leaves[line], question.features[place])
    return [*counted, *question.bands(line, place)]


def about_pairs(question: Question) -> Value:
    """Return what the sums of the joint fit are about: all rules, as a row has one draw in all of them."""
    splits = [[split.node, *split.ramp] for split in question.tree.splits]
    return [splits, [list(pair) for pair in question.closed], _common(question)]


def places(task: Task) -> list[Any]:
    """Return what each line of the answer to a support question is about."""
    question = read_task(task)
    if question.is_of_pairs:
        return [(digest_of(about_pairs(question)), pair) for pair in question.tree.overlaps]
    bins = [digest_of(about_bins(question, leaf, each)) for leaf in question.leaves for each in question.features]
    others = [(digest_of(about_leaf(question, leaf)), n) for leaf in question.leaves for n in range(question.n_lines)]
    return [*bins, *others]


# --- the vehicle's part ---------------------------------------------------------------------------------------------


def draws(rows: TrainingRows, about: Value) -> Array:
    """Return the factors of the rows in sums about something, one of :data:`DRAWS` each, shape (n,)."""
    seed = np.array([int(digest_of(about)[:16], 16)], dtype=np.uint64)
    return np.array(DRAWS)[(mixed_in(rows.hashes, seed) >> np.uint64(61)).astype(np.intp)]


def between_edges(question: Question, rows: TrainingRows) -> NDArray[np.int32]:
    """Return the bins in which the training rows are, shape (F, n); those between the latest edges are kept."""
    edges, inputs = question.edges, rows.inputs[:, : rows.training]
    assert edges is not None
    return remembered(rows.memo, "bins", edges.tobytes(), lambda: bins_of(inputs, edges))


def reached_by(question: Question, rows: TrainingRows) -> list[Array]:
    """Return the degree to which rows reach each node of the tree, shapes (n,)."""
    return degrees(question.tree, rows.inputs, STEP)


def shares(question: Question, rows: TrainingRows) -> Array:
    """Return the degree to which rows are in each leaf, shape (L, n), once the rows of closed pairs have moved.

    Where a leaf itself is closed, its rows are in no leaf.
    """
    layers = _layers(question, rows)
    every, leaves = reached_by(question, rows), question.tree.leaves
    result = np.stack([every[leaf] for leaf in leaves])
    line = {leaf: at for at, leaf in enumerate(leaves)}
    for i, j, layer in question.closed:
        one, two = result[line[i]], result[line[j]]
        there = np.flatnonzero((one > 0.0) & (two > 0.0) & layers[layer])
        if i == j:
            result[:, there] = 0.0
            continue
        both, has_more = one[there] + two[there], one[there] >= two[there]
        one[there], two[there] = np.where(has_more, both, 0.0), np.where(has_more, 0.0, both)
    return result


def _layers(question: Question, rows: TrainingRows) -> Bools:
    """Return which training rows are in which layer, shape (layers, n): all of them, then those of another value."""
    return layers_of(rows.inputs[:, : rows.training], rows.y[: rows.training], question.common, CELLS)


def count_rows(question: Question, rows: TrainingRows) -> Ints:
    """Return on how many different rows of a vehicle each sum would rest, shape (lines, bins) or (pairs, layers).

    The layers are all rows, then those of another value alone. The target is in the sums of leaves, not of two leaves.
    """
    least, first = question.least_rows, rows.different[: rows.training]
    layers = _layers(question, rows) & first
    if question.is_of_pairs:
        is_in = shares(question, rows) > 0.0
        at = {leaf: place for place, leaf in enumerate(question.tree.leaves)}
        shared = [is_in[at[i]] & is_in[at[j]] for i, j in question.tree.overlaps]
        both = np.array([np.count_nonzero(layers & each, axis=1) for each in shared], dtype=np.int64)
        both[[i != j for i, j in question.tree.overlaps], 1 + question.of_inputs :] = 0
        of_pairs: Ints = np.minimum(both, question.least_of)
        return of_pairs
    bins, between = question.parameters.bins, between_edges(question, rows)[list(question.features)]
    every = reached_by(question, rows)
    there = [(every[leaf] > 0.0) & first for leaf in question.leaves]
    counts = [np.bincount(own[inside], minlength=bins) for inside in there for own in between]
    others = np.zeros((len(there), question.n_lines * bins), dtype=np.int64)
    for own, inside in zip(others, there, strict=True):
        own[: question.of_inputs] = np.count_nonzero(layers[1 : 1 + question.of_inputs] & inside, axis=1)
    of_bins = np.minimum(np.array(counts, dtype=np.int64).reshape(-1, bins), least)
    return np.concatenate([of_bins, np.minimum(others, least_others(question.parameters.support)).reshape(-1, bins)])


# --- the coordinator's part -----------------------------------------------------------------------------------------


def decide_bands(question: Question, contributions: Sequence[Contribution]) -> tuple[Bools, Bools]:
    """Return which leaves hold enough rows, shape (leaves,), and which inner edges lie between bands that do.

    The edges, shape (leaves, features, bins - 1), are as ``kept`` of a question about the same leaves has them.
    """
    bins, least = question.parameters.bins, question.least_rows
    n_leaves, n_features = len(question.leaves), len(question.features)

    def from_rows(parts: list[Ints]) -> Bools:
        n_lines = n_leaves * n_features
        rows = np.stack([part[:n_lines].reshape(n_leaves, n_features, bins) for part in parts])
        others = [part[n_lines:].reshape(n_leaves, -1) for part in parts]
        before = np.pad(np.cumsum(rows, axis=3), ((0, 0), (0, 0), (0, 0), (1, 0)))
        whole = before[:, :, :, -1]
        enough = np.logical_and.reduce(holds(list(whole), least), axis=1)
        enough &= np.logical_or.reduce(whole > 0, axis=(0, 2))
        enough &= np.logical_and.reduce(holds(others, least_others(question.parameters.support)), axis=1)
        kept = np.zeros((n_leaves, n_features, bins - 1), dtype=bool)
        cuts = [(edge, edge) for edge in range(1, bins)]
        for line, place in product(np.flatnonzero(enough), range(n_features)):
            mine = before[:, line, place]

            def is_enough(first: int, end: int, mine: Ints = mine) -> bool:
                return bool(holds([mine[:, end] - mine[:, first]], least).all())

            kept[line, place, joined(cuts, bins, np.ones(bins - 1, dtype=bool), is_enough)] = True
        return np.concatenate([enough, kept.ravel()])

    flat = decided(contributions, places, question.to_task(), from_rows)
    return flat[:n_leaves], flat[n_leaves:].reshape(n_leaves, n_features, bins - 1)


def decide_pairs(question: Question, contributions: Sequence[Contribution]) -> Bools:
    """Return which pairs of leaves share no rows or enough, of each layer, shape (pairs, layers).

    The pairs are in the order of the tree's overlaps.
    """
    return decided(contributions, places, question.to_task(), lambda parts: holds(parts, question.least_of))


def edges_of(question: Question, line: int, place: int) -> Array:
    """Return the edges of the bands of a leaf and an input, shape (bands + 1,)."""
    assert question.edges is not None
    edges: Array = question.edges[question.features[place]][question.bands(line, place)]
    return edges


def slices_of(question: Question) -> dict[tuple[int, int], slice]:
    """Return where the bands of each leaf and input stand in an answer."""
    assert question.kept is not None
    counts = (question.kept.sum(axis=2) + 1).ravel()
    ends = np.concatenate([[0], np.cumsum(counts)]).tolist()
    keys = [(line, place) for line in range(question.kept.shape[0]) for place in range(question.kept.shape[1])]
    return {key: slice(*span) for key, span in zip(keys, pairwise(ends), strict=True)}
