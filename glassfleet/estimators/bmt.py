"""The scikit-learn style estimator of the blended model tree. Needs scikit-learn, as :mod:`glassfleet.estimators` does.

>>> from glassfleet.estimators.bmt import BlendedModelTree
>>> X = [[j / 40] for j in range(40)]
>>> tree = BlendedModelTree(holdout=0.0, max_rules=2).fit(X, [abs(j - 20) for j in range(40)])
>>> len(tree.rules_)
2
"""

from __future__ import annotations

from dataclasses import dataclass

from glassfleet.estimators.base import SchemeRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class BlendedModelTree(SchemeRegressor):
    """Binary tree of ramps with a linear model in each leaf, all fitted together (scheme ``bmt``).

    ``fit`` learns centrally from all rows; ``fit_federated`` from several parties' rows, exact sums only. With
    ``min_rows=1`` and the same domain both give the same tree, to the last bit.
    """

    _scheme_name = "bmt"

    compact: bool = False
    max_rules: int = 40
    max_slopes: int = 8
    max_regressors: int = 24
    max_split_features: int = 8
    min_weight_fraction: float = 0.01
    holdout: float = 0.2
    size_tolerance: float = 0.01
    min_rows: int = 3
    input_quantiles: tuple[float, float] = (0.001, 0.999)
