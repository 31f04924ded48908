"""FMT: the fuzzy model tree, few rules with linear models, from exact sums. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.scheme import Participation, Purpose
from glassfleet.schemes.fmt.client import FmtClient
from glassfleet.schemes.fmt.model import FuzzyModelTree
from glassfleet.schemes.fmt.params import Parameters
from glassfleet.schemes.fmt.params import Parameters as FmtParameters
from glassfleet.schemes.fmt.server import FmtServer


class FederatedModelTree:
    """The scheme, as the catalogue knows it."""

    name = "fmt"
    title = "Fuzzy model tree"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    # A node's sums are its parent's less its sibling's: all rounds must rest on the same vehicles.
    participation: frozenset[Participation] = frozenset({"cohort"})
    equals_central = True
    Parameters: type[BaseModel] = Parameters

    def __init__(self) -> None:
        self.client = FmtClient()
        self.server = FmtServer()

    def exact(self, parameters: FmtParameters) -> FmtParameters:
        """Return `parameters` with which rows are not condensed."""
        return parameters.model_copy(update={"min_rows": 1})

    def from_document(self, document: Mapping[str, Any]) -> FuzzyModelTree:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FuzzyModelTree.from_document(document)


SCHEME = FederatedModelTree()

__all__ = ["SCHEME", "FederatedModelTree", "FuzzyModelTree", "Parameters"]
