"""FRBC: the federated fuzzy rule-based classifier (Chi). See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.schemes.frbc.checks import shapes_of
from glassfleet.schemes.frbc.client import FrbcClient
from glassfleet.schemes.frbc.document import read_document
from glassfleet.schemes.frbc.messages import Question
from glassfleet.schemes.frbc.model import FuzzyRuleClassifier
from glassfleet.schemes.frbc.params import Parameters
from glassfleet.schemes.frbc.params import Parameters as FrbcParameters
from glassfleet.schemes.frbc.server import FrbcServer
from schemas.errors import UsageError


class FederatedRuleClassifier(SumScheme):
    """The scheme, as the catalogue knows it."""

    name = "frbc"
    title = "Fuzzy rule-based classifier"
    purpose: frozenset[Purpose] = frozenset({"classification"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    Parameters: type[BaseModel] = Parameters
    client = FrbcClient()
    server = FrbcServer()
    tables = staticmethod(FuzzyRuleClassifier.tables)

    def private(self, parameters: FrbcParameters) -> FrbcParameters:
        """Return the parameters of a private run; raises UsageError where agents would tell rules of their own."""
        if parameters.weights == "owners":
            raise UsageError('a private run of frbc needs weights="pooled": nobody may know who found a rule')
        return self.exact(parameters).model_copy(update={"union": "sum"})

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        return shapes_of(Question.from_task(task))

    def most_told(self, task: Task) -> int:
        """Return at which number the counts of an answer to a question of support end."""
        return Question.from_task(task).parameters.support

    def equals_central_with(self, parameters: FrbcParameters) -> bool:
        """Return whether the fleet's model equals the central one: where all agents' rows weigh every rule."""
        return parameters.weights == "pooled" and super().equals_central_with(parameters)

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, all antecedents fire that differ in neighbouring sets."""
        question = Question.from_task(task)
        inputs = question.n_features
        antecedents = 0
        if question.rules is not None:
            antecedents = question.rules.size
        elif question.parameters.weights == "owners":
            antecedents = rows
        fires = min(antecedents, 1 << min(inputs, 32))
        counts = 0 if question.prefixes is None else len(question.prefixes) * question.parameters.n_sets**question.more
        sums = antecedents * question.n_classes + question.cells * question.n_limbs + counts
        return Cost(1e-7 * (rows * (inputs + 2 * fires) + sums), (rows * inputs * 30 + sums * 80) / 1e6)

    def from_document(self, document: Mapping[str, Any]) -> FuzzyRuleClassifier:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FuzzyRuleClassifier(*read_document(document))


SCHEME = FederatedRuleClassifier()

__all__ = ["SCHEME", "FederatedRuleClassifier", "FuzzyRuleClassifier", "Parameters"]
