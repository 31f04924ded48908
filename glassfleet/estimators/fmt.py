"""The scikit-learn style estimators of the fuzzy model tree, for numbers and for classes. They need scikit-learn.

>>> from glassfleet.estimators.tree import FuzzyTreeRegressor
>>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]]
>>> tree = FuzzyTreeRegressor(holdout=0.0, max_rules=2).fit(X, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
>>> len(tree.rules_)
2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.estimators.base import SchemeClassifier, SchemeRegressor
from glassfleet.schemes.tree.partition import Kind


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyTreeRegressor(SchemeRegressor):
    """Binary fuzzy tree with few rules and a linear model in each (scheme ``tree``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    Parameters
    ----------
    n_sets : int, default 7
        Fuzzy sets per input.
    other_sets : sequence of int, default (5,)
        Further numbers of sets to grow a tree with; the held-out rows choose.
    partition : {"mixed", "uniform", "quantile", "union"}, default "mixed"
        Where the sets have their peaks.
    max_rules : int, default 40
        Most rules.
    inference : {"averaged", "one_rule"}, default "averaged"
        All rules that fire are averaged, or one answers.
    max_slopes : int, default 12
        Most inputs in a rule's polynomial; held-out rows decide whether fewer are enough.
    max_regressors : int, default 32
        Inputs that polynomials may use.
    max_split_features : int, default 8
        Inputs that are split on after the root.
    min_weight_fraction : float, default 0.01
        Least share of the rows' weight on either side of a split.
    ridge : float, default 0.3
        Pull of a side's coefficients towards its parent's, in rows.
    holdout : float, default 0.2
        Share of the rows that chooses the number of rules and slopes; 0: all `max_rules` are kept.
    size_tolerance : float, default 0.03
        The simplest tree within this fraction of the best held-out squared error is taken.
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

    n_sets: int = 7
    other_sets: Sequence[int] = (5,)
    partition: Kind = "mixed"
    max_rules: int = 40
    inference: Literal["averaged", "one_rule"] = "averaged"
    max_slopes: int = 12
    max_regressors: int = 32
    max_split_features: int = 8
    min_weight_fraction: float = 0.01
    ridge: float = 0.3
    holdout: float = 0.2
    size_tolerance: float = 0.03
    exact: bool = False
    min_rows: int = 3
    input_quantiles: tuple[float, float] = (0.001, 0.999)


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyModelTreeClassifier(SchemeClassifier):
    """Binary fuzzy tree of few rules that tell a probability of each class (scheme ``fmt_classes``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    Parameters
    ----------
    n_sets : int, default 11
        Most fuzzy sets per input.
    max_rules : int, default 20
        Most rules.
    max_slopes : int, default 32
        Most inputs and bends in a score of a rule.
    max_hinges : int, default 6
        Most bends of the lines that scores are made of; 0: scores are straight in each input.
    max_regressors : int, default 32
        Inputs that scores may use.
    max_split_features : int, default 8
        Inputs that are split on after the root.
    holdout : float, default 0.2
        Share of the rows that chooses the number of rules; 0: all `max_rules` are kept.
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

    _scheme_name = "fmt_classes"

    n_sets: int = 11
    max_rules: int = 20
    max_slopes: int = 32
    max_hinges: int = 6
    max_regressors: int = 32
    max_split_features: int = 8
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
