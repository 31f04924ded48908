"""The smallest scheme: predict the fleet's mean target."""

from typing import Any

import numpy as np
from pydantic import Field, TypeAdapter

from glassfleet.contract.checks import at_most
from glassfleet.contract.messages import Contribution, Done
from glassfleet.contract.rows import select_numbers
from glassfleet.contract.scheme import Abilities
from glassfleet.contract.sums import SumScheme, taken_up
from glassfleet.contract.tasks import SchemeQuestion
from glassfleet.data.documents import RunParameters, document_errors, document_of, read_document_head
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.rules import Consequent, Rule
from glassfleet.model.tables import RuleList, RuleTables
from glassfleet.numerics.statistics import to_grid


class MeanParameters(RunParameters):
    bits: int = Field(default=32, ge=16, le=40)


class FederatedMean:
    scheme = "federated_mean"

    def __init__(self, parameters, domain, mean: float) -> None:
        self.parameters, self.domain, self.mean = parameters, domain, mean
        self.value = float(domain.unscale_target(np.array([mean]))[0])

    def predict(self, X: Any) -> Any:
        return np.full(len(self.domain.check_rows(X)), self.value)

    def rules(self) -> list[Rule]:
        return [Rule(0, (), Consequent(self.domain.target_name, self.value), 1.0, 1.0, 1.0)]

    def explain(self, x: Any) -> Explanation:
        return Explanation(self.value, Activation(self.rules()[0], 1.0, ()), base=self.value)

    def complexity(self) -> dict[str, int]:
        return {"parameters": 1}

    def to_document(self) -> dict[str, Any]:
        return document_of(self.scheme, 1, self.parameters, self.domain, self.mean)

    def tables(self) -> RuleTables:
        return RuleTables("maximum_matching", RuleList(2, ((),)), (1.0,), constants=(self.mean,), slopes=((),))


class MeanScheme(SumScheme[SchemeQuestion]):
    name, title, purpose, kinds = "federated_mean", "Federated mean", frozenset({"regression"}), ("sum",)
    Parameters = MeanParameters
    declared = Abilities(tables=FederatedMean.tables)

    def shapes(self, question) -> dict[str, tuple[int, ...]]:
        return {"total": (1,)}

    def answer(self, question, data) -> Contribution:
        scaled = question.domain.scale_target(select_numbers(data, question.domain).y)
        total = to_grid(scaled, question.parameters.bits).astype(np.int64).sum()
        return Contribution("sum", data.rows, {"total": np.array([total])})

    def check_sums(self, question, contribution) -> None:
        most = contribution.rows << question.parameters.bits
        at_most(contribution.sums["total"], most, "a sum of values in [0, 1] exceeds their number")

    def step(self, question, memory, contributions) -> Done:
        rows, sums, memory = taken_up(memory, contributions, self.max_rows(question.parameters))
        mean = int(sums["total"][0]) / (rows << question.parameters.bits)
        return Done(FederatedMean(question.parameters, question.domain, mean), memory)

    def from_document(self, document: Any) -> FederatedMean:
        parameters, domain, mean = read_document_head(document, self.name, 1, MeanParameters)
        with document_errors():
            self.check_domain(domain)
            return FederatedMean(parameters, domain, TypeAdapter(float).validate_python(mean, strict=True))


SCHEME = MeanScheme()
