"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.linear_rules import LinearTree
from glassfleet.fuzzy.ramps import Span, ramp_condition, span_degree
from glassfleet.rules import Condition
from glassfleet.schemes.tree.document import read_document, write_document
from glassfleet.schemes.tree.tree import Tree, degrees
from glassfleet.tables import RampTree, RuleTables

Array = NDArray[np.float64]


class FuzzyTree(LinearTree[Tree, Span]):
    """A binary tree of ramps with a linear model in each leaf; all rules that fire are blended by their degrees.

    See :class:`~glassfleet.fuzzy.linear_rules.LinearTree` for the parameters.
    """

    scheme = "tree"

    def strengths(self, scaled: Array) -> Array:
        """Return the degree to which rows `scaled`, shape (F, n), reach each leaf, shape (L, n)."""
        reached = degrees(self.tree, scaled)
        return np.stack([reached[leaf] for leaf in self.tree.leaves])

    def spans(self, leaf: int) -> dict[int, Span]:
        """Return the innermost ramps that bound a leaf, by input."""
        return self.tree.spans(leaf)

    def condition(self, feature: int, span: Span) -> Condition:
        """Return that an input is between two ramps, or is one of the categories there."""
        return ramp_condition(self.domain.inputs[feature], *span, self.levels[feature] if self.levels else ())

    def membership(self, feature: int, value: float, span: Span) -> float:  # noqa: ARG002 - the same for all inputs
        """Return the degree of a scaled value between two ramps."""
        return span_degree(value, span)

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
        splits = self.tree.splits
        places, ramps = [(split.node, split.feature) for split in splits], [(split.low, split.high) for split in splits]
        return self.tables_over(RampTree(tuple(places), tuple(ramps), tuple(self.tree.leaves)))

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.tree, self.base, self.levels)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FuzzyTree:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
        return cls(*read_document(document))
