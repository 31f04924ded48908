"""TSK: the federated first-order Takagi-Sugeno-Kang fuzzy rule-based system. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassfleet.contract.messages import SUPPORT
from glassfleet.contract.scheme import Abilities, Cost, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.schemes.tsk.client import answer
from glassfleet.schemes.tsk.clusters import ROW_BLOCK
from glassfleet.schemes.tsk.messages import NAME, TskQuestion, check_answer, read_task, shapes_of
from glassfleet.schemes.tsk.model import TskSystem, read_document
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.server import first, progress_of, step
from schemas.errors import UsageError


class FederatedTskSystem(SumScheme[TskQuestion]):
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "TSK fuzzy rule-based system"
    purpose = frozenset[Purpose]({"regression"})
    Parameters = TskParameters
    own_kinds = frozenset({"rules"})
    declared = Abilities(tables=TskSystem.tables)
    read = read_task
    shapes = staticmethod(shapes_of)
    first = staticmethod(first)
    answer = staticmethod(answer)
    check_sums = staticmethod(check_answer)
    step = staticmethod(step)
    shown = staticmethod(progress_of)

    def equals_central(self, parameters: TskParameters) -> bool:
        """Return whether the fleet's model equals the central one: where all agents cluster together."""
        return parameters.antecedents == "federated" and super().equals_central(parameters)

    def private(self, parameters: TskParameters) -> TskParameters:
        """Return the parameters of a private run; raises UsageError where vehicles would tell rules of their own."""
        if parameters.antecedents != "federated":
            raise UsageError('a private run of tsk needs antecedents="federated": a vehicle\'s own rules are no sums')
        return self.exact(parameters)

    def cost(self, question: TskQuestion, rows: int) -> Cost:
        """Return what an answer may take; a vehicle's own clustering mostly ends long before its last iteration."""
        inputs, parameters = question.n_features, question.parameters
        rules = parameters.n_clusters if question.antecedents is None else len(question.antecedents)
        iterations = {"rules": parameters.max_iterations, "clusters": 2}.get(question.kind, 0)
        fires = min(rules, 1 << min(inputs, 32))  # of the rules, for one row
        each = iterations * rules * (3 + inputs / 8) + rules * (10 + 3 * inputs) + fires * question.gram_columns**2
        # Clusters are added one by one, in each block of rows; a rule's regression is a product of its own.
        calls = iterations * rules * (1 + rows / ROW_BLOCK) + 20 * min(rules * (1 + rows / 64), rows * fires)
        numbers = rows * (rules + inputs) + rules * question.gram_columns**2
        if question.kind == SUPPORT:
            layers = len(question.least_of)
            each, numbers = each + rules * layers, numbers + layers * (rows + rules)
        return Cost(4e-6 * calls + 2e-9 * rows * each, 16e-6 * numbers)

    def from_document(self, document: Mapping[str, Any]) -> TskSystem:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return TskSystem(*read_document(document))


SCHEME = FederatedTskSystem()

__all__ = ["SCHEME", "FederatedTskSystem", "TskParameters", "TskSystem"]
