"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import check_levels, needs_levels
from glassfleet.fuzzy.linear_rules import LinearRules, RuleLine, read_rules, write_rules
from glassfleet.schemes.fmt.params import Parameters
from glassfleet.schemes.fmt.partition import check_knots
from glassfleet.schemes.fmt.tree import MAX_SPLITS, Inputs, Tree
from glassfleet.untrusted import check_numeric

SCHEME = "fmt"
FORMAT = 1


class SplitLine(Strict):
    """A split in a document."""

    node: int = Field(ge=0)
    feature: int = Field(ge=0)
    cut: int = Field(ge=0)


class TreeBody(Strict):
    """The tree in a document."""

    levels: tuple[tuple[float, ...], ...] = ()
    knots: tuple[tuple[float, ...], ...] = Field(min_length=1)
    splits: tuple[SplitLine, ...] = Field(max_length=MAX_SPLITS)

    def tree(self, domain: Domain, most_knots: int) -> tuple[Inputs, Tree]:
        """Return the tree over the domain's inputs; raises ValueError with the reason."""
        levels = check_levels(self.levels, domain) if self.levels or needs_levels(domain) else ()
        knots = check_knots(self.knots, len(domain.inputs), most_knots)
        if any(not set(line) <= set(own) for line, own in zip(levels, knots, strict=False)):
            raise ValueError("a category's level is no knot of its input")
        rows = [(split.node, split.feature, split.cut) for split in self.splits]
        return Inputs(domain, levels, knots), Tree.from_rows(rows, knots)


class _Body(TreeBody):
    rules: tuple[RuleLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


def tree_lines(inputs: Inputs, tree: Tree) -> dict[str, Any]:
    """Return the tree as a document has it; without inputs of text, levels are left out where `inputs` has none."""
    return {
        **({"levels": [list(line) for line in inputs.levels]} if inputs.levels else {}),
        "knots": [list(line) for line in inputs.knots],
        "splits": [{"node": s.node, "feature": s.feature, "cut": s.cut} for s in tree.splits],
    }


def write_document(parameters: Parameters, inputs: Inputs, tree: Tree, rules: LinearRules) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.levels``, where there are inputs of text: of each the level in [0, 1] of unknown categories, then of each
    category; empty for numbers. ``model.splits``: split i cuts leaf ``node`` behind set ``cut`` of input ``feature``
    into the nodes 2 i + 1 (lower) and 2 i + 2; node 0 is the root. ``model.rules``: one per leaf, lower sides first;
    the polynomial, ``coefficients`` by input name and ``intercept``, is over the scaled inputs and gives the scaled
    target.
    """
    model = {**tree_lines(inputs, tree), "rules": write_rules(rules, inputs.domain)}
    return document_of(SCHEME, FORMAT, parameters, inputs.domain, model)


def read_document(document: Mapping[str, Any]) -> tuple[Parameters, Inputs, Tree, LinearRules]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, SCHEME, FORMAT, Parameters)
    with document_errors():
        body = _Body.model_validate(model)
        check_numeric(domain, SCHEME)
        inputs, tree = body.tree(domain, parameters.most_knots)
    return parameters, inputs, tree, read_rules(body.rules, len(tree.leaves), domain)
