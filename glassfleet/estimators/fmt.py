"""The scikit-learn style estimator of the fuzzy model tree. It needs scikit-learn.

>>> from glassfleet.estimators.fmt import FuzzyModelTree
>>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]]
>>> tree = FuzzyModelTree(holdout=0.0, max_rules=2).fit(X, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
>>> len(tree.rules_)
2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glassfleet.estimators.base import SchemeRegressor
from glassfleet.schemes.fmt.partition import Kind


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyModelTree(SchemeRegressor):
    """Binary fuzzy tree with few rules and a linear model in each (scheme ``fmt``).

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

    _scheme_name = "fmt"

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
