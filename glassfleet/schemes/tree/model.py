"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels
from glassfleet.fuzzy.linear_rules import LinearTree, LinearTreeModel
from glassfleet.fuzzy.ramps import Span, ramp_condition, span_degree
from glassfleet.fuzzy.score_rules import ScoreRules, ScoreTree
from glassfleet.model.rules import Condition
from glassfleet.model.tables import RampTree, RuleTables
from glassfleet.schemes.tree.document import read_document, write_document
from glassfleet.schemes.tree.params import TreeParameters
from glassfleet.schemes.tree.tree import Tree, degrees

Array = NDArray[np.float64]


class _Ramps(LinearTreeModel[Tree, Span]):
    """A binary tree of ramps; all rules that fire are blended by their degrees."""

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

    def conditions(self) -> RampTree:
        """Return when which rule fires, for exports."""
        splits = self.tree.splits
        places, ramps = [(split.node, split.feature) for split in splits], [(split.low, split.high) for split in splits]
        return RampTree(tuple(places), tuple(ramps), tuple(self.tree.leaves))

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.tree, self.base, self.levels)


class FuzzyTree(_Ramps, LinearTree[Tree, Span]):
    """A tree of ramps with a linear model of a number in each leaf.

    See :class:`~glassfleet.fuzzy.linear_rules.LinearTreeModel` for the parameters.
    """

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
        return self.tables_over(self.conditions())


class FuzzyClassTree(_Ramps, ScoreTree[Tree, Span]):
    """A tree of ramps with scores of classes, linear in the inputs, in each leaf.

    See :class:`~glassfleet.fuzzy.linear_rules.LinearTreeModel` for the parameters.
    """

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
        return self.tables_over(self.conditions())


def model_of(
    parameters: TreeParameters, domain: Domain, tree: Tree, rules: Any, levels: Levels
) -> FuzzyTree | FuzzyClassTree:
    """Return the model of a number's rules, or of those of classes."""
    kind = FuzzyClassTree if isinstance(rules, ScoreRules) else FuzzyTree
    return kind(parameters, domain, tree, rules, levels)


def from_document(document: Mapping[str, Any]) -> FuzzyTree | FuzzyClassTree:
    """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
    return model_of(*read_document(document))


def tables(model: FuzzyTree | FuzzyClassTree) -> RuleTables:
    """Return a model as plain tables, for exports."""
    return model.tables()
