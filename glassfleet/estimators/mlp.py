"""Scikit-learn style estimators of the black-box comparator, a perceptron averaged over parties (``fedavg_mlp``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassfleet.estimators.base import RandomState, SchemeClassifier, SchemeEstimator, SchemeRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class FedAvgMLP(SchemeEstimator):
    """The averaged perceptron; use one of its two subclasses.

    An average of networks is not the network that one party would train on all rows: nothing here is exact.

    Parameters
    ----------
    hidden : sequence of int, default (32, 16)
        Units of each hidden layer (ReLU).
    rounds : int, default 20
        Times that the parties' networks are averaged.
    epochs : int, default 2
        Passes over a party's rows in a round.
    batch_size : int, default 32
        Rows of a step of the optimiser (Adam).
    learning_rate : float, default 0.003
        Of the optimiser, in (0, 1].
    l2 : float, default 1e-4
        Penalty on the squared weights.
    random_state : int, RandomState instance or None, default 0
        Of the weights that the first round starts with.
    """

    _scheme_name = "fedavg_mlp"

    hidden: Sequence[int] = (32, 16)
    rounds: int = 20
    epochs: int = 2
    batch_size: int = 32
    learning_rate: float = 0.003
    l2: float = 1e-4
    random_state: RandomState = 0


class FedAvgMLPRegressor(SchemeRegressor, FedAvgMLP):
    """Multilayer perceptron for numbers, averaged over parties by their rows; a black box.

    ``fit`` trains one party's network for ``rounds * epochs`` passes; ``fit_federated`` averages in between.

    See Also
    --------
    FedAvgMLP : for the parameters.
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """


class FedAvgMLPClassifier(SchemeClassifier, FedAvgMLP):
    """Multilayer perceptron for classes, averaged over parties by their rows; a black box.

    ``fit`` trains one party's network for ``rounds * epochs`` passes; ``fit_federated`` averages in between.

    See Also
    --------
    FedAvgMLP : for the parameters.
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """
