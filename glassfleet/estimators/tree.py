"""The scikit-learn style estimators of the fuzzy tree, which need it as :mod:`glassfleet.estimators` does.

>>> from glassfleet.estimators.tree import FuzzyTreeRegressor
>>> X = [[j / 40] for j in range(40)]
>>> tree = FuzzyTreeRegressor(holdout=0.0, max_rules=2).fit(X, [abs(j - 20) for j in range(40)])
>>> len(tree.rules_)
2
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from glassfleet.data.dataset import Dataset
from glassfleet.estimators.base import SchemeClassifier, SchemeEstimator, SchemeRegressor
from glassfleet.schemes.tree.params import MAX_ROWS

FINEST = 32
"""Weights are rounded to such a part of their mean, unless all are whole numbers."""


def weighed(data: Dataset, weights: NDArray[np.float64]) -> tuple[Dataset, Dataset]:
    """Return rows that count as much as their `weights`, shape (n,), say; and these rows as often as they count.

    Raises
    ------
    ValueError
        All weights are zero, or together they are more rows than sums are good for.
    """
    mean = float(weights.mean())
    if mean * len(weights) > MAX_ROWS:
        raise ValueError(f"sample_weight adds up to {mean * len(weights):.4g} rows, at most {MAX_ROWS} can be summed")
    parts = 1
    while (parts * weights % 1.0).any() and 0.0 < parts * mean < min(FINEST, MAX_ROWS / (2 * len(weights))):
        parts *= 2
    counts = np.rint(parts * weights).astype(np.int64)
    some = np.flatnonzero(counts)
    if not len(some):
        raise ValueError("sample_weight is zero for all rows")
    data, often = data.at(some), np.repeat(np.arange(len(some)), counts[some])
    return replace(data, weights=counts[some], parts=parts), data.at(often)


@dataclass(kw_only=True, eq=False, repr=False)
class _FuzzyTree(SchemeEstimator):
    """What both have: parameters, and weights of rows."""

    _scheme_name = "tree"

    compact: bool = False
    max_split_features: int = 8
    min_weight_fraction: float = 0.01
    holdout: float = 0.2
    size_tolerance: float = 0.01
    exact: bool = False
    min_rows: int = 3

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from all rows (central learning).

        Parameters
        ----------
        X, y
            As for :meth:`SchemeEstimator.fit`.
        sample_weight : array-like of shape (n,), or None
            How much each row counts, >= 0: with 2 the model is that of the row twice, to the last bit, and with 0 that
            without it. So that sums stay exact, weights that are no whole numbers are rounded to a 32nd of their mean;
            of more than some 100,000 rows to a larger part, down to whole rows.

        Raises
        ------
        ValueError
            The data, a weight or a parameter cannot be used.
        """
        if sample_weight is None:
            return super().fit(X, y)

        def weigh(data: Dataset) -> tuple[Dataset, Dataset]:
            weights = _check_sample_weight(sample_weight, data.X, dtype=np.float64, ensure_non_negative=True)
            return weighed(data, weights)

        return self._fit(X, y, weigh)


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyTreeRegressor(_FuzzyTree, SchemeRegressor):
    """Binary tree of ramps with a linear model in each leaf, all fitted together (scheme ``tree``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    Parameters
    ----------
    compact : bool, default False
        Ask for about a third of the bytes.
    max_rules : int, default 40
        Most rules.
    max_slopes : int, default 8
        Most inputs in a rule's polynomial; held-out rows decide whether fewer are enough.
    max_regressors : int, default 24
        Inputs that polynomials may use.
    max_split_features : int, default 8
        Inputs that are split on after the root.
    min_weight_fraction : float, default 0.01
        Least share of the rows' weight on either side of a split.
    holdout : float, default 0.2
        Share of the rows that chooses the number of rules and slopes; 0: the largest tree is kept.
    size_tolerance : float, default 0.01
        The simplest model within this fraction of the best held-out squared error is taken.
    exact : bool, default False
        Only for ``fit_federated``: rows are used as they are; many can be computed from what parties then tell.
    min_rows : int, default 3
        Without `exact`: fewest rows of a group of condensed rows, and behind a count of limits.
    input_quantiles : (float, float), default (0.001, 0.999)
        Quantiles of each input that map to 0 and 1; ramps end there, lines may go on.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `domain`, methods and attributes.
    """

    max_rules: int = 40
    max_slopes: int = 8
    max_regressors: int = 24
    input_quantiles: tuple[float, float] = (0.001, 0.999)


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyTreeClassifier(_FuzzyTree, SchemeClassifier):
    """Binary tree of ramps of few rules that tell a probability of each class (scheme ``tree``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    Parameters
    ----------
    compact : bool, default False
        Ask for about a third of the bytes.
    max_rules : int, default 20
        Most rules; more than 20 are never made.
    max_regressors : int, default 32
        Inputs that scores may use.
    max_split_features : int, default 8
        Inputs that are split on after the root.
    min_weight_fraction : float, default 0.01
        Least share of the rows' weight on either side of a split.
    holdout : float, default 0.2
        Share of the rows that chooses the number of rules; 0: the largest tree is kept.
    size_tolerance : float, default 0.01
        The smallest tree within this fraction of the best held-out squared error (Brier) is taken.
    exact : bool, default False
        Only for ``fit_federated``: rows are used as they are; many can be computed from what parties then tell.
    min_rows : int, default 3
        Without `exact`: fewest rows of a group of condensed rows, and behind a count of limits.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """

    max_rules: int = 20
    max_regressors: int = 32

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``, shape (n, n_classes)."""
        rows = self._rows(X)
        chances: NDArray[np.float64] = self.model_.predict_proba(rows)
        place = {text: index for index, text in enumerate(self.domain_.classes)}
        return chances[:, [place[str(label)] for label in self.classes_]]
