"""Runs with `support`: on how many rows bands and pairs of leaves rest, and the weights of rows in what is asked.

In the sums of each leaf, and by band of each leaf and input, rows have draws of their own
(:mod:`glassfleet.private.layout`). Several sums of the same few rows, with other draws each, would determine these. So
of products there is one sum a leaf, and leaves and bands hold twice as many rows as are told sums of them: one for each
input of a leaf, and one for each leaf above a band.

Degrees are multiples of an eighth: nobody hides behind rows of next to no weight. In the sums of the joint fit a row
may be in several leaves. Where two leaves share rows, but too few, the pair is *closed*: these rows move to the leaf
that has more of them. That is decided before anything of the joint fit is summed.

Of a category that fewer than 3 rows have, or `support`, nothing is told: its level is that of unknown ones. Texts and
indicators of empty cells are no columns of products. What is told of them are bands of their levels.

A new leaf's rows are counted by the bands of the leaf above it, of the first one by bins: fewer bands hold one row.

Of rows that have another value of an input, or another target, than many rows have (`glassfleet.private.columns`) there
are none in a leaf or a band, or enough. Where all but one have one value, sums less this value are that one row's. A
leaf with few of them is not split off, a band is joined to the next one; in the joint fit they move as those of a pair
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import remembered
from glassfleet.fuzzy.levels import sums_by_category
from glassfleet.private.columns import layers_of
from glassfleet.private.support import Ints, decided, holds, joined
from glassfleet.schemes.tree.bins import CELLS, bins_of
from glassfleet.schemes.tree.messages import TreeQuestion, read_task
from glassfleet.schemes.tree.rows import TrainingRows
from glassfleet.schemes.tree.tree import Tree, degrees
from schemas.codec import Value, digest_of

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

STEP = 1 / 8
"""Degrees of rows in nodes are rounded to multiples of this, with `support`."""


# --- bands ----------------------------------------------------------------------------------------------------------


def limits_of(inner: Bools) -> list[int]:
    """Return the edges of the bands of a leaf and an input, by the inner ones, shape (bins - 1,): numbers of bins."""
    return [0, *(1 + np.flatnonzero(inner)).tolist(), len(inner) + 1]


def bands_of(inner: Bools) -> int:
    """Return how many bands there are of all leaves and inputs, by their inner edges."""
    return int(inner.sum() + inner.shape[0] * inner.shape[1])


def slices_of(inner: Bools) -> dict[tuple[int, int], slice]:
    """Return where the bands of each leaf and input stand in an answer."""
    ends = np.concatenate([[0], np.cumsum(inner.sum(axis=2) + 1)]).tolist()
    keys = product(range(inner.shape[0]), range(inner.shape[1]))
    return {key: slice(*span) for key, span in zip(keys, pairwise(ends), strict=True)}


# --- what is asked about, in a form that means the same in every task -----------------------------------------------


def _path(tree: Tree, leaf: int) -> list[Value]:
    return [[*split.ramp, upper] for split, upper in tree.path(leaf)]


def about_counts(question: TreeQuestion, line: int, place: int) -> list[Value]:
    """Return what the counts of a leaf's rows by bands of an input, given as lines of ``counted``, are about."""
    assert question.edges is not None
    feature, path = question.features[place], _path(question.tree, question.leaves[line])
    limits: list[Value] = list(limits_of(question.counted[line, place]))
    # At another number counts end elsewhere: differences of such would be of no rows.
    return [path, feature, question.edges[feature].tolist(), _common(question), limits, question.least_rows]


def _common(question: TreeQuestion) -> list[Value]:
    return [list(one) for one in question.common]


def about_bands(question: TreeQuestion, line: int, place: int) -> list[Value]:
    """Return what the sums by band of a leaf and an input, given as lines of ``kept``, are about.

    Where it is the same, so is what the counts were about.
    """
    return [*about_counts(question, line, place), *limits_of(question.kept[line, place])]


def about_category(question: TreeQuestion, name: str) -> list[Value]:
    """Return what the sums over categories of an input are about: residuals of which line."""
    return [name, list(question.regressors), question.coefficients]


def about_pairs(question: TreeQuestion) -> Value:
    """Return what the sums of the joint fit are about: all rules, as a row has one draw in all of them."""
    splits = [[split.node, *split.ramp] for split in question.tree.splits]
    return [splits, [list(pair) for pair in question.closed], _common(question)]


def places(task: Task) -> list[Any]:
    """Return what each line of the answer to a support question is about."""
    question = read_task(task)
    if question.is_of_categories:
        return [(variable.name, each) for variable in question.domain.features for each in variable.categories]
    if question.is_of_pairs:
        return [(digest_of(about_pairs(question)), pair) for pair in question.tree.overlaps]
    about = [(digest_of(about_counts(question, *key)), span) for key, span in slices_of(question.counted).items()]
    return [(digest, number) for digest, span in about for number in range(span.stop - span.start)]


def lines_of(question: TreeQuestion) -> int:
    """Return how many lines the answer to a support question has: as many as `places` names."""
    if question.is_of_categories:
        return sum(len(variable.categories) for variable in question.domain.features)
    return len(question.tree.overlaps) if question.is_of_pairs else bands_of(question.counted)


# --- the vehicle's part ---------------------------------------------------------------------------------------------


def between_edges(question: TreeQuestion, rows: TrainingRows) -> NDArray[np.int16]:
    """Return the bins in which the training rows are, shape (F', n); those between the latest edges are kept."""
    assert question.edges is not None
    inputs, edges = rows.inputs[:, : rows.training], question.edges[: question.n_plain]
    return remembered(rows.memo, "bins", edges.tobytes(), lambda: bins_of(inputs, edges))


