"""FRBC: the federated fuzzy rule-based classifier (Chi). See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassfleet.contract.scheme import Abilities, Cost, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.schemes.frbc.client import answer
from glassfleet.schemes.frbc.messages import NAME, FrbcQuestion, check_answer, shapes_of
from glassfleet.schemes.frbc.model import FuzzyRuleClassifier, read_document
from glassfleet.schemes.frbc.params import MAX_CLASSES, FrbcParameters
from glassfleet.schemes.frbc.server import first, progress_of, step
from schemas.errors import UsageError


class FederatedRuleClassifier(SumScheme[FrbcQuestion]):
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "Fuzzy rule-based classifier"
    purpose = frozenset[Purpose]({"classification"})
    Parameters = FrbcParameters
    own_kinds = frozenset({"rules"})
    max_classes = MAX_CLASSES
    declared = Abilities(tables=FuzzyRuleClassifier.tables)
    read = staticmethod(FrbcQuestion.from_task)
    shapes = staticmethod(shapes_of)
    first = staticmethod(first)
    answer = staticmethod(answer)
    check_sums = staticmethod(check_answer)
    step = staticmethod(step)
    shown = staticmethod(progress_of)

    def private(self, parameters: FrbcParameters) -> FrbcParameters:
        """Return the parameters of a private run; raises UsageError where agents would tell rules of their own."""
        if parameters.weights == "owners":
            raise UsageError('a private run of frbc needs weights="pooled": nobody may know who found a rule')
        return self.exact(parameters).model_copy(update={"union": "sum"})

    def equals_central(self, parameters: FrbcParameters) -> bool:
        """Return whether the fleet's model equals the central one: where all agents' rows weigh every rule."""
        return parameters.weights == "pooled" and super().equals_central(parameters)

    def cost(self, question: FrbcQuestion, rows: int) -> Cost:
        """Return what an answer may take: at most, all antecedents fire that differ in neighbouring sets."""
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

__all__ = ["SCHEME", "FederatedRuleClassifier", "FrbcParameters", "FuzzyRuleClassifier"]
