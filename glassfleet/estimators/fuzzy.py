"""Scikit-learn style estimators of the fuzzy schemes: regression tree, TSK system, Chi classifier.

>>> from glassfleet.estimators.fuzzy import ChiClassifier
>>> X = [[0.0], [0.1], [0.2], [2.8], [2.9], [3.0]]
>>> ChiClassifier(n_sets=2).fit(X, ["low", "low", "low", "high", "high", "high"]).predict([[0.3], [2.7]]).tolist()
['low', 'high']
"""

from __future__ import annotations

from typing import Any, Literal

from glassfleet.data.domain import Domain
from glassfleet.estimators.base import RandomState, SchemeClassifier, SchemeRegressor


class FuzzyRegressionTree(SchemeRegressor):
    """Fuzzy regression tree with linear leaves (scheme ``frt``).

    ``fit`` learns centrally from all rows. ``fit_federated`` learns from several parties' rows as a fleet does: limits
    from additive histograms, then exact sums only. With ``nullify=False`` and ``min_rows=1`` and the same domain both
    give the same tree, to the last bit.

    Parameters
    ----------
    n_sets : int, default 5
        Fuzzy sets per input.
    min_samples_fraction : float, default 0.1
        Smallest share of the rows, in [0, 1], that a node needs to be split.
    min_gain : float, default 1e-4
        Smallest fuzzy variance reduction of a split, on the scaled target.
    max_depth : int or None, default None
        Deepest level; None: as many as there are inputs.
    order : {0, 1}, default 1
        Constant or linear leaves.
    inference : {"maximum_matching", "weighted_average"}, default "maximum_matching"
        One rule answers, or all that fire are averaged.
    nullify : bool, default True
        Only for ``fit_federated``: parties condense their rows, see `min_rows`.
    min_rows : int, default 3
        Only for ``fit_federated``: fewest rows of a group of condensed rows, and behind a count of limits. 1: rows are
        used as they are.
    prune : float, default 0.0
        Splits are undone that save less than this many noise variances per parameter; 2 is a good value. 0: none are.
    max_slopes : int or None, default None
        Most inputs in a leaf's polynomial. None: all.
    input_quantiles : (float, float), default (0.025, 0.975)
        Quantiles of each input that map to 0 and 1; values outside are clipped.
    domain : Domain or None, default None
        Limits to use instead of finding them.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for methods and attributes.
    """

    _scheme_name = "frt"

    def __init__(
        self,
        *,
        n_sets: int = 5,
        min_samples_fraction: float = 0.1,
        min_gain: float = 1e-4,
        max_depth: int | None = None,
        order: Literal[0, 1] = 1,
        inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching",
        nullify: bool = True,
        min_rows: int = 3,
        prune: float = 0.0,
        max_slopes: int | None = None,
        input_quantiles: tuple[float, float] = (0.025, 0.975),
        domain: Domain | None = None,
    ) -> None:
        self.n_sets = n_sets
        self.min_samples_fraction = min_samples_fraction
        self.min_gain = min_gain
        self.max_depth = max_depth
        self.order = order
        self.inference = inference
        self.nullify = nullify
        self.min_rows = min_rows
        self.prune = prune
        self.max_slopes = max_slopes
        self.input_quantiles = input_quantiles
        self.domain = domain


