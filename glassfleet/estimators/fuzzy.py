"""Scikit-learn style estimators of the fuzzy schemes: regression tree, TSK system, Chi classifier.

>>> from glassfleet.estimators.fuzzy import ChiClassifier
>>> X = [[0.0], [0.1], [0.2], [2.8], [2.9], [3.0]]
>>> ChiClassifier(n_sets=2).fit(X, ["low", "low", "low", "high", "high", "high"]).predict([[0.3], [2.7]]).tolist()
['low', 'high']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from glassfleet.estimators.base import RandomState, SchemeClassifier, SchemeRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyRegressionTree(SchemeRegressor):
    """Fuzzy regression tree with linear leaves (scheme ``frt``).

    ``fit`` learns centrally from all rows. ``fit_federated`` learns from several parties' rows as a fleet does: limits
    from additive histograms, then exact sums only. With ``nullify=False`` and ``min_rows=1`` and the same domain both
    give the same tree, to the last bit.
    """

    _scheme_name = "frt"

    n_sets: int = 5
    min_samples_fraction: float = 0.1
    min_gain: float = 1e-4
    max_depth: int | None = None
    order: Literal[0, 1] = 1
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    nullify: bool = True
    min_rows: int = 3
    prune: float = 0.0
    max_slopes: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class TSKRegressor(SchemeRegressor):
    """Takagi-Sugeno-Kang rules with linear consequents, antecedents from fuzzy C-means (scheme ``tsk``).

    ``fit`` learns centrally from all rows; ``fit_federated`` from several parties' rows. With
    ``antecedents="federated"``, ``nullify=False``, ``min_rows=1`` and the same domain both give the same system, to the
    last bit.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default 0
        Of the memberships that the clustering starts with.
    """

    _scheme_name = "tsk"

    n_sets: int = 3
    n_clusters: int = 30
    tolerance: float = 0.005
    max_iterations: int = 1000
    consequents: Literal["pooled", "averaged"] = "pooled"
    antecedents: Literal["local", "federated"] | None = None
    otherwise: bool = True
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    nullify: bool = True
    min_rows: int = 3
    random_state: RandomState = 0

    def _parameters(self) -> Any:
        # The scheme keeps this seed among its parameters: they decide the model, whoever starts the run.
        return super()._parameters().model_copy(update={"cluster_seed": self._seed() % 2**32})


@dataclass(kw_only=True, eq=False, repr=False)
class ChiClassifier(SchemeClassifier):
    """Fuzzy rule-based classifier of Chi: one condition per input, the rule that fires most answers (scheme ``frbc``).

    ``fit`` learns centrally from all rows; ``fit_federated`` from several parties' rows. With ``nullify=False``,
    ``min_rows=1`` and the same domain both give the same rules, to the last bit (``weights="pooled"``).
    """

    _scheme_name = "frbc"

    n_sets: int = 3
    weights: Literal["pooled", "owners"] = "pooled"
    association: Literal["strength", "strength*weight"] = "strength"
    nullify: bool = True
    min_rows: int = 3
    max_rules: int | None = None
    min_support: float = 0.0
