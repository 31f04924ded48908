"""The numbers of the rules, and why they are few."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules, widened
from glassfleet.model.rules import few_digits
from glassfleet.numerics.symmetric import dot, solve
from glassfleet.schemes.tree.joint import Fit, even_pull, ridge_of
from glassfleet.schemes.tree.messages import TreeQuestion

Array = NDArray[np.float64]

AS_GOOD = 1.01
"""An error this many times another one is said to be as good."""


def rules_of(fit: Fit, coefficients: Array, question: TreeQuestion) -> LinearRules:
    """Return the rules of a number from the sums over all rows and coefficients over the regressors, shape (r, k)."""
    whole = fit.whole
    error = fit.own_squares[:, 0].copy()
    for i in range(fit.columns):
        error -= 2.0 * coefficients[:, i] * fit.right[:, 0, i]
        for j in range(fit.columns):
            error += coefficients[:, i] * whole[:, i, j] * coefficients[:, j]
    wide = widened(coefficients, question.regressors, question.n_inputs)
    return LinearRules.of(wide, whole[:, 0, 0], error, fit.rows)


def why_few(question: TreeQuestion, rules: int, errors: Mapping[int, float]) -> str:
    """Say what more rules would have brought; empty where the model is not of one rule, or of two of eight allowed.

    Parameters
    ----------
    question : Question
        The last one, which knows how many rules are allowed, and the target.
    rules : int
        That the model has.
    errors : mapping of int to float
        By number of rules: the error on held-out rows, in the target's unit; of classes the Brier score.
    """
    most = question.most_rules
    if rules not in errors or not (rules == 1 < most or rules == 2 <= most // 4):
        return ""
    target = question.domain.target
    one = "one rule" if target is None else "a straight line"
    name, unit = ("Brier score", "") if target is None else ("error", target.unit and f" {target.unit}")
    error = f"{name} {few_digits(errors[rules], 3)}{unit}"
    more = {count: value for count, value in errors.items() if count > rules}
    if not more:
        return f"no split said more than {one if rules == 1 else f'{rules} rules'}: {error} on held-out rows"
    best = min(more, key=lambda count: (more[count], count))
    good = "as good" if errors[rules] <= AS_GOOD * more[best] else "near enough"
    what = f"{one} was" if rules == 1 else f"{rules} rules were"
    return f"{what} {good} on held-out rows: {error}, with {best} rules {few_digits(more[best], 3)}{unit}"


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
