"""Newton's method for the scores of all nodes together, from summed products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import Sums
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.numerics.symmetric import solve
from glassfleet.schemes.fmt.linear import SCALE
from glassfleet.schemes.fmt_classes.messages import MAX_COEFFICIENT, Question
from glassfleet.schemes.fmt_classes.params import LARGEST_STEP, PULL

Array = NDArray[np.float64]


def stepped(question: Question, used: NDArray[np.bool_], sums: Sums) -> tuple[Array, float]:
    """Return the scores after a step in every node, shape (nodes, S, R + 1), and by how much a coefficient moved.

    Parameters
    ----------
    question : Question
        ``"newton"``, with the scores b before the step.
    used : ndarray of bool, shape (nodes, S, R + 1)
        Which coefficients may differ from zero.
    sums : Mapping of str to ndarray of int64
        The answers' sums.

    Notes
    -----
    A node's step solves ``(H + pull) d = observed - expected - pull (b - b above)``, H the products of the scores that
    are used: its log-likelihood to the second order, pulled towards the node above as it stands.
    """
    assert question.coefficients is not None
    before, k = question.coefficients, len(question.columns) + 1
    blocks = unpack_symmetric(sums["squares"].reshape(-1, question.squares).astype(np.float64) * SCALE, k)
    blocks = blocks.reshape(*sums["squares"].shape[:2], k, k)
    gradient = (sums["observed"] - sums["expected"]).astype(np.float64) * SCALE
    after, moved = before.copy(), 0.0
    for node in range(question.tree.size):
        chosen = used[node].ravel()
        above = before[question.tree.parent(node)] if node else np.zeros_like(before[node])
        right = gradient[node] - PULL * (before[node] - np.where(used[node], above, 0.0))
        matrix = _curvature(blocks[node], question.n_scores)[np.ix_(chosen, chosen)]
        matrix[np.diag_indices(len(matrix))] += PULL
        step = solve(matrix, right.ravel()[chosen][:, None])[:, 0]
        largest = float(np.abs(step).max())
        if largest > LARGEST_STEP:
            step *= LARGEST_STEP / largest
        moved = max(moved, largest)
        flat = after[node].ravel()
        flat[chosen] += step
        after[node] = np.clip(flat, -MAX_COEFFICIENT, MAX_COEFFICIENT).reshape(after[node].shape)
    return after, moved


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
