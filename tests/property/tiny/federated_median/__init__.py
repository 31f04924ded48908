"""A tiny scheme for the simulator: the fleet's median target by bisection. Each task depends on all answers before it.

So a member that is lost in the fourth round changes the course of the run if, and only if, its rows turned one of the
first three steps. Replays and restarts happen as with a tree, at a hundredth of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from glassfleet.contract.abilities import Abilities, Cost
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Participation, Purpose
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(default=4, ge=1, le=20)
    padding: int = Field(default=0, ge=0, le=1_000_000)
    """Numbers added to every task and every answer, so that they need parts."""


class Client:
    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        del rng
        if task.scheme != "federated_median" or task.kind != "below":
            raise TaskError("not a question of this scheme")
        domain = Domain.from_document(task.body["domain"])
        below = int(np.count_nonzero(domain.scale_target(data.y) <= task.body["guess"]))
        sums = {"rows": np.array([data.rows]), "below": np.array([below]), "padding": _noise(task, data.rows)}
        return Contribution("below", data.rows, sums)


class Server:
    def start(self, parameters: Parameters, domain: Domain, seed: int) -> Next:
        del seed
        state = {
            "rounds": parameters.rounds,
            "padding": parameters.padding,
            "domain": domain.to_document(),
            "low": 0.0,
            "high": 1.0,
            "done": 0,
        }
        return Next(state, _task(state))

    def check(self, task: Task, contribution: Contribution) -> None:
        if contribution.kind != "below" or set(contribution.sums) != {"rows", "below", "padding"}:
            raise ContributionError("expected two counts")
        if not np.array_equal(contribution.sums["padding"], _noise(task, contribution.rows)):
            raise ContributionError("the padding arrived damaged")

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        rows = sum(int(part.sums["rows"][0]) for part in contributions)
        below = sum(int(part.sums["below"][0]) for part in contributions)
        middle = (state["low"] + state["high"]) / 2
        after = {**state, "done": state["done"] + 1, "high" if 2 * below >= rows else "low": middle}
        if after["done"] == state["rounds"]:
            parameters = {"rounds": state["rounds"], "padding": state["padding"]}
            return Done(FederatedMedian(parameters, state["domain"], (after["low"] + after["high"]) / 2, rows))
        return Next(after, _task(after))


def _task(state: Mapping[str, Any]) -> Task:
    noise = np.random.default_rng(state["done"]).integers(0, 2**62, state["padding"])
    body = {
        "domain": state["domain"],
        "guess": (state["low"] + state["high"]) / 2,
        "step": state["done"],
        "padding": noise,
    }
    return Task("federated_median", "below", body)


def _noise(task: Task, rows: int) -> Any:
    """Numbers that cannot be compressed, of the task's own size, and known to both halves."""
    rng = np.random.default_rng([task.body["step"], rows])
    return rng.integers(0, 2**62, len(task.body["padding"]))


class FederatedMedian:
    scheme = "federated_median"

    def __init__(self, parameters: dict[str, int], domain: Any, median: float, rows: int) -> None:
        self.parameters, self._domain, self.median, self.rows = parameters, domain, median, rows

    def to_document(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "format": 1,
            "parameters": self.parameters,
            "domain": self._domain,
            # The number of rows makes every cohort's model a model of its own.
            "model": {"median": self.median, "rows": self.rows},
        }


class Scheme:
    name = "federated_median"
    title = "Federated median"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    Parameters = Parameters
    client = Client()
    server = Server()

    abilities = Abilities(
        equals_central=lambda _: True, cost=lambda _, rows: Cost(seconds=1e-6 * rows, megabytes=1e-4 * rows)
    )

    def exact(self, parameters: Any) -> Any:
        return parameters


SCHEME = Scheme()