def band_of(question: TreeQuestion, rows: TrainingRows, inner: Bools, line: int, place: int) -> NDArray[np.intp]:
    """Return in which band between `inner` edges each training row is, of a leaf and an input, shape (n,)."""
    limits = limits_of(inner[line, place])
    own = between_edges(question, rows)[question.features[place]]
    band: NDArray[np.intp] = np.searchsorted(limits[1:-1], own, side="right")
    return band


def by_category(question: TreeQuestion, rows: TrainingRows, terms: Array) -> Ints:
    """Return the sums of integer-valued `terms`, shape (n, m), over the rows of each category, (categories, m)."""
    return sums_by_category(question.domain, rows.X[rows.order], terms.astype(np.int64))


def reached_by(question: TreeQuestion, rows: TrainingRows) -> list[Array]:
    """Return the degree to which rows reach each node of the tree, shapes (n,)."""
    return degrees(question.tree, rows.inputs, STEP if question.support else 0.0)


def shares(question: TreeQuestion, rows: TrainingRows) -> Array:
    """Return the degree to which rows are in each leaf, shape (L, n), once the rows of closed pairs have moved.

    Where a leaf itself is closed, its rows are in no leaf.
    """
    every, leaves = reached_by(question, rows), question.tree.leaves
    result = np.stack([every[leaf] for leaf in leaves])
    if not question.closed:
        return result
    layers = _layers(question, rows)
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


def _layers(question: TreeQuestion, rows: TrainingRows) -> Bools:
    """Return which training rows are in which layer, shape (layers, n): all of them, then those of another value.

    Of classes the rows of each in these layers follow.
    """
    layers = layers_of(rows.every[:, : rows.training], rows.target[: rows.training], question.common, CELLS)
    classes = np.arange(len(question.domain.classes))
    return np.concatenate([layers, *(layers & (rows.y[: rows.training] == number) for number in classes)])


def count_rows(question: TreeQuestion, rows: TrainingRows) -> Ints:
    """Return on how many different rows each sum would rest, shape (bands or pairs, layers).

    The layers are all rows, then those of another value alone. The target is in the sums of leaves, not of two leaves.
    """
    if question.is_of_categories:
        return np.minimum(by_category(question, rows, rows.different[:, None].astype(np.float64)), question.least_rows)
    layers = _layers(question, rows) & rows.different[: rows.training]
    if question.is_of_pairs:
        is_in = shares(question, rows) > 0.0
        at = {leaf: place for place, leaf in enumerate(question.tree.leaves)}
        shared = [is_in[at[i]] & is_in[at[j]] for i, j in question.tree.overlaps]
        both = np.array([np.count_nonzero(layers & each, axis=1) for each in shared], dtype=np.int64)
        both[[i != j for i, j in question.tree.overlaps], 1 + question.of_inputs :] = 0
        of_pairs: Ints = np.minimum(both, question.least_of)
        return of_pairs
    every, spans = reached_by(question, rows), slices_of(question.counted)
    counts = np.zeros((bands_of(question.counted), len(layers)), dtype=np.int64)
    for line, leaf in enumerate(question.leaves):
        there = layers & (every[leaf] > 0.0)
        for place in range(len(question.features)):
            band, own = band_of(question, rows, question.counted, line, place), counts[spans[line, place]]
            for number, layer in enumerate(there):
                own[:, number] = np.bincount(band[layer], minlength=len(own))
    of_bands: Ints = np.minimum(counts, question.least_of)
    return of_bands


# --- the coordinator's part -----------------------------------------------------------------------------------------


def decide_bands(question: TreeQuestion, contributions: Sequence[Contribution]) -> tuple[Bools, Bools]:
    """Return which leaves hold enough rows, shape (leaves,), and which inner edges lie between bands that do.

    The edges, shape (leaves, features, bins - 1), are as ``kept`` of a question about the same leaves has them.
    """
    counted, least = question.counted, question.least_of
    spans = slices_of(counted)

    def from_rows(parts: list[Ints]) -> Bools:
        each, enough, kept = np.stack(parts), np.ones(len(counted), dtype=bool), np.zeros_like(counted)
        for (line, place), span in spans.items():
            before = np.pad(np.cumsum(each[:, span], axis=1), ((0, 0), (1, 0), (0, 0)))

            def is_enough(first: int, end: int, before: Ints = before) -> bool:
                return bool(holds([before[:, end] - before[:, first]], least).all())

            bands = span.stop - span.start
            enough[line] &= bool(before[:, bands, 0].any()) and is_enough(0, bands)
            cuts, inner = [(edge, edge) for edge in range(1, bands)], np.flatnonzero(counted[line, place])
            kept[line, place, inner[joined(cuts, bands, np.ones(bands - 1, dtype=bool), is_enough)]] = True
        kept[~enough] = False
        return np.concatenate([enough, kept.ravel()])

    flat = decided(contributions, places, question.to_task(), from_rows)
    return flat[: len(counted)], flat[len(counted) :].reshape(counted.shape)


def decide_categories(question: TreeQuestion, contributions: Sequence[Contribution]) -> Bools:
    """Return which categories have no rows or enough, shape (categories,)."""
    return decided(contributions, places, question.to_task(), lambda parts: holds(parts, question.least_rows)[:, 0])


def decide_pairs(question: TreeQuestion, contributions: Sequence[Contribution]) -> Bools:
    """Return which pairs of leaves share no rows or enough, of each layer, shape (pairs, layers).

    The pairs are in the order of the tree's overlaps.
    """
    return decided(contributions, places, question.to_task(), lambda parts: holds(parts, question.least_of))
