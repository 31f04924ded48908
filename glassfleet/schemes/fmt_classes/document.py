"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from glassfleet.data.documents import document_errors, document_of, read_document_head
from glassfleet.fuzzy.hinges import check_hinges
from glassfleet.schemes.fmt.document import TreeBody, tree_lines
from glassfleet.schemes.fmt.tree import MAX_SPLITS, Inputs, Tree
from glassfleet.schemes.fmt_classes.messages import NAME, check_domain
from glassfleet.schemes.fmt_classes.params import Parameters
from glassfleet.schemes.fmt_classes.rules import RuleLine, ScoreRules, read_rules, write_rules

FORMAT, FORMER = 2, 1
"""Of the latter are models of former versions: they have no hinges, and their parameters do not speak of any."""


class _Body(TreeBody):
    levels: tuple[tuple[float, ...], ...]
    hinges: tuple[tuple[int, float], ...] = ()
    rules: tuple[RuleLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


def write_document(
    parameters: Parameters, inputs: Inputs, tree: Tree, rules: ScoreRules, number: int
) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}`` in format `number`.

    ``model.hinges``, where there are any: of each the input and the knot in [0, 1] where lines over it bend; scores
    have a coefficient of each.

    ``model.levels``: of each input of text, the level in [0, 1] of unknown categories, then of each category; empty
    for numbers. ``model.splits``: split i cuts leaf ``node`` behind set ``cut`` of input ``feature`` into the nodes
    2 i + 1 (lower) and 2 i + 2; node 0 is the root. ``model.rules``: one per leaf, lower sides first; ``scores`` over
    the scaled inputs, of the second of two classes or of each of more; ``shares`` of the classes in the rule's weight.
    """
    bends = {"hinges": [list(hinge) for hinge in inputs.hinges]} if inputs.hinges else {}
    model = {**tree_lines(inputs, tree), **bends, "rules": write_rules(rules, inputs.domain)}
    document = document_of(NAME, number, parameters, inputs.domain, model)
    if number == FORMER:
        del document["parameters"]["max_hinges"]
    return document


def read_document(document: Any) -> tuple[Parameters, Inputs, Tree, ScoreRules, int]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    written = document.get("format") if isinstance(document, Mapping) else None
    number = FORMER if isinstance(written, int | float) and written == FORMER else FORMAT
    parameters, domain, model = read_document_head(document, NAME, number, Parameters)
    with document_errors():
        if number == FORMER:
            if "max_hinges" in parameters.model_fields_set:
                raise ValueError(f"format {FORMER} has no max_hinges")
            parameters = parameters.model_copy(update={"max_hinges": 0})
        check_domain(domain)
        body = _Body.model_validate(model)
        inputs, tree = body.tree(domain, parameters.most_knots)
        inputs = replace(inputs, hinges=check_hinges(body.hinges, domain, inputs.knots))
        if len(inputs.hinges) > parameters.max_hinges:
            raise ValueError(f"{len(inputs.hinges)} hinges; the run had at most {parameters.max_hinges}")
        scores = 1 if len(domain.classes) == 2 else len(domain.classes)
        rules = read_rules(body.rules, len(tree.leaves), scores, domain, len(inputs.hinges))
    return parameters, inputs, tree, rules, number
