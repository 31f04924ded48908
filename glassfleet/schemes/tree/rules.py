"""The numbers of the rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules, widened
from glassfleet.schemes.tree.joint import Fit
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
