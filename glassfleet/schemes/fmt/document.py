"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.linear_rules import LinearRules, RuleLine, read_rules, write_rules
from glassfleet.schemes.fmt.params import Parameters
from glassfleet.schemes.fmt.partition import Knots, check_knots
from glassfleet.schemes.fmt.tree import MAX_SPLITS, Tree
from glassfleet.untrusted import check_numeric

SCHEME = "fmt"
FORMAT = 1


class SplitLine(Strict):
    """A split in a document."""

    node: int = Field(ge=0)
    feature: int = Field(ge=0)
    cut: int = Field(ge=0)


class _Body(Strict):
    knots: tuple[tuple[float, ...], ...] = Field(min_length=1)
    splits: tuple[SplitLine, ...] = Field(max_length=MAX_SPLITS)
    rules: tuple[RuleLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


def write_document(
    parameters: Parameters, domain: Domain, knots: Knots, tree: Tree, rules: LinearRules
) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.splits``: split i cuts leaf ``node`` behind set ``cut`` of input ``feature`` into the nodes 2 i + 1 (lower)
    and 2 i + 2; node 0 is the root. ``model.rules``: one per leaf, lower sides first; the polynomial, ``coefficients``
    by input name and ``intercept``, is over the scaled inputs and gives the scaled target.
    """
    return document_of(
        SCHEME,
        FORMAT,
        parameters,
        domain,
        {
            "knots": [list(line) for line in knots],
            "splits": [{"node": s.node, "feature": s.feature, "cut": s.cut} for s in tree.splits],
            "rules": write_rules(rules, domain),
        },
    )


def read_document(document: Mapping[str, Any]) -> tuple[Parameters, Domain, Knots, Tree, LinearRules]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, SCHEME, FORMAT, Parameters)
    with document_errors():
        body = _Body.model_validate(model)
        check_numeric(domain, SCHEME)
        knots = check_knots(body.knots, len(domain.features), parameters.most_knots)
        tree = Tree.from_rows([(split.node, split.feature, split.cut) for split in body.splits], knots)
    return parameters, domain, knots, tree, read_rules(body.rules, len(tree.leaves), domain)
