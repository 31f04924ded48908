"""Central references on pooled rows: MLP, random forest, gradient boosting, CART and ridge. Needs scikit-learn.

They show what a model that is not federated, or not readable, reaches on the same rows. Settings are scikit-learn's
defaults except where :data:`REFERENCES` says otherwise; nothing was tuned to a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain


@dataclass(frozen=True)
class Reference:
    """A learner of scikit-learn.

    Attributes
    ----------
    title : str
        For tables.
    make : callable
        Classification or not -> an estimator with ``fit`` and ``predict``.
    """

    title: str
    make: Callable[[bool], Any]


def _mlp(classify: bool) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor  # an extra

    kind = MLPClassifier if classify else MLPRegressor
    # Early stopping holds a tenth of the rows back: an MLP without it learns such rows by heart.
    return kind(hidden_layer_sizes=(64, 32), max_iter=500, early_stopping=True, random_state=0)


def _forest(classify: bool) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if classify:
        return RandomForestClassifier(n_estimators=100, random_state=0)
    # A third of the inputs per split, as Breiman proposes for regression.
    return RandomForestRegressor(n_estimators=100, max_features=1 / 3, min_samples_leaf=3, random_state=0)


def _boosting(classify: bool) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    return kind(early_stopping=True, random_state=0)


def _cart(classify: bool) -> Any:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind = DecisionTreeClassifier if classify else DecisionTreeRegressor
    return kind(min_samples_leaf=20, random_state=0)


def _ridge(classify: bool) -> Any:
    from sklearn.linear_model import Ridge, RidgeClassifier

    return RidgeClassifier(random_state=0) if classify else Ridge(alpha=1.0, random_state=0)


REFERENCES: Final[Mapping[str, Reference]] = {
    "mlp": Reference("MLP (64-32, early stopping)", _mlp),
    "forest": Reference("random forest (100 trees)", _forest),
    "boosting": Reference("gradient boosting (histograms)", _boosting),
    "cart": Reference("CART (20 rows a leaf)", _cart),
    "ridge": Reference("ridge", _ridge),
}
"""By name."""


class FittedReference:
    """A reference that has learned; it predicts in the data's own units, as a model does."""

    def __init__(self, domain: Domain, estimator: Any) -> None:
        self.domain = domain
        self._estimator = estimator

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), raw units; returns shape (n,)."""
        scaled = self._estimator.predict(self.domain.scale_inputs(X))
        if self.domain.target is None:
            labels: NDArray[Any] = np.asarray(scaled)
            return labels
        return self.domain.unscale_target(np.asarray(scaled, dtype=np.float64))


def fit_reference(name: str, domain: Domain, data: Dataset) -> FittedReference:
    """Learn a reference from pooled rows.

    Parameters
    ----------
    name : str
        One of :data:`REFERENCES`.
    domain : Domain
        Scales inputs and target to [0, 1], as for the schemes.
    data : Dataset
        At least two rows; of two classes at least.

    Raises
    ------
    KeyError
        No such reference.
    ValueError
        The rows cannot be learned from; the text is scikit-learn's.
    """
    chosen = data.select(domain.names)
    classify = domain.target is None
    estimator = REFERENCES[name].make(classify)
    target = chosen.y.astype(np.str_) if classify else domain.scale_target(chosen.y)
    estimator.fit(domain.scale_inputs(chosen.X), target)
    return FittedReference(domain, estimator)
