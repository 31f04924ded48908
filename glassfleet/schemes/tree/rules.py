"""The numbers of the rules."""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules, widened
from glassfleet.numerics.symmetric import dot, solve
from glassfleet.schemes.tree.joint import Fit, even_pull, ridge_of
from glassfleet.schemes.tree.messages import Question

Array = NDArray[np.float64]


def rules_of(fit: Fit, coefficients: Array, question: Question) -> LinearRules:
    """Return the rules of a number from the sums over all rows and coefficients over the regressors, shape (r, k)."""
    whole = fit.whole
    error = fit.own_squares[:, 0].copy()
    for i in range(fit.columns):
        error -= 2.0 * coefficients[:, i] * fit.right[:, 0, i]
        for j in range(fit.columns):
            error += coefficients[:, i] * whole[:, i, j] * coefficients[:, j]
    wide = widened(coefficients, question.regressors, question.n_inputs)
    return LinearRules.of(wide, whole[:, 0, 0], error, fit.rows)


def discriminants(fit: Fit, kappa: float, root: Array) -> Array:
    """Return scores of classes, shape (L, S, k), by linear discriminant analysis in each leaf.

    ``s_c = log p_c - m_c'W^-1 m_c / 2 + x'W^-1 m_c``, with each class's share p_c and mean m_c in the leaf and the
    scatter W around the means (Fisher, 1936). All follow from the sums of the joint fit: no further question is asked.
    A leaf's sums per row are mixed with those of `kappa` rows of the node above.

    Parameters
    ----------
    fit : Fit
    kappa : float
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows.
    """
    tree, targets, k = fit.tree, fit.right.shape[1], fit.columns
    own = {leaf: np.concatenate([fit.whole[at], fit.right[at]]) for at, leaf in enumerate(tree.leaves)}
    for index in range(len(tree.splits) - 1, -1, -1):
        own[tree.splits[index].node] = own[2 * index + 1] + own[2 * index + 2]
    per_row = {0: own[0] / max(float(own[0][0, 0]), 1.0)}
    for node in range(1, tree.size):
        mixed = own[node] + kappa * per_row[tree.parent(node)]
        per_row[node] = mixed / mixed[0, 0]
    spread = even_pull(root)[1:] + ridge_of(fit.rows) / max(fit.rows, 1.0)
    least = 0.5 / max(fit.rows, 1.0)
    result = np.zeros((len(tree.leaves), targets, k))
    for at, leaf in enumerate(tree.leaves):
        gram, right = per_row[leaf][:k], per_row[leaf][k:]
        each = right if targets > 1 else np.stack([gram[0] - right[0], right[0]])
        shares = np.maximum(each[:, 0], least)
        means = each[:, 1:] / shares[:, None]
        scatter = gram[1:, 1:] + np.diag(spread)
        for share, mean in zip(shares.tolist(), means, strict=True):
            scatter -= share * (mean[:, None] * mean)
        slopes = solve(scatter, np.ascontiguousarray(means.T)).T
        # Rounded, as logarithms differ in their last bits.
        scores = [
            [round(log(share), 6) - 0.5 * dot(mean, slope), *slope.tolist()]
            for share, mean, slope in zip(shares.tolist(), means, slopes, strict=True)
        ]
        result[at] = np.array(scores) if targets > 1 else np.array(scores[1]) - np.array(scores[0])
    return result
