"""Scikit-learn style estimators over the schemes. The only module of this package that needs scikit-learn.

>>> from glassfleet.estimators import FuzzyRegressionTree
>>> tree = FuzzyRegressionTree(n_sets=3).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 3.0])
>>> tree.predict([[1.5]]).round(3).tolist()
[1.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from glassfleet import catalogue
from glassfleet.data import Dataset
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.domain import Domain, Variable
from glassfleet.explain import Explanation, Rule
from glassfleet.local import Outcome, central, federated
from glassfleet.scheme import Scheme


class FuzzyRegressionTree(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        Only for ``fit_federated``: parties withhold split statistics that rest on one or two rows.
    min_rows : int, default 3
        Only for ``fit_federated``: parties withhold leaf sums, and counts of limits, that rest on fewer rows.
    input_quantiles : (float, float), default (0.025, 0.975)
        Quantiles of each input that map to 0 and 1; values outside are clipped.
    domain : Domain or None, default None
        Limits to use instead of finding them.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Only when `X` has column names that are text.
    domain_ : Domain
        The limits used.
    model_ : glassfleet.scheme.Model
        The learned model.
    rules_ : list of glassfleet.explain.Rule
        Its rules.
    complexity_ : dict of str to float
        Nodes, leaves, depth and parameters.
    outcome_ : glassfleet.local.Outcome
        Rounds, bytes and nullified statistics of the run.
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
        self.input_quantiles = input_quantiles
        self.domain = domain

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from all rows (central learning).

        Parameters
        ----------
        X : array-like of shape (n, F)
            Finite numbers, in their own units; a data frame's column names are kept.
        y : array-like of shape (n,)
            Finite numbers.

        Raises
        ------
        ValueError
            The data or a parameter cannot be used.
        """
        data = self._dataset(X, y, reset=True)
        domain = self.domain or _own_domain(data, self.input_quantiles)
        return self._keep(domain, central(self._scheme(), self._parameters(), domain, data))

    def fit_federated(self, parties: Sequence[tuple[Any, Any]]) -> Self:
        """Learn from the rows of several parties, none of which sees another's.

        Parameters
        ----------
        parties : sequence of (X, y)
            As for :meth:`fit`; the same columns everywhere.
        """
        if not parties:
            raise ValueError("parties is empty; at least one (X, y) is needed")
        parts = [self._dataset(X, y, reset=index == 0) for index, (X, y) in enumerate(parties)]
        domain = self.domain or discover(self._discovery(parts[0]), parts)
        fleet = {f"party-{index:05d}": part for index, part in enumerate(parts)}
        return self._keep(domain, federated(self._scheme(), self._parameters(), domain, fleet))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict rows `X`, shape (n, F); returns shape (n,), in the target's own unit."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        predicted: NDArray[np.float64] = self.model_.predict(rows)
        return predicted

    def explain(self, x: Any) -> Explanation:
        """Say why the model predicts what it does for one row `x`, shape (F,)."""
        check_is_fitted(self)
        rows = validate_data(self, np.asarray(x, dtype=np.float64).reshape(1, -1), reset=False, skip_check_array=True)
        explanation: Explanation = self.model_.explain(rows[0])
        return explanation

    def _dataset(self, X: Any, y: Any, *, reset: bool) -> Dataset:
        rows, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=reset)
        given = getattr(self, "feature_names_in_", None)
        names = [f"x{index}" for index in range(rows.shape[1])] if given is None else [str(name) for name in given]
        # A target called like an input would be ambiguous in the rules.
        return Dataset(tuple(names), "y" if "y" not in names else "target of y", rows, target.astype(np.float64))

    def _scheme(self) -> Scheme:
        return catalogue.load(self._scheme_name)

    def _parameters(self) -> Any:
        chosen = {name: getattr(self, name) for name in self._scheme().Parameters.model_fields if hasattr(self, name)}
        try:
            return self._scheme().Parameters.model_validate(chosen)
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            raise ValueError(f"parameter {'.'.join(map(str, first['loc']))}: {first['msg']}") from fault

    def _discovery(self, data: Dataset) -> DiscoveryParameters:
        return DiscoveryParameters(
            features=data.features,
            target=data.target,
            input_quantiles=self.input_quantiles,
            min_count=self.min_rows,
        )

    def _keep(self, domain: Domain, outcome: Outcome) -> Self:
        self.domain_ = domain
        self.outcome_ = outcome
        self.model_ = outcome.model
        self.rules_: list[Rule] = list(outcome.model.rules())
        self.complexity_ = dict(outcome.model.complexity())
        return self


def _own_domain(data: Dataset, quantiles: tuple[float, float]) -> Domain:
    """One party's own rows: exact quantiles of the inputs, the extremes of the target."""
    low, high = np.quantile(data.X, quantiles, axis=0)
    features = tuple(
        Variable(name=name, low=float(a), high=float(b)) for name, a, b in zip(data.features, low, high, strict=True)
    )
    target = Variable(name=data.target, low=float(data.y.min()), high=float(data.y.max()))
    return Domain(features=features, target=target)
