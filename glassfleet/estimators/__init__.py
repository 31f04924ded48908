"""Scikit-learn style estimators, of the schemes. These modules are the only ones that need scikit-learn.

All have ``fit`` (one party has all rows), ``fit_federated`` (several parties, none of which sees another's rows),
``predict``, ``explain``, ``rules_`` and ``complexity_``: see :class:`glassfleet.estimators.base.SchemeEstimator`.

>>> from glassfleet.estimators import FuzzyRegressionTree
>>> tree = FuzzyRegressionTree(n_sets=3).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 3.0])
>>> tree.predict([[1.5]]).round(3).tolist()
[1.5]
"""

from glassfleet.estimators.base import SchemeClassifier, SchemeEstimator, SchemeRegressor
from glassfleet.estimators.papers import (
    ChiClassifier,
    FedGATreeClassifier,
    FedGATreeRegressor,
    FuzzyRegressionTree,
    TSKRegressor,
)
from glassfleet.estimators.tree import FuzzyTreeClassifier, FuzzyTreeRegressor

__all__ = [
    "ChiClassifier",
    "FedGATreeClassifier",
    "FedGATreeRegressor",
    "FuzzyRegressionTree",
    "FuzzyTreeClassifier",
    "FuzzyTreeRegressor",
    "SchemeClassifier",
    "SchemeEstimator",
    "SchemeRegressor",
    "TSKRegressor",
]