class TSKRegressor(SchemeRegressor):
    """Takagi-Sugeno-Kang rules with linear consequents, antecedents from fuzzy C-means (scheme ``tsk``).

    ``fit`` learns centrally from all rows; ``fit_federated`` from several parties' rows. With
    ``antecedents="federated"``, ``nullify=False``, ``min_rows=1`` and the same domain both give the same system, to the
    last bit.

    Parameters
    ----------
    n_sets : int, default 3
        Fuzzy sets per input.
    n_clusters : int, default 30
        Clusters: the most rules that one party's rows give.
    tolerance : float, default 0.005
        Clustering ends when the memberships change less (Frobenius norm).
    max_iterations : int, default 1000
        Clustering ends after as many iterations.
    consequents : {"pooled", "averaged"}, default "pooled"
        Least squares over all parties' rows, or the parties' own polynomials averaged by rule weight.
    antecedents : {"federated", "local"} or None, default None
        All parties cluster together with exact sums, or each its own rows. None: together with pooled consequents, each
        its own with averaged ones.
    otherwise : bool, default True
        Pooled consequents only: one more rule answers for rows that no rule covers, instead of the best rule.
    inference : {"maximum_matching", "weighted_average"}, default "maximum_matching"
        One rule answers, or all that fire are averaged.
    nullify : bool, default True
        Only for ``fit_federated``: parties condense their rows, see `min_rows`.
    min_rows : int, default 3
        Only for ``fit_federated``: fewest rows of a group of condensed rows, and behind a count of limits. 1: rows are
        used as they are.
    random_state : int, RandomState instance or None, default 0
        Of the memberships that the clustering starts with.
    input_quantiles : (float, float), default (0.025, 0.975)
        Quantiles of each input that map to 0 and 1; values outside are clipped.
    domain : Domain or None, default None
        Limits to use instead of finding them.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for methods and attributes.
    """

    _scheme_name = "tsk"

    def __init__(
        self,
        *,
        n_sets: int = 3,
        n_clusters: int = 30,
        tolerance: float = 0.005,
        max_iterations: int = 1000,
        consequents: Literal["pooled", "averaged"] = "pooled",
        antecedents: Literal["local", "federated"] | None = None,
        otherwise: bool = True,
        inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching",
        nullify: bool = True,
        min_rows: int = 3,
        random_state: RandomState = 0,
        input_quantiles: tuple[float, float] = (0.025, 0.975),
        domain: Domain | None = None,
    ) -> None:
        self.n_sets = n_sets
        self.n_clusters = n_clusters
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.consequents = consequents
        self.antecedents = antecedents
        self.otherwise = otherwise
        self.inference = inference
        self.nullify = nullify
        self.min_rows = min_rows
        self.random_state = random_state
        self.input_quantiles = input_quantiles
        self.domain = domain

    def _parameters(self) -> Any:
        # The scheme keeps this seed among its parameters: they decide the model, whoever starts the run.
        return super()._parameters().model_copy(update={"cluster_seed": self._seed() % 2**32})


class ChiClassifier(SchemeClassifier):
    """Fuzzy rule-based classifier of Chi: one condition per input, the rule that fires most answers (scheme ``frbc``).

    ``fit`` learns centrally from all rows; ``fit_federated`` from several parties' rows. With ``nullify=False``,
    ``min_rows=1`` and the same domain both give the same rules, to the last bit (``weights="pooled"``).

    Parameters
    ----------
    n_sets : int, default 3
        Fuzzy sets per input.
    weights : {"pooled", "owners"}, default "pooled"
        Rows of all parties weigh a rule, or those of the parties that found it.
    association : {"strength", "strength*weight"}, default "strength"
        What the rules compete by when a row is classified.
    nullify : bool, default True
        Only for ``fit_federated``: parties condense their rows, see `min_rows`.
    min_rows : int, default 3
        Only for ``fit_federated``: fewest rows of a group of condensed rows, and behind a count of limits. 1: rows are
        used as they are.
    max_rules : int or None, default None
        At most so many rules are kept, those with the largest support.
    min_support : float, default 0.0
        Rules with a smaller support, in [0, 1], are left out.
    input_quantiles : (float, float), default (0.025, 0.975)
        Quantiles of each input that map to 0 and 1; values outside are clipped.
    domain : Domain or None, default None
        Limits and classes (as texts) to use instead of finding them.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for methods and attributes.
    """

    _scheme_name = "frbc"

    def __init__(
        self,
        *,
        n_sets: int = 3,
        weights: Literal["pooled", "owners"] = "pooled",
        association: Literal["strength", "strength*weight"] = "strength",
        nullify: bool = True,
        min_rows: int = 3,
        max_rules: int | None = None,
        min_support: float = 0.0,
        input_quantiles: tuple[float, float] = (0.025, 0.975),
        domain: Domain | None = None,
    ) -> None:
        self.n_sets = n_sets
        self.weights = weights
        self.association = association
        self.nullify = nullify
        self.min_rows = min_rows
        self.max_rules = max_rules
        self.min_support = min_support
        self.input_quantiles = input_quantiles
        self.domain = domain
