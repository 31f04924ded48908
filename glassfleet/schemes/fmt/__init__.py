"""FMT: the fuzzy model tree, few rules with linear models, from exact sums. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.scheme import Cost, Participation, Purpose, Task
from glassfleet.schemes.fmt.client import FmtClient
from glassfleet.schemes.fmt.messages import read_task
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
        """Return `parameters` with no row kept with others."""
        return parameters.model_copy(update={"min_rows": 1})

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every node asked about."""
        question = read_task(task)
        inputs, nodes, lines = question.n_features, len(question.nodes), question.width
        if question.kind == "grow":
            lines = 5 * question.width + len(question.cuts) * (40 + question.width // 2)
        elif question.kind == "leaves":
            nodes, lines = len(question.tree.leaves), 5 * question.width
        elif question.kind == "sizes":
            assert question.coefficients is not None
            nodes, lines = question.tree.size, len(question.coefficients) * (8 + len(question.regressors))
        else:
            nodes, lines = 1, 5 * question.width
        seconds = 1e-9 * rows * (100 * inputs + nodes * (20 + lines))
        return Cost(seconds, 8e-6 * (rows * (2 * inputs + nodes) + nodes * question.width * len(question.cuts)))

    def from_document(self, document: Mapping[str, Any]) -> FuzzyModelTree:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FuzzyModelTree.from_document(document)


SCHEME = FederatedModelTree()

__all__ = ["SCHEME", "FederatedModelTree", "FuzzyModelTree", "Parameters"]
