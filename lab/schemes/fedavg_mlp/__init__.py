"""FedAvg MLP: the black box that the glass boxes are compared with. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.rows import class_numbers, select_columns, select_numbers
from glassfleet.contract.scheme import Abilities, Cost, Purpose
from glassfleet.contract.sums import Memory, SumScheme, add_up, ask, count_rows
from glassfleet.contract.tasks import SchemeQuestion, check_array, read_task_head, task_errors, task_head
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.model.tables import NetworkTables
from lab.schemes.fedavg_mlp.model import BOUND, Floats, NetworkShape, Perceptron, PerceptronParameters, centred, train
from schemas.codec import Value

REQUIRES = ("sklearn",)
"""Import names; a vehicle without them does not offer the scheme."""

BITS = 24
"""Weights are rounded to multiples of 2^-24 before they are multiplied by the rows and summed: sums are exact."""

MAX_ROWS = (1 << 31) - 1
"""Largest total number of rows: 2^31 rows of weights up to 2^6 on a grid of 2^-24 stay below 2^61."""


@dataclass(frozen=True)
class PerceptronQuestion(SchemeQuestion):
    """A round: train the averaged `weights`, shape (shape.size,), on; `number` of the round, from 1."""

    shape: NetworkShape
    number: int
    weights: Floats

    def to_task(self) -> Task:
        """Return the task that asks this."""
        head = task_head(self.parameters, self.domain)
        return Task("fedavg_mlp", self.kind, {**head, "number": self.number, "weights": self.weights})


class FederatedPerceptron(SumScheme[PerceptronQuestion]):
    """The scheme, as the catalogue knows it: agents train in turn with their average, weighed by their rows."""

    name = "fedavg_mlp"
    title = "Averaged multilayer perceptron (black box)"
    purpose = frozenset[Purpose]({"regression", "classification"})
    Parameters = PerceptronParameters
    signed = frozenset({"weights"})
    declared = Abilities(
        trial=PerceptronParameters(hidden=(8, 4), rounds=4),
        tables=lambda model: NetworkTables(model.shape.units, tuple(model.weights.tolist())),
    )
    is_exact = False
    from_document = staticmethod(Perceptron.from_document)

    def max_rows(self, parameters: PerceptronParameters) -> int:  # noqa: ARG002 - the same for all
        """Return the largest total number of rows that the sums are good for."""
        return MAX_ROWS

    def read(self, task: Task) -> PerceptronQuestion:
        """Read a task without trust; raises TaskError."""
        kind, parameters, domain = read_task_head(task, self.name, ("train",), PerceptronParameters)
        with task_errors():
            shape, number = NetworkShape.of(parameters, domain), task.body["number"]
            weights = check_array("weights", task.body["weights"], np.float64, (shape.size,))
        if type(number) is not int or not 1 <= number <= parameters.rounds or (np.abs(weights) > BOUND).any():
            raise TaskError(f"a round is from 1 to {parameters.rounds}, and weights are within {BOUND:g} of 0")
        return PerceptronQuestion(kind, parameters, domain, shape, number, weights)

    def first(self, parameters: PerceptronParameters, domain: Domain, seed: int) -> Next:
        """Ask all agents to train the same random network."""
        shape = NetworkShape.of(parameters, domain)
        return ask(PerceptronQuestion("train", parameters, domain, shape, 1, shape.start(seed)), {})

    def shapes(self, question: PerceptronQuestion) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer: the weights times the rows, and the rows."""
        return {"weights": (question.shape.size,), "rows": (1,)}

    def answer(self, question: PerceptronQuestion, data: Dataset) -> Contribution:
        """Train on a vehicle's rows; those of foreign classes are left out."""
        domain, shape = question.domain, question.shape
        if domain.target is not None:
            chosen = select_numbers(data, domain)
            inputs, wanted = chosen.X, domain.scale_target(chosen.y)[:, None]
        else:
            known = (number := class_numbers(data, domain)) >= 0
            inputs, wanted = select_columns(data, domain).X[known], np.eye(len(domain.classes))[number[known]]
        weights = np.zeros(shape.size, dtype=np.int64)
        if count := len(inputs):
            layers = shape.layers(question.weights.copy())
            trained = train(question.parameters, layers, question.number, centred(domain, inputs), wanted)
            weights = np.rint(np.clip(trained, -BOUND, BOUND) * (1 << BITS)).astype(np.int64) * count
        return Contribution(question.kind, data.rows, {"weights": weights, "rows": np.array([count])})

    def check_sums(self, question: PerceptronQuestion, contribution: Contribution) -> None:  # noqa: ARG002
        """Raise ContributionError unless weights of so many rows can be theirs."""
        rows, weights = int(contribution.sums["rows"][0]), contribution.sums["weights"]
        if rows > contribution.rows or contribution.nullified:
            raise ContributionError(f"{rows} rows with a class of the run, of {contribution.rows} rows")
        most = rows * int(BOUND) << BITS
        if int(weights.max()) > most or int(weights.min()) < -most:
            raise ContributionError(f"a weight is beyond {BOUND:g}")

    def step(self, question: PerceptronQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
        """Average (FedAvg): each agent's weights count by its rows."""
        count_rows(contributions, MAX_ROWS)
        total = add_up(contributions)
        rows = max(1, int(total["rows"][0]))
        weights = total["weights"].astype(np.float64) / (float(rows) * float(1 << BITS))
        if question.number < question.parameters.rounds:
            return ask(replace(question, number=question.number + 1, weights=weights), memory)
        model = Perceptron(question.parameters, question.domain, weights)
        return Done(model, {"rows": rows, "rounds": question.number})

    def shown(self, question: PerceptronQuestion, memory: Memory) -> Mapping[str, Value]:  # noqa: ARG002
        """Return the round, of how many, and the number of weights."""
        done = {"round": question.number, "rounds": question.parameters.rounds}
        return {"stage": "training", **done, "parameters": question.shape.size}

    def cost(self, question: PerceptronQuestion, rows: int) -> Cost:
        """Return what an answer takes: so many steps of Adam, each over a batch and all weights."""
        parameters, units, weights = question.parameters, question.shape.units, question.shape.size
        batch = max(1, min(parameters.batch_size, rows))
        steps = parameters.epochs * -(-rows // batch)
        return Cost(
            steps * (1e-4 * (2 + len(units)) + weights * (3e-8 + 1e-9 * batch)),
            (200 * weights + 40 * batch * sum(units) + 20 * rows * units[0]) / 1e6,
            least=steps * (2e-5 + weights * (2e-9 + 5e-11 * batch)),
        )


SCHEME = FederatedPerceptron()

__all__ = ["REQUIRES", "SCHEME", "FederatedPerceptron", "Perceptron", "PerceptronParameters"]
