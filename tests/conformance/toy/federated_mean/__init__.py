"""The smallest scheme: predict the fleet's mean target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.rules import Consequent, Rule
from glassfleet.model.tables import RuleList, RuleTables
from glassfleet.numerics.statistics import to_grid
from schemas.errors import DocumentError, RunFailedError, UsageError


class Parameters(BaseModel):
    """What a run can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bits: int = Field(default=32, ge=16, le=40)


class Client:
    """The vehicle's half."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Sum the scaled target."""
        if task.scheme != "federated_mean" or task.kind != "sum":
            raise TaskError("not a question of this scheme")
        try:
            parameters = Parameters.model_validate(task.body["parameters"])
            domain = Domain.from_document(task.body["domain"])
        except (ValidationError, KeyError) as fault:
            raise TaskError(f"malformed task: {fault}") from fault
        if domain.target is None or data.target != domain.target.name or data.y.dtype.kind != "f":
            raise TaskError(f"there is no numeric target {domain.target_name!r} here")
        missing = set(domain.names) - set(data.features)
        if missing:
            raise TaskError(f"column {min(missing)!r} is missing here")
        total = int(to_grid(domain.scale_target(data.y), parameters.bits).astype(np.int64).sum())
        return Contribution("sum", data.rows, {"count": np.array([data.rows]), "total": np.array([total])})


class Server:
    """The coordinator's half."""

    def start(self, parameters: Parameters, domain: Domain, seed: int) -> Next:
        """Ask for the sums."""
        if domain.target is None:
            raise UsageError("the mean needs a numeric target")
        state = {"parameters": parameters.model_dump(mode="json"), "domain": domain.to_document()}
        return Next(state, Task("federated_mean", "sum", state))

    def check(self, task: Task, contribution: Contribution) -> None:
        """Check what a sum of values in [0, 1] obeys."""
        bits = Parameters.model_validate(task.body["parameters"]).bits
        if contribution.kind != "sum" or set(contribution.sums) != {"count", "total"} or contribution.values:
            raise ContributionError("expected count and total")
        if any(part.shape != (1,) for part in contribution.sums.values()):
            raise ContributionError("expected one number each")
        count, total = (int(contribution.sums[name][0]) for name in ("count", "total"))
        if count != contribution.rows or not 0 <= total <= count << bits:
            raise ContributionError("the sums cannot be true")

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Divide."""
        parameters = Parameters.model_validate(state["parameters"])
        count, total = (sum(int(part.sums[name][0]) for part in contributions) for name in ("count", "total"))
        if count == 0:
            raise RunFailedError("no vehicle has rows", "no-rows")
        return Done(
            FederatedMean(parameters, Domain.from_document(state["domain"]), total / (count << parameters.bits))
        )

    def progress(self, state: State) -> Mapping[str, Any]:
        """There is one round."""
        return {"rounds": 1}


class FederatedMean:
    """The model."""

    scheme = "federated_mean"

    def __init__(self, parameters: Parameters, domain: Domain, mean: float) -> None:
        self.parameters, self.domain, self.mean = parameters, domain, mean

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predict the mean."""
        return self.domain.unscale_target(np.full(self.domain.check_rows(X).shape[0], self.mean))

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """No input has a share."""
        prediction = float(self.predict(x.reshape(1, -1))[0])
        return Explanation(prediction, Activation(self.rules()[0], 1.0, ()), base=prediction)

    def rules(self) -> Sequence[Rule]:
        """Return the one rule."""
        value = float(self.domain.unscale_target(np.array([self.mean]))[0])
        return [Rule(0, (), Consequent(self.domain.target_name, value), 1.0, 1.0, 1.0)]

    def complexity(self) -> Mapping[str, int | float]:
        """One number."""
        return {"parameters": 1}

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        parameters = self.parameters.model_dump(mode="json")
        domain = self.domain.to_document()
        return {"scheme": self.scheme, "format": 1, "parameters": parameters, "domain": domain, "model": self.mean}


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    scheme: Literal["federated_mean"]
    format: Literal[1]
    parameters: Parameters
    domain: Domain
    model: float = Field(ge=0, le=1)


class Scheme:
    """What the catalogue finds."""

    name = "federated_mean"
    title = "Federated mean"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    equals_central = True
    Parameters = Parameters
    client = Client()
    server = Server()

    def exact(self, parameters: Any) -> Any:
        """Nothing is ever nullified."""
        return parameters

    def cost(self, task: Task, rows: int) -> Cost:
        """One pass over the rows."""
        return Cost(seconds=1e-7 * rows, megabytes=3e-5 * rows)

    def tables(self, model: FederatedMean) -> RuleTables:
        """One rule that always fires, and says the mean."""
        return RuleTables("maximum_matching", RuleList(2, ((),)), (1.0,), constants=(model.mean,), slopes=((),))

    def from_document(self, document: Mapping[str, Any]) -> FederatedMean:
        """Rebuild the model."""
        try:
            read = _Document.model_validate(document)
        except ValidationError as fault:
            raise DocumentError(str(fault)) from fault
        if read.domain.target is None:
            raise DocumentError("the mean needs a numeric target")
        return FederatedMean(read.parameters, read.domain, read.model)


SCHEME = Scheme()
