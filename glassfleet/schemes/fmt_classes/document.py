"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from glassfleet.data.documents import document_errors, document_of, read_document_head
from glassfleet.schemes.fmt.document import TreeBody, tree_lines
from glassfleet.schemes.fmt.inputs import Inputs
from glassfleet.schemes.fmt.tree import MAX_SPLITS, Tree
from glassfleet.schemes.fmt_classes.messages import NAME, check_domain
from glassfleet.schemes.fmt_classes.params import Parameters
from glassfleet.schemes.fmt_classes.rules import RuleLine, ScoreRules, read_rules, write_rules

FORMAT = 1


class _Body(TreeBody):
    levels: tuple[tuple[float, ...], ...]
    rules: tuple[RuleLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


def write_document(parameters: Parameters, inputs: Inputs, tree: Tree, rules: ScoreRules) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.levels``: of each input of text, the level in [0, 1] of unknown categories, then of each category; empty
    for numbers. ``model.splits``: split i cuts leaf ``node`` behind set ``cut`` of input ``feature`` into the nodes
    2 i + 1 (lower) and 2 i + 2; node 0 is the root. ``model.rules``: one per leaf, lower sides first; ``scores`` over
    the scaled inputs, of the second of two classes or of each of more; ``shares`` of the classes in the rule's weight.
    """
    model = {**tree_lines(inputs, tree), "rules": write_rules(rules, inputs.domain)}
    return document_of(NAME, FORMAT, parameters, inputs.domain, model)


def read_document(document: Mapping[str, Any]) -> tuple[Parameters, Inputs, Tree, ScoreRules]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, NAME, FORMAT, Parameters)
    with document_errors():
        check_domain(domain)
        body = _Body.model_validate(model)
        inputs, tree = body.tree(domain, parameters.most_knots)
        scores = 1 if len(domain.classes) == 2 else len(domain.classes)
        rules = read_rules(body.rules, len(tree.leaves), scores, domain)
    return parameters, inputs, tree, rules
