"""FedAvg MLP: the black box that the glass boxes are compared with. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.model.tables import NetworkTables
from glassfleet.schemes.fedavg_mlp.client import FedAvgClient
from glassfleet.schemes.fedavg_mlp.messages import Question
from glassfleet.schemes.fedavg_mlp.model import Perceptron
from glassfleet.schemes.fedavg_mlp.params import Parameters
from glassfleet.schemes.fedavg_mlp.params import Parameters as FedAvgParameters
from glassfleet.schemes.fedavg_mlp.server import FedAvgServer

REQUIRES = ("sklearn",)
"""Import names; a vehicle without them does not offer the scheme."""


class FederatedPerceptron:
    """The scheme, as the catalogue knows it."""

    name = "fedavg_mlp"
    title = "Averaged multilayer perceptron (black box)"
    purpose: frozenset[Purpose] = frozenset({"regression", "classification"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    equals_central = False
    Parameters: type[BaseModel] = Parameters
    trial = Parameters(hidden=(8, 4), rounds=4)
    client = FedAvgClient()
    server = FedAvgServer()
    from_document = staticmethod(Perceptron.from_document)

    def exact(self, parameters: FedAvgParameters) -> FedAvgParameters:
        """Return `parameters` as they are: nothing is nullified."""
        return parameters

    def private(self, parameters: FedAvgParameters) -> FedAvgParameters:
        """Return the parameters of a private run: all answers are sums."""
        return parameters

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        return {"weights": (Question.from_task(task).shape.size,), "rows": (1,)}

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer takes: so many steps of Adam, each over a batch and all weights."""
        question = Question.from_task(task)
        batch = max(1, min(question.parameters.batch_size, rows))
        steps = question.parameters.epochs * -(-rows // batch)
        weights = question.shape.size
        units = batch * sum(question.shape.units)
        return Cost(
            steps * (1e-4 * (2 + len(question.shape.units)) + weights * (3e-8 + 1e-9 * batch)),
            (200 * weights + 40 * units + 20 * rows * question.shape.units[0]) / 1e6,
            least=steps * (2e-5 + weights * (2e-9 + 5e-11 * batch)),
        )

    def tables(self, model: Perceptron) -> NetworkTables:
        """Return the model as plain tables, for exports."""
        return NetworkTables(model.shape.units, tuple(model.weights.tolist()))


SCHEME = FederatedPerceptron()

__all__ = ["REQUIRES", "SCHEME", "FederatedPerceptron", "Parameters", "Perceptron"]
