"""The numbers of the rules, and why they are few."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules, widened
from glassfleet.rules import few_digits
from glassfleet.schemes.tree.joint import Fit
from glassfleet.schemes.tree.messages import Question

Array = NDArray[np.float64]

AS_GOOD = 1.01
"""An error this many times another one is said to be as good."""


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


def why_few(question: Question, rules: int, errors: Mapping[int, float]) -> str:
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
