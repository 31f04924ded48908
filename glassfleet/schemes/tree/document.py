"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, check_levels, needs_levels
from glassfleet.fuzzy.linear_rules import LinearRules, RuleLine, read_rules, write_rules
from glassfleet.fuzzy.score_rules import ScoreLine, ScoreRules, read_scores, write_scores
from glassfleet.schemes.tree.params import NAME, TreeParameters, check_domain
from glassfleet.schemes.tree.tree import MAX_SPLITS, Tree

FORMAT = 1


class _Split(Strict):
    node: int = Field(ge=0)
    feature: int = Field(ge=0)
    low: float = Field(ge=0.0, le=1.0)
    high: float = Field(ge=0.0, le=1.0)


class _Body(Strict):
    levels: tuple[tuple[float, ...], ...] = ()
    splits: tuple[_Split, ...] = Field(max_length=MAX_SPLITS)


class _Numbers(_Body):
    rules: tuple[RuleLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


class _Classes(_Body):
    rules: tuple[ScoreLine, ...] = Field(min_length=1, max_length=MAX_SPLITS + 1)


def write_document(
    parameters: TreeParameters, domain: Domain, tree: Tree, rules: LinearRules | ScoreRules, levels: Levels
) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.levels``, where there are inputs of text: of each the level in [0, 1] of unknown categories, then of each
    category; empty for numbers. ``model.splits``: split i splits leaf ``node`` on input ``feature`` into the nodes
    2 i + 1, which the scaled input reaches to the degree ``clip((high - x) / (high - low), 0, 1)``, and 2 i + 2, the
    rest; node 0 is the root. ``model.rules``: one per leaf, lower sides first; the polynomial, ``coefficients`` by
    input name and ``intercept``, is over the scaled inputs and gives the scaled target. Of classes each rule has
    ``scores``, such polynomials of the second of two classes or of each of more, and ``shares`` of the classes in its
    weight.
    """
    lines = write_scores(rules, domain) if isinstance(rules, ScoreRules) else write_rules(rules, domain)
    model = {
        **({"levels": [list(line) for line in levels]} if levels else {}),
        "splits": [{"node": s.node, "feature": s.feature, "low": s.low, "high": s.high} for s in tree.splits],
        "rules": lines,
    }
    return document_of(NAME, FORMAT, parameters, domain, model)


def read_document(document: Mapping[str, Any]) -> tuple[TreeParameters, Domain, Tree, LinearRules | ScoreRules, Levels]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, NAME, FORMAT, TreeParameters)
    with document_errors():
        check_domain(domain)
        body: Any = (_Classes if domain.classes else _Numbers).model_validate(model)
        n_plain = len(domain.inputs) - len(domain.excess)
        tree = Tree.from_rows([(s.node, s.feature, s.low, s.high) for s in body.splits], n_plain)
        levels = check_levels(body.levels, domain) if body.levels or needs_levels(domain) else ()
        for split in tree.splits:
            if levels and any(split.low < level < split.high for level in levels[split.feature]):
                raise ValueError(f"a category's level is on a ramp of {domain.inputs[split.feature].name!r}")
    read = read_scores if domain.classes else read_rules
    return parameters, domain, tree, read(body.rules, len(tree.leaves), domain), levels
