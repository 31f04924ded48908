"""The coordinator's half: averages the agents' networks by rows, and asks again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from glassfleet.contract.checks import check_head
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.tasks import usage_errors
from glassfleet.data.domain import Domain
from glassfleet.schemes.fedavg_mlp.messages import BITS, KIND, MAX_ROWS, NAME, Question, check_answer, read_task
from glassfleet.schemes.fedavg_mlp.model import Perceptron
from glassfleet.schemes.fedavg_mlp.network import Shape
from glassfleet.schemes.fedavg_mlp.params import Parameters
from schemas.codec import Value
from schemas.errors import RunFailedError


class FedAvgServer:
    """Turns summed weights into the next round's network, or into the model."""

    def max_rows(self, parameters: Parameters) -> int:  # noqa: ARG002 - the same for all
        """Return the largest total number of rows that the sums are good for."""
        return MAX_ROWS - 1

    def start(self, parameters: Parameters, domain: Domain, seed: int) -> Next:
        """Ask all agents to train the same random network."""
        with usage_errors():
            shape = Shape.of(parameters, domain)
        return _ask(Question(parameters, domain, 1, shape.start(seed), shape))

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        check_head(task, contribution)
        check_answer(read_task(task), contribution)

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Average (FedAvg): each agent's weights count by its rows."""
        question = read_task(Task(NAME, KIND, state["body"]))
        rows = sum(int(given.sums["rows"][0]) for given in contributions)
        if rows == 0:
            raise RunFailedError("no agent that answered has any rows", "no-rows")
        if rows >= MAX_ROWS:
            raise RunFailedError(f"{rows} rows in all, the sums are good for less than {MAX_ROWS}", "too-many-rows")
        total = np.zeros(question.shape.size, dtype=np.int64)
        for given in contributions:
            total += given.sums["weights"]
        weights = total.astype(np.float64) / (float(rows) * float(1 << BITS))
        if question.number < question.parameters.rounds:
            return _ask(Question(question.parameters, question.domain, question.number + 1, weights, question.shape))
        model = Perceptron(question.parameters, question.domain, weights)
        return Done(model, {"rows": rows, "rounds": question.number})

    def progress(self, state: State) -> Mapping[str, Value]:
        """Return the round, of how many, and the number of weights."""
        question = read_task(Task(NAME, KIND, state["body"]))
        rounds = question.parameters.rounds
        return {"stage": "training", "round": question.number, "rounds": rounds, "parameters": question.shape.size}


def _ask(question: Question) -> Next:
    task = question.to_task()
    return Next({"body": dict(task.body)}, task)
