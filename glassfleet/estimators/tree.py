"""The scikit-learn style estimators of the blended model tree, which need it as :mod:`glassfleet.estimators` does.

>>> from glassfleet.estimators.tree import FuzzyTreeRegressor
>>> X = [[j / 40] for j in range(40)]
>>> tree = FuzzyTreeRegressor(holdout=0.0, max_rules=2).fit(X, [abs(j - 20) for j in range(40)])
>>> len(tree.rules_)
2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.estimators.base import SchemeClassifier, SchemeRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyTreeRegressor(SchemeRegressor):
    """Binary tree of ramps with a linear model in each leaf, all fitted together (scheme ``tree``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    Parameters
    ----------
    compact : bool, default False
        Ask for about a third of the bytes; on the published sets the RMSE is up to 22 % higher.
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
        Quantiles of each input that map to 0 and 1; values outside are clipped.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `domain`, methods and attributes.
    """

    _scheme_name = "tree"

    compact: bool = False
    max_rules: int = 40
    max_slopes: int = 8
    max_regressors: int = 24
    max_split_features: int = 8
    min_weight_fraction: float = 0.01
    holdout: float = 0.2
    size_tolerance: float = 0.01
    exact: bool = False
    min_rows: int = 3
    input_quantiles: tuple[float, float] = (0.001, 0.999)


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyTreeClassifier(SchemeClassifier):
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

    _scheme_name = "tree"

    compact: bool = False
    max_rules: int = 20
    max_regressors: int = 32
    max_split_features: int = 8
    min_weight_fraction: float = 0.01
    holdout: float = 0.2
    size_tolerance: float = 0.01
    exact: bool = False
    min_rows: int = 3

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``, shape (n, n_classes)."""
        rows = self._rows(X)
        chances: NDArray[np.float64] = self.model_.predict_proba(rows)
        place = {text: index for index, text in enumerate(self.domain_.classes)}
        return chances[:, [place[str(label)] for label in self.classes_]]
