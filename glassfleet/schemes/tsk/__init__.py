"""TSK: the federated first-order Takagi-Sugeno-Kang fuzzy rule-based system. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.scheme import Participation, Purpose
from glassfleet.schemes.tsk.client import TskClient
from glassfleet.schemes.tsk.model import TskSystem
from glassfleet.schemes.tsk.params import Parameters
from glassfleet.schemes.tsk.params import Parameters as TskParameters
from glassfleet.schemes.tsk.server import TskServer


class FederatedTskSystem:
    """The scheme, as the catalogue knows it."""

    name = "tsk"
    title = "TSK fuzzy rule-based system"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    equals_central = True
    Parameters: type[BaseModel] = Parameters
    paper_protocol = "glassfleet.protocols_tsk"

    def __init__(self) -> None:
        self.client = TskClient()
        self.server = TskServer()

    def exact(self, parameters: TskParameters) -> TskParameters:
        """Return `parameters` with which rows are not condensed."""
        return parameters.model_copy(update={"nullify": False, "min_rows": 1})

    def equals_central_with(self, parameters: TskParameters) -> bool:
        """Return whether the fleet's model equals the central one: where all agents cluster together."""
        return parameters.antecedents == "federated"

    def from_document(self, document: Mapping[str, Any]) -> TskSystem:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return TskSystem.from_document(document)


SCHEME = FederatedTskSystem()

__all__ = ["SCHEME", "FederatedTskSystem", "Parameters", "TskSystem"]
