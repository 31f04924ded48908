"""What travels: one question, asked each round with the averaged weights, and reading it without trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.tasks import Remembered, read_task_head, task_errors, task_head
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.schemes.fedavg_mlp.network import BOUND, Shape
from glassfleet.schemes.fedavg_mlp.params import Parameters

NAME = "fedavg_mlp"
KIND = "train"

BITS = 24
"""Weights are rounded to multiples of 2^-24 before they are multiplied by the rows and summed: sums are exact."""

MAX_ROWS = 1 << 31
"""Largest total number of rows: 2^31 rows of weights up to 2^6 on a grid of 2^-24 stay below 2^61."""


@dataclass(frozen=True)
class Question:
    """A task of this scheme, read and checked.

    Attributes
    ----------
    parameters : Parameters
    domain : Domain
    number : int
        Of the round, from 1.
    weights : ndarray of float64, shape (shape.size,)
        The averaged network to train on from.
    shape : Shape
    """

    parameters: Parameters
    domain: Domain
    number: int
    weights: NDArray[np.float64]
    shape: Shape

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Any] = {
            **task_head(self.parameters, self.domain),
            "number": self.number,
            "weights": self.weights,
        }
        return Task(NAME, KIND, body)

    @classmethod
    def from_task(cls, task: Task) -> Question:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        _, parameters, domain = read_task_head(task, NAME, (KIND,), Parameters)
        with task_errors():
            shape = Shape.of(parameters, domain)
            number, weights = task.body["number"], task.body["weights"]
        if type(number) is not int or not 1 <= number <= parameters.rounds:
            raise TaskError(f"round {number!r} is not in 1 to {parameters.rounds}")
        if not isinstance(weights, np.ndarray) or weights.dtype != np.float64 or weights.shape != (shape.size,):
            raise TaskError(f"weights must be a float64 array of shape ({shape.size},)")
        if not (np.abs(weights) <= BOUND).all():  # false for NaN too
            raise TaskError(f"weights must be within {BOUND:g} of 0")
        return cls(parameters, domain, number, weights, shape)


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


def check_answer(question: Question, given: Contribution) -> None:
    """Raise ContributionError, with the reason, unless `given` can be a true answer to `question`."""
    if set(given.sums) != {"weights", "rows"} or given.values or given.nullified:
        raise ContributionError("expected the sums weights and rows, and nothing else")
    weights, rows = given.sums["weights"], given.sums["rows"]
    if weights.shape != (question.shape.size,) or rows.shape != (1,):
        raise ContributionError(f"expected {question.shape.size} weights and one number of rows")
    if not 0 <= int(rows[0]) <= given.rows:
        raise ContributionError(f"{int(rows[0])} rows with a class of the run, of {given.rows} rows")
    bound = int(rows[0]) * int(BOUND) << BITS
    if int(weights.max()) > bound or int(weights.min()) < -bound:
        raise ContributionError(f"a weight is beyond {BOUND:g}")
