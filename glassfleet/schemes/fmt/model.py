"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearRules, LinearTree
from glassfleet.rules import Condition
from glassfleet.schemes.fmt.document import read_document, write_document
from glassfleet.schemes.fmt.params import Parameters
from glassfleet.schemes.fmt.tree import Inputs, Span, Tree, crisp, degrees
from glassfleet.tables import RuleTables

Array = NDArray[np.float64]


class FuzzyModelTree(LinearTree[Tree, tuple[int, int]]):
    """A binary tree of fuzzy cuts with a linear model in each leaf.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    inputs : Inputs
        The domain with its numeric target, levels of categories, and partitions.
    tree : Tree
        The splits.
    rules : LinearRules
        One line per leaf of `tree`, in its order.
    """

    scheme = "fmt"

    def __init__(self, parameters: Parameters, inputs: Inputs, tree: Tree, rules: LinearRules) -> None:
        super().__init__(parameters, inputs.domain, tree, rules, inputs.levels)
        self.inputs = inputs

    def strengths(self, scaled: Array) -> Array:
        """Return the degree to which rows `scaled`, shape (F, n), reach each leaf, shape (L, n)."""
        reached = degrees(self.tree, self.inputs.positions(scaled), self.tree.leaves)
        return np.stack([reached[leaf] for leaf in self.tree.leaves])

    def weights(self, scaled: Array) -> Array:
        """Return by how much each leaf's output counts, shape (L, n): by its strength, or one answers alone."""
        if self.parameters.inference == "averaged":
            return self.strengths(scaled)
        position = self.inputs.positions(scaled)
        return np.stack([crisp(self.tree, position, leaf).astype(np.float64) for leaf in self.tree.leaves])

    def spans(self, leaf: int) -> Span:
        """Return the first and last set of each input that leads to a leaf."""
        return self.tree.span(leaf, [len(line) for line in self.inputs.knots])

    def condition(self, feature: int, span: tuple[int, int]) -> Condition:
        """Return that an input is in a run of sets, or is one of their categories."""
        return self.inputs.condition(feature, *span)

    def membership(self, feature: int, value: float, span: tuple[int, int]) -> float:
        """Return the membership of a scaled value in a run of sets."""
        return self.inputs.membership(feature, value, span)

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
        alone = self.parameters.inference == "one_rule"
        return self.tables_over(self.inputs.cut_tree(self.tree, crisp=alone), alone=alone)

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.inputs, self.tree, self.base)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FuzzyModelTree:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
        return cls(*read_document(document))
