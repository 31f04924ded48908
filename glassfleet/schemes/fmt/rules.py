"""The numbers of the rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules
from glassfleet.numerics.statistics import rule_weight
from glassfleet.schemes.fmt.grow import UNIT
from glassfleet.schemes.fmt.linear import moments, residual_moments


def rules_of(
    whole: NDArray[np.int64], coefficients: NDArray[np.float64], wide: NDArray[np.float64], rows: int
) -> LinearRules:
    """Return the rules from the leaves' sums.

    Parameters
    ----------
    whole : ndarray of int64, shape (r, p)
        Sums of the leaves.
    coefficients : ndarray of float64, shape (r, R + 1)
        Over the regressors.
    wide : ndarray of float64, shape (r, F + 1)
        The same, over all inputs.
    rows : int
        All rows, >= 1.
    """
    k = coefficients.shape[1] + 1
    error = residual_moments(moments(whole, k), np.ascontiguousarray(coefficients.T))[k - 1, k - 1]
    strength = whole[:, 0].astype(np.float64) / UNIT
    some = strength > 0.0
    mean = np.maximum(error, 0.0) / np.where(some, strength, 1.0)
    confidence = np.where(some, 1.0 - np.minimum(np.sqrt(mean), 1.0), 0.0)
    support = np.minimum(strength / float(rows), 1.0)
    weight = rule_weight(support, confidence)
    return LinearRules(wide, weight, support, confidence)
