"""Newton's method for the scores of all nodes together, from summed products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import Sums
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.numerics.symmetric import invert, product
from glassfleet.schemes.fmt.grow import SCALE
from glassfleet.schemes.fmt_classes.messages import MAX_COEFFICIENT, Question
from glassfleet.schemes.fmt_classes.params import (
    FIRST_PULL,
    INTERCEPT_PULL,
    LARGEST_STEP,
    LEAST_PULL,
    LEAST_SPREAD,
    MOST_PULL,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pull:
    """How strongly the slopes of a node are pulled towards those of the node above.

    Attributes
    ----------
    rows : float
        > 0: the pull of a slope is worth so many rows of a column with a variance of one.
    spread : tuple of float, length R + 1
        Of each column of ``[1, x, h]`` its variance over all rows; that of the intercept is not used.
    """

    rows: float
    spread: tuple[float, ...]


def first_pull(question: Question, sums: Sums) -> Pull:
    """Return the pull of the first round, where scores are zero and all rows count the same."""
    k = len(question.columns) + 1
    products = unpack_symmetric(sums["squares"][0, :1].astype(np.float64), k)[0]
    rows = max(float(products[0, 0]), 1.0)
    mean = products[0] / rows
    return Pull(FIRST_PULL, tuple(np.maximum(np.diagonal(products) / rows - mean * mean, LEAST_SPREAD).tolist()))


def stepped(
    question: Question, used: NDArray[np.bool_], sums: Sums, pull: Pull, *, first: bool
) -> tuple[Array, float, Pull]:
    """Return the scores after a step in every node, by how much a coefficient moved, and the pull of the next round.

    Parameters
    ----------
    question : Question
        ``"newton"``, with the scores b before the step, shape (nodes, S, R + 1).
    used : ndarray of bool, shape (nodes, S, R + 1)
        Which coefficients may differ from zero.
    sums : Mapping of str to ndarray of int64
        The answers' sums.
    pull : Pull
    first : bool
        Whether it is the first step, which is too coarse to tell anything about the pull.

    Notes
    -----
    A node's step solves ``(H + P) d = observed - expected - P (b - b above)``, H the products of the scores that are
    used: its log-likelihood to the second order, pulled towards the node above as it stands. P is diagonal: the pull
    times the spread for slopes. The next pull is what the rows themselves speak for: the slopes that they determine,
    ``sum of 1 - P_jj / (H + P)_jj inverse``, over the sum of ``spread (b - b above)^2``. Bishop, *Pattern Recognition
    and Machine Learning*, 2006, Eq. 3.91 and 3.92, after MacKay, *Bayesian interpolation*, 1992.
    """
    assert question.coefficients is not None
    before, k = question.coefficients, len(question.columns) + 1
    blocks = unpack_symmetric(sums["squares"].reshape(-1, question.squares).astype(np.float64) * SCALE, k)
    blocks = blocks.reshape(*sums["squares"].shape[:2], k, k)
    gradient = (sums["observed"] - sums["expected"]).astype(np.float64) * SCALE
    spread = np.tile(np.array(pull.spread), question.n_scores)
    is_slope = np.tile(np.arange(k) > 0, question.n_scores)
    strength = np.where(is_slope, pull.rows * spread, INTERCEPT_PULL)
    after, moved = before.copy(), 0.0
    determined: list[float] = []
    lengths: list[float] = []
    for node in range(question.tree.size):
        chosen = used[node].ravel()
        above = before[question.tree.parent(node)] if node else np.zeros_like(before[node])
        apart = (before[node] - np.where(used[node], above, 0.0)).ravel()
        matrix = _curvature(blocks[node], question.n_scores)[np.ix_(chosen, chosen)]
        matrix[np.diag_indices(len(matrix))] += strength[chosen]
        inverse = invert(matrix)
        step = product(inverse, (gradient[node].ravel() - strength * apart)[chosen])
        largest = float(np.abs(step).max())
        if largest > LARGEST_STEP:
            step *= LARGEST_STEP / largest
        moved = max(moved, largest)
        flat = after[node].ravel()
        flat[chosen] += step
        after[node] = np.clip(flat, -MAX_COEFFICIENT, MAX_COEFFICIENT).reshape(after[node].shape)
        slopes = is_slope[chosen]
        determined += (1.0 - strength[chosen] * np.diagonal(inverse))[slopes].tolist()
        lengths += (spread[chosen] * (apart[chosen] + step) ** 2)[slopes].tolist()
    if first or not fsum(lengths) > 0.0:
        return after, moved, pull
    rows = fsum(determined) / fsum(lengths)
    return after, moved, replace(pull, rows=min(max(rows, LEAST_PULL), MOST_PULL))


def _curvature(blocks: Array, scores: int) -> Array:
    """Return the matrix of second derivatives of all scores of a node, shape (S k, S k)."""
    k = blocks.shape[-1]
    matrix = np.zeros((scores, k, scores, k))
    for score in range(scores):
        matrix[score, :, score] = blocks[score]
    place = scores
    for one in range(scores):
        for other in range(one + 1, scores):
            matrix[one, :, other] = matrix[other, :, one] = -blocks[place]
            place += 1
    return matrix.reshape(scores * k, scores * k)
