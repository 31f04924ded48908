"""Central references on pooled rows: MLP, random forest, gradient boosting, CART and ridge. Needs scikit-learn.

They show what a model that is not federated, or not readable, reaches on the same rows. Settings are scikit-learn's
defaults except where :data:`REFERENCES` says otherwise; nothing was tuned to a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain


def made(module: str, kind: str, **settings: Any) -> Any:
    """Return an estimator of another package, which is an extra; it has ``fit`` and ``predict``."""
    return getattr(import_module(module), kind)(**settings)


@dataclass(frozen=True)
class Reference:
    """A learner of scikit-learn.

    Attributes
    ----------
    title : str
        For tables.
    module, regressor, classifier : str
        Where it is.
    settings : Mapping of str to Any
        What is not scikit-learn's default.
    for_numbers : Mapping of str to Any
        The same of the regressor alone.
    """

    title: str
    module: str
    regressor: str
    classifier: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    for_numbers: Mapping[str, Any] = field(default_factory=dict)

    def make(self, *, classify: bool) -> Any:
        """Return an estimator with ``fit`` and ``predict``."""
        kind, more = (self.classifier, {}) if classify else (self.regressor, self.for_numbers)
        return made(f"sklearn.{self.module}", kind, random_state=0, **self.settings, **more)


REFERENCES: Final[Mapping[str, Reference]] = {
    "mlp": Reference(
        "MLP (64-32, early stopping)", "neural_network", "MLPRegressor", "MLPClassifier",
        # Early stopping holds a tenth of the rows back: an MLP without it learns such rows by heart.
        {"hidden_layer_sizes": (64, 32), "max_iter": 500, "early_stopping": True},
    ),
    "forest": Reference(
        "random forest (100 trees)", "ensemble", "RandomForestRegressor", "RandomForestClassifier",
        {"n_estimators": 100},
        # A third of the inputs per split, as Breiman proposes for regression.
        {"max_features": 1 / 3, "min_samples_leaf": 3},
    ),
    "boosting": Reference(
        "gradient boosting (histograms)", "ensemble", "HistGradientBoostingRegressor", "HistGradientBoostingClassifier",
        {"early_stopping": True},
    ),
    "cart": Reference(
        "CART (20 rows a leaf)", "tree", "DecisionTreeRegressor", "DecisionTreeClassifier", {"min_samples_leaf": 20}
    ),
    "ridge": Reference("ridge", "linear_model", "Ridge", "RidgeClassifier"),
}  # fmt: skip
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
    estimator = REFERENCES[name].make(classify=classify)
    target = chosen.y.astype(np.str_) if classify else domain.scale_target(chosen.y)
    estimator.fit(domain.scale_inputs(chosen.X), target)
    return FittedReference(domain, estimator)


# --- learners of other projects that a reader would compare with: rule models and other readable ones, on pooled rows -
#
# They need the extra ``anchors``, and are for the comparison in ``glassfleet lab papers sizes`` alone. Settings are the
# libraries' defaults except where :data:`ANCHORS` says otherwise; nothing was tuned to a dataset.


Array = NDArray[np.float64]
Size = Mapping[str, int]
"""``rules``, and ``parameters``: the numbers that a reader must take in."""

SIZES = (5, 10, 20, 40)
"""Most rules of the models that are compared; the last is as many as ours have by default."""
LEAVES = SIZES[-1]


@dataclass(frozen=True)
class Anchor:
    """A learner of numbers.

    Attributes
    ----------
    title : str
        For tables.
    package : str
        What has to be installed.
    make : callable
        () -> an estimator with ``fit`` and ``predict``.
    size : callable
        Fitted estimator -> :data:`Size`.
    slow : bool
        Takes minutes on the papers' sets: only with ``--full``.
    """

    title: str
    package: str
    make: Callable[[], Any]
    size: Callable[[Any], Size]
    slow: bool = False

    @property
    def installed(self) -> bool:
        """Whether it can be used here."""
        return find_spec(self.package) is not None


class LinearLeaves:
    """CART with a ridge regression in each leaf; the number of leaves by cross-validation within the training rows."""

    sizes = (1, 2, 5, 10, 20, LEAVES)
    parts = 5

    def fit(self, X: Array, y: Array) -> LinearLeaves:
        """Learn from rows, shape (n, F) and (n,)."""
        from sklearn.model_selection import KFold  # an extra

        errors = np.zeros(len(self.sizes))
        for train, test in KFold(self.parts, shuffle=True, random_state=0).split(X):
            for number, leaves in enumerate(self.sizes):
                fitted = _tree_of(X[train], y[train], leaves)
                errors[number] += np.sum((_answer(*fitted, X[test]) - y[test]) ** 2)
        self.tree, self.lines = _tree_of(X, y, self.sizes[int(np.argmin(errors))])
        return self

    def predict(self, X: Array) -> Array:
        """Predict rows, shape (n, F); returns shape (n,)."""
        return _answer(self.tree, self.lines, X)


def _tree_of(X: Array, y: Array, leaves: int) -> tuple[Any, dict[int, Any]]:
    """Return a tree of at most so many leaves (None: it has one), and the line of each leaf by its number."""
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    tree = None
    if leaves > 1:
        tree = DecisionTreeRegressor(max_leaf_nodes=leaves, min_samples_leaf=2 * X.shape[1], random_state=0).fit(X, y)
    place = tree.apply(X) if tree else np.zeros(len(X), dtype=np.int64)
    return tree, {leaf: Ridge(alpha=0.1).fit(X[place == leaf], y[place == leaf]) for leaf in np.unique(place).tolist()}


def _answer(tree: Any, lines: Mapping[int, Any], X: Array) -> Array:
    place = tree.apply(X) if tree else np.zeros(len(X), dtype=np.int64)
    answers = np.zeros(len(X))
    for leaf, line in lines.items():
        if (place == leaf).any():
            answers[place == leaf] = line.predict(X[place == leaf])
    return answers


def _cubist_size(fitted: Any) -> Size:
    lines = fitted.coeffs_.drop(columns=["committee", "rule"]).to_numpy(dtype=np.float64)
    return {"rules": len(lines), "parameters": int(np.count_nonzero(np.nan_to_num(lines))) + len(fitted.splits_)}


def _cart_size(fitted: Any) -> Size:
    return {"rules": int(fitted.get_n_leaves()), "parameters": 2 * int(fitted.get_n_leaves()) - 1}


def _lines_size(fitted: LinearLeaves) -> Size:
    used = sum(np.count_nonzero(line.coef_) + 1 for line in fitted.lines.values())
    return {"rules": len(fitted.lines), "parameters": int(used) + len(fitted.lines) - 1}


_cubist = partial(made, "cubist", "Cubist")
_cart = partial(made, "sklearn.tree", "DecisionTreeRegressor", random_state=0)
_curves = partial(made, "interpret.glassbox", "ExplainableBoostingRegressor", random_state=0, n_jobs=1)

ANCHORS: Final[Mapping[str, Anchor]] = {
    **{
        f"cubist-{n}": Anchor(
            f"Cubist (at most {n} rules)", "cubist", partial(_cubist, n_rules=n, n_committees=1), _cubist_size
        )
        for n in SIZES
    },
    "cubist-5-committees": Anchor(
        f"Cubist (5 committees of {LEAVES})", "cubist", partial(_cubist, n_rules=LEAVES, n_committees=5), _cubist_size
    ),
    **{
        f"cart-{n}": Anchor(f"CART ({n} leaves)", "sklearn", partial(_cart, max_leaf_nodes=n), _cart_size)
        for n in SIZES
    },
    "linear-leaves": Anchor("CART with linear leaves", "sklearn", LinearLeaves, _lines_size),
    "ebm": Anchor(
        "EBM (curves and pairs)",
        "interpret",
        _curves,
        lambda fitted: {
            "rules": len(fitted.term_features_),
            "parameters": int(sum(scores.size for scores in fitted.term_scores_)),
        },
        slow=True,
    ),
}
"""By name. The rules of an EBM are its terms."""
