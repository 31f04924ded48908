"""The consequents: least squares from exact sums, used by both halves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.linear import minimum_norm
from glassfleet.numerics.simplify import moments, sparse_consequents
from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.schemes.tsk.messages import Question


def solve(question: Question, sums: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return each rule's polynomial, shape (r, F + 1): weighted least squares of least norm, or sparse (`max_slopes`).

    Parameters
    ----------
    question : Question
        Says the grid and the number of columns.
    sums : Mapping of str to ndarray of int64
        ``gram_high``, ``gram_low`` and ``count`` of each rule.
    """
    most = question.parameters.max_slopes
    if most is not None and most < question.n_features:
        return sparse_consequents(moments(sums, question.gram_columns, question.parameters.gram_bits), most)
    value = gram_value(sums["gram_high"], sums["gram_low"], bits=question.parameters.gram_bits)
    gram = unpack_symmetric(value, question.gram_columns)
    return minimum_norm(gram[:, :-1, :-1], gram[:, :-1, -1], sums["count"])
