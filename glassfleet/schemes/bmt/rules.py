"""The numbers of the rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules
from glassfleet.numerics.statistics import rule_weight
from glassfleet.schemes.bmt.joint import Fit
from glassfleet.schemes.bmt.messages import Question

Array = NDArray[np.float64]


def rules_of(fit: Fit, coefficients: Array, question: Question) -> LinearRules:
    """Return the rules from the sums over all rows and coefficients over the regressors, shape (r, k)."""
    wide = np.zeros((len(coefficients), question.n_features + 1))
    wide[:, [0, *(feature + 1 for feature in question.regressors)]] = coefficients
    whole = fit.whole
    strength = whole[:, 0, 0]
    error = fit.own_squares.copy()
    for i in range(fit.columns):
        error -= 2.0 * coefficients[:, i] * fit.right[:, i]
        for j in range(fit.columns):
            error += coefficients[:, i] * whole[:, i, j] * coefficients[:, j]
    some = strength > 0.0
    mean = np.maximum(error, 0.0) / np.where(some, strength, 1.0)
    confidence = np.where(some, 1.0 - np.minimum(np.sqrt(mean), 1.0), 0.0)
    support = np.minimum(np.maximum(strength / max(fit.rows, 1.0), 0.0), 1.0)
    return LinearRules(wide, rule_weight(support, confidence), support, confidence)
