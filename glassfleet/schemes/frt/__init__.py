"""FRT: the federated first-order fuzzy regression tree. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.scheme import Participation, Purpose
from glassfleet.schemes.frt.client import FrtClient
from glassfleet.schemes.frt.model import FuzzyRegressionTree
from glassfleet.schemes.frt.params import Parameters
from glassfleet.schemes.frt.params import Parameters as FrtParameters
from glassfleet.schemes.frt.server import FrtServer


class FederatedRegressionTree:
    """The scheme, as the catalogue knows it."""

    name = "frt"
    title = "Fuzzy regression tree"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    equals_central = True
    Parameters: type[BaseModel] = Parameters

    def __init__(self) -> None:
        self.client = FrtClient()
        self.server = FrtServer()

    def exact(self, parameters: FrtParameters) -> FrtParameters:
        """Return `parameters` with which nothing is condensed or nullified."""
        return parameters.model_copy(update={"nullify": False, "min_rows": 1})

    def from_document(self, document: Mapping[str, Any]) -> FuzzyRegressionTree:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FuzzyRegressionTree.from_document(document)


SCHEME = FederatedRegressionTree()

__all__ = ["SCHEME", "FederatedRegressionTree", "FuzzyRegressionTree", "Parameters"]
