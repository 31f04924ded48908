"""Parameters of the averaged perceptron."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from glassfleet.data.documents import RunParameters

MAX_WEIGHTS = 1 << 20
"""Most weights of a network: they travel, at 8 bytes each, in every round."""


class Parameters(RunParameters):
    """What a run of federated averaging can be told.

    Attributes
    ----------
    hidden : tuple of int
        Units of each hidden layer (ReLU); at least one layer.
    rounds : int
        Times that the agents' networks are averaged.
    epochs : int
        Passes over an agent's rows in a round.
    batch_size : int
        Rows of a step of the optimiser (Adam).
    learning_rate : float
        Of the optimiser, in (0, 1].
    l2 : float
        Penalty on the squared weights.
    """

    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(default=(32, 16), min_length=1, max_length=8)
    rounds: int = Field(default=20, ge=1, le=10_000)
    epochs: int = Field(default=2, ge=1, le=1000)
    batch_size: int = Field(default=32, ge=1, le=1 << 16)
    learning_rate: float = Field(default=0.003, gt=0.0, le=1.0)
    l2: float = Field(default=1e-4, ge=0.0)
