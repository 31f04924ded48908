"""How much a ramp lowers the squared error: first from sums by bin, then from its exact sums.

A leaf with degrees w and residuals r that is split by a ramp with the lower side's degree mu gets the columns
``w mu z`` and ``w (1 - mu) z``. With ``s = [sum w mu z r, sum w (1 - mu) z r]``, A their Gram sums and K the pull
towards the leaf's own coefficients, the gain is ``s' (A + K)^-1 s``. Of several targets, the classes' indicators, each
has residuals and s of its own; A and K are those of all, and gains add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.levels import Levels
from glassfleet.numerics.symmetric import invert, solve_each
from glassfleet.schemes.tree.bins import at_middles, between_levels, prices, ramps
from glassfleet.schemes.tree.joint import even_pull, ridge_of
from glassfleet.schemes.tree.params import SCORE_BITS
from glassfleet.schemes.tree.tree import Ramp, overlapping

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SCORE_SCALE = float(1 << SCORE_BITS)
"""By which sums by bin are to be divided."""

PER_WIDTH = 2
"""Of ramps of one width on one input, so many with the highest scores are compared with their bins' means."""

MOST_BANDED = 24
"""Of ramps between bands of one input, so many with the highest scores are compared with their bands' means."""

PER_INPUT = 3
"""Of one input so many ramps, of different widths, are asked about at most."""


@dataclass(frozen=True)
class Candidate:
    """A ramp that may split a leaf, about what it gains beyond what it costs, and its price."""

    gain: float
    ramp: Ramp
    price: float


@dataclass(frozen=True)
class BinSums:
    """What is known of a leaf whose bins were asked about.

    Attributes
    ----------
    own : ndarray of float64, shape (k, k)
        ``sum w^2 z z'``.
    scores : ndarray of float64, shape (inputs, bins, 1 + T k)
        Sums of w, and w z r of each target, by bin.
    means : ndarray of float64, shape (inputs, groups, k)
        Sums of w^2 z by group of neighbouring bins, all of one size.
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows.
    kappa : float
        Pull towards the leaf's coefficients, in rows of the leaf.
    """

    own: Array
    scores: Array
    means: Array
    root: Array
    kappa: float

    @property
    def weight(self) -> Array:
        """Sums of w by bin, shape (inputs, bins)."""
        return self.scores[:, :, 0]

    @property
    def group(self) -> int:
        """Bins in a group."""
        return int(self.scores.shape[1] // self.means.shape[1])

    @cached_property
    def squares(self) -> Array:
        """About the sums of w^2 by bin, shape (inputs, bins): a group's, spread over its bins like w."""
        group = self.weight.reshape(*self.means.shape[:2], self.group)
        whole = np.add.accumulate(group, axis=2)[:, :, -1:]
        return (self.means[:, :, :1] * (group / np.where(whole > 0.0, whole, 1.0))).reshape(self.weight.shape)


def spread(scores: Array, slopes: Array, means: Array) -> Array:
    """Return about the sums of w, and w z r of each target, by bin, shape (inputs, bins, 1 + T k).

    A group's sums of w x r are spread over its bins as if x were the group's mean, and what is left by weight.

    Parameters
    ----------
    scores : ndarray of float64, shape (inputs, bins, 1 + T)
        Sums of w, and w r of each target, by bin.
    slopes : ndarray of float64, shape (inputs, groups or bins, T (k - 1))
        Sums of w x r of each target by group; or by bin, and there is nothing to spread.
    means : ndarray of float64, shape (inputs, groups, k)
        Sums of w^2 z by group.
    """
    targets, inputs = scores.shape[2] - 1, means.shape[2] - 1
    if slopes.shape[1] == scores.shape[1]:
        by_bin = slopes
    else:
        fine = scores.reshape(*means.shape[:2], -1, 1 + targets)
        total = np.add.accumulate(fine, axis=2)[:, :, -1]
        count = means[:, :, :1]
        centre = np.tile(means[:, :, 1:] / np.where(count > 0.0, count, 1.0), targets)
        rest = slopes - centre * np.repeat(total[:, :, 1:], inputs, axis=2)
        share = fine[..., :1] / np.where(total > 0.0, total, 1.0)[:, :, None, :1]
        by_bin = centre[:, :, None] * np.repeat(fine[..., 1:], inputs, axis=3) + rest[:, :, None] * share
        by_bin = by_bin.reshape(*scores.shape[:2], -1)
    each = by_bin.reshape(*scores.shape[:2], targets, inputs)
    scored = np.concatenate([scores[..., 1:, None], each], axis=3).reshape(*scores.shape[:2], -1)
    return np.concatenate([scores[..., :1], scored], axis=2)


def shortlist(
    bins: BinSums, edges: Mapping[int, Array], levels: Levels, path: frozenset[Ramp], *, least: float, dear: float
) -> list[Candidate]:
    """Return the ramps of a leaf that gain most by the sums of its bins, the best first.

    Parameters
    ----------
    bins : BinSums
    edges : mapping of int to ndarray of float64, shape (bins + 1,)
        Of the inputs asked about, in the order of `bins`.
    levels : tuple of tuple of float
        Of all inputs' categories: no level is on a ramp. Empty where all inputs are numbers.
    path : frozenset of Ramp
        Above the leaf.
    least : float
        Least weight on either side, in rows.
    dear : float
        By which prices are multiplied, to be taken from gains.
    """
    chosen = ramps(bins.scores.shape[1])
    price = prices(bins.scores.shape[1])
    mu = np.stack([at_middles(line, chosen) for line in edges.values()])  # (inputs, ramps, bins)
    possible = _is_enough(bins, mu, least)
    for at, (f, line) in enumerate(edges.items()):
        if levels and levels[f]:
            possible[at] &= between_levels(chosen, levels[f])
        possible[at] &= _is_new(path, f, line, chosen)
    if not possible.any():
        return []
    rough = np.where(possible, _scaled_gain(bins, mu), -1.0)
    inputs, numbers = _best_by_width(rough, chosen)
    gain, _ = _gain_with_means(bins, mu[inputs, numbers], inputs)
    gain -= dear * price[numbers]
    candidates = []
    for at, (f, line) in enumerate(edges.items()):
        mine = np.flatnonzero(inputs == at)
        widths: set[int] = set()
        for place in mine[np.argsort(-gain[mine], kind="stable")].tolist():
            a, b = chosen[numbers[place]].tolist()
            if b - a not in widths and len(widths) < PER_INPUT:
                widths.add(b - a)
                ramp = f, float(line[a]), float(line[b])
                candidates.append(Candidate(float(gain[place]), ramp, float(price[numbers[place]])))
    return sorted(candidates, key=lambda one: (-one.gain, one.ramp))


def _is_enough(bins: BinSums, mu: Array, least: float) -> NDArray[np.bool_]:
    """Return which ramps leave enough on both sides, shape (inputs, ramps)."""
    low = _by_ramp(mu, bins.scores[:, :, :1])[:, :, 0]
    total = np.add.accumulate(bins.weight, axis=1)[:, -1:]
    enough: NDArray[np.bool_] = (low >= least) & (total - low >= least)
    return enough


def _is_new(path: frozenset[Ramp], feature: int, edges: Array, chosen: Ints) -> NDArray[np.bool_]:
    """Return which ramps of an input overlap none above the leaf, shape (ramps,)."""
    if all(ramp[0] != feature for ramp in path):
        return np.ones(len(chosen), dtype=bool)
    return np.array(
        [not overlapping(path, (feature, float(edges[a]), float(edges[b]))) for a, b in chosen.tolist()], dtype=bool
    )


@dataclass(frozen=True)
class Best:
    """The ramp of a leaf that gains most by its bands, both sides' changes of coefficients, (2, T, k), and weights."""

    gain: float
    ramp: Ramp
    changes: Array
    sides: tuple[float, float]


def best_of_bands(  # noqa: PLR0917 - of one input
    bins: BinSums,
    feature: int,
    edges: Array,
    limits: Sequence[int],
    levels: Sequence[float],
    path: frozenset[Ramp],
    *,
    least: float,
) -> Best | None:
    """Return the ramp of one input between edges of its bands that gains most; None: there is none.

    Parameters
    ----------
    bins : BinSums
        Of one input; each band is a bin, and a group by itself.
    feature : int
    edges : ndarray of float64, shape (bins + 1,)
        Of the bins of which the bands are made.
    limits : sequence of int
        Which of these are edges of bands.
    levels : sequence of float
        Of the input's categories; empty of a number.
    path, least
        As for :func:`shortlist`.
    """
    if len(limits) == 2:  # one band, and no edge to split at
        return None
    chosen, edges = ramps(len(limits) - 1, 1), edges[limits]
    mu = at_middles(edges, chosen)[None]
    possible = _is_enough(bins, mu, least)[0] & _is_new(path, feature, edges, chosen)
    if levels:
        possible &= between_levels(np.array(limits)[chosen], levels)
    if not possible.any():
        return None
    rough = np.where(possible, _scaled_gain(bins, mu)[0], -1.0)
    order = np.argsort(-rough, kind="stable")[:MOST_BANDED]
    order = order[rough[order] >= 0.0]
    if not len(order):
        return None
    gain, changes = _gain_with_means(bins, mu[0, order], np.zeros(len(order), dtype=np.intp))
    best = int(np.argmax(gain))
    a, b = chosen[order[best]].tolist()
    low = float(_by_ramp(mu[:, order[best : best + 1]], bins.scores[:, :, :1])[0, 0, 0])
    weight = float(np.add.accumulate(bins.weight[0])[-1])
    ramp = feature, float(edges[a]), float(edges[b])
    return Best(float(gain[best]), ramp, np.ascontiguousarray(changes[..., best]), (low, weight - low))


def pull_while_growing(own: Array, root: Array, kappa: float) -> Array:
    """Return K of one side, shape (k, k), from the sums of ``w^2 z z'`` of the leaf and of the whole fleet."""
    pull = kappa / max(float(own[0, 0]), 1e-9) * own
    diagonal = np.arange(len(own))
    pull[diagonal, diagonal] += kappa * even_pull(root) + ridge_of(float(root[0, 0]))
    return pull


def exact_gains(  # noqa: PLR0917 - the sums of a leaf
    own: Array, squares: Array, lower: Array, whole: Array, root: Array, kappa: float
) -> tuple[Array, Array]:
    """Return gains, shape (m,), and both sides' changes of coefficients, shape (2, T, k, m), of ramps of one leaf.

    Parameters
    ----------
    own : ndarray of float64, shape (k, k)
        The leaf's ``sum w^2 z z'``.
    squares : ndarray of float64, shape (m, 2, k, k)
        ``sum w^2 mu^2 z z'`` and ``sum w^2 mu (1 - mu) z z'``.
    lower : ndarray of float64, shape (m, T, k)
        ``sum w mu z r``.
    whole : ndarray of float64, shape (T, k)
        ``sum w z r``.
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows.
    kappa : float
        Pull towards the leaf's coefficients, in rows of the leaf.
    """
    first, both = squares[:, 0].transpose(1, 2, 0), squares[:, 1].transpose(1, 2, 0)
    second = own[:, :, None] - first - 2.0 * both
    right = np.concatenate([lower.T, (whole - lower).T])
    changes, gain = solve_each(_two_sides(pull_while_growing(own, root, kappa), first, both, second), right)
    return gain, _by_side(changes)


def _by_side(changes: Array) -> Array:
    """Return the changes of coefficients of both sides, shape (2 k, T, m), side by side, shape (2, T, k, m)."""
    return changes.reshape(2, -1, *changes.shape[1:]).transpose(0, 2, 1, 3)


def _two_sides(pull: Array, first: Array, both: Array, second: Array) -> Array:
    """Return A + K of both sides together, shape (2 k, 2 k, m)."""
    pull = pull[:, :, None]
    return np.concatenate(
        [np.concatenate([first + pull, both], axis=1), np.concatenate([both, second + pull], axis=1)], axis=0
    )


def _by_ramp(mu: Array, sums: Array) -> Array:
    """Return the sums over bins weighted by ramps, shape (inputs, ramps, c), added from the first bin to the last."""
    total = np.zeros((*mu.shape[:2], sums.shape[2]))
    for j in range(mu.shape[2]):
        total += mu[:, :, j, None] * sums[:, None, j]
    return total


def _scaled_gain(bins: BinSums, mu: Array) -> Array:
    """Return the gain as if both sides' Gram sums were shares of the leaf's, shape (inputs, ramps)."""
    weight = max(float(bins.own[0, 0]), 1e-9)
    per_row = bins.own / weight
    diagonal = np.arange(len(per_row))
    per_row[diagonal, diagonal] += ridge_of(float(bins.root[0, 0])) / max(weight, 1.0)
    inverse = invert(per_row)
    scores = bins.scores[:, :, 1:]
    lower, whole = _by_ramp(mu, scores), np.add.accumulate(scores, axis=1)[:, None, -1]
    upper = whole - lower
    one, two = (_times(side.reshape(*side.shape[:2], -1, len(inverse)), inverse) for side in (lower, upper))
    one, two = one.reshape(lower.shape), two.reshape(lower.shape)
    a, b, c = _added(lower * one), _added(lower * two), _added(upper * two)
    squares = bins.squares[:, :, None]
    first = _by_ramp(mu * mu, squares)[:, :, 0] + bins.kappa
    both = _by_ramp(mu * (1.0 - mu), squares)[:, :, 0]
    second = _by_ramp((1.0 - mu) * (1.0 - mu), squares)[:, :, 0] + bins.kappa
    return (second * a - 2.0 * both * b + first * c) / (first * second - both * both)


def _times(vectors: Array, matrix: Array) -> Array:
    """Return ``vectors @ matrix``, added from the first column to the last."""
    total = np.zeros_like(vectors)
    for j, line in enumerate(matrix):
        total += vectors[..., j, None] * line
    return total


def _added(terms: Array) -> Array:
    """Return sums over the last axis, from the first to the last."""
    total: Array = np.add.accumulate(terms, axis=-1)[..., -1]
    return total


def _best_by_width(rough: Array, chosen: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return input and number of the ramps with the highest scores of each width on each input."""
    widths = chosen[:, 1] - chosen[:, 0]
    inputs, numbers = [], []
    for width in sorted(set(widths.tolist())):
        among = np.flatnonzero(widths == width)
        order = among[np.argsort(-rough[:, among], axis=1, kind="stable")[:, :PER_WIDTH]]
        for at in range(len(rough)):
            kept = order[at][rough[at, order[at]] >= 0.0]
            inputs.append(np.full(len(kept), at))
            numbers.append(kept)
    return np.concatenate(inputs), np.concatenate(numbers)


def _gain_with_means(bins: BinSums, mu: Array, inputs: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return gains and both sides' changes where a row has its group's mean, and all groups the same scatter around it.

    Parameters
    ----------
    bins : BinSums
    mu : ndarray of float64, shape (m, bins)
        The ramps' lower sides.
    inputs : ndarray of intp, shape (m,)
        Each ramp's line of `bins`.

    Returns
    -------
    gain : ndarray of float64, shape (m,)
    changes : ndarray of float64, shape (2, T, k, m)
        Of the lower side's coefficients, then the upper one's.
    """
    own, k, m = bins.own, len(bins.own), len(mu)
    count = bins.means[:, :, 0]
    centre = bins.means / np.where(count > 0.0, count, 1.0)[:, :, None]
    between = centre[:, :, :, None] * centre[:, :, None, :]
    inside = own - np.add.accumulate(between * count[:, :, None, None], axis=1)[:, -1]
    inside /= np.maximum(np.add.accumulate(count, axis=1)[:, -1], 1e-12)[:, None, None]
    scatter = between + inside[:, None]  # (inputs, groups, k, k), per row
    here = bins.squares[inputs]
    first, both = (
        np.add.accumulate((here * share).reshape(m, -1, bins.group), axis=2)[:, :, -1]
        for share in (mu * mu, mu - mu * mu)
    )
    low, across = np.zeros((k, k, m)), np.zeros((k, k, m))
    for group in range(count.shape[1]):
        part = scatter[inputs, group].transpose(1, 2, 0)
        low += first[:, group] * part
        across += both[:, group] * part
    lower, whole = (np.zeros((k, (bins.scores.shape[2] - 1) // k, m)) for _ in range(2))
    for j in range(mu.shape[1]):
        score = bins.scores[inputs, j, 1:].reshape(m, -1, k).T
        lower += mu[:, j] * score
        whole += score
    right = np.concatenate([lower, whole - lower])
    pull = pull_while_growing(own, bins.root, bins.kappa)
    changes, gain = solve_each(_two_sides(pull, low, across, own[:, :, None] - low - 2.0 * across), right)
    return gain, _by_side(changes)
