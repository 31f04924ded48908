"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, check_levels, needs_levels
from glassfleet.fuzzy.linear_rules import (
    LinearRules,
    LinearTree,
    LinearTreeModel,
    RuleLine,
    read_rules,
    widened,
    write_rules,
)
from glassfleet.fuzzy.partition import Span, ramp_condition, span_degree
from glassfleet.fuzzy.score_rules import ScoreLine, ScoreRules, ScoreTree, read_scores, write_scores
from glassfleet.model.rules import Condition, few_digits
from glassfleet.model.tables import RampTree, RuleTables
from glassfleet.numerics.symmetric import dot, solve
from glassfleet.schemes.tree.joint import Fit, even_pull, ridge_of
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.params import NAME, TreeParameters, check_domain
from glassfleet.schemes.tree.tree import MAX_SPLITS, Tree, degrees

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


# --- the model as a document: JSON values, complete and readable without this package ---------------------------------


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


# --- the numbers of the rules, and why they are few -------------------------------------------------------------------


AS_GOOD = 1.01
"""An error this many times another one is said to be as good."""


def rules_of(fit: Fit, coefficients: Array, question: TreeQuestion) -> LinearRules:
    """Return the rules of a number from the sums over all rows and coefficients over the regressors, shape (r, k)."""
    whole = fit.whole
    error = fit.own_squares[:, 0].copy()
    for i in range(fit.columns):
        error -= 2.0 * coefficients[:, i] * fit.right[:, 0, i]
        for j in range(fit.columns):
            error += coefficients[:, i] * whole[:, i, j] * coefficients[:, j]
    wide = widened(coefficients, question.regressors, question.n_inputs)
    return LinearRules.of(wide, whole[:, 0, 0], error, fit.rows)


def why_few(question: TreeQuestion, rules: int, errors: Mapping[int, float]) -> str:
    """Say what more rules would have brought; empty where the model is not of one rule, or of two of eight allowed.

    Parameters
    ----------
    question : Question
        The last one, which knows how many rules are allowed, and the target.
    rules : int
        That the model has.
    errors : mapping of int to float
        By number of rules: the error on held-out rows, in the target's unit; of classes the Brier score.
    """
    most = question.most_rules
    if rules not in errors or not (rules == 1 < most or rules == 2 <= most // 4):
        return ""
    target = question.domain.target
    one = "one rule" if target is None else "a straight line"
    name, unit = ("Brier score", "") if target is None else ("error", target.unit and f" {target.unit}")
    error = f"{name} {few_digits(errors[rules], 3)}{unit}"
    more = {count: value for count, value in errors.items() if count > rules}
    if not more:
        return f"no split said more than {one if rules == 1 else f'{rules} rules'}: {error} on held-out rows"
    best = min(more, key=lambda count: (more[count], count))
    good = "as good" if errors[rules] <= AS_GOOD * more[best] else "near enough"
    what = f"{one} was" if rules == 1 else f"{rules} rules were"
    return f"{what} {good} on held-out rows: {error}, with {best} rules {few_digits(more[best], 3)}{unit}"


def discriminants(fit: Fit, kappa: float, root: Array) -> Array:
    """Return scores of classes, shape (L, S, k), by linear discriminant analysis in each leaf.

    ``s_c = log p_c - m_c'W^-1 m_c / 2 + x'W^-1 m_c``, with each class's share p_c and mean m_c in the leaf and the
    scatter W around the means (Fisher, 1936). All follow from the sums of the joint fit: no further question is asked.
    A leaf's sums per row are mixed with those of `kappa` rows of the node above.

    Parameters
    ----------
    fit : Fit
    kappa : float
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows.
    """
    tree, targets, k = fit.tree, fit.right.shape[1], fit.columns
    own = {leaf: np.concatenate([fit.whole[at], fit.right[at]]) for at, leaf in enumerate(tree.leaves)}
    for index in range(len(tree.splits) - 1, -1, -1):
        own[tree.splits[index].node] = own[2 * index + 1] + own[2 * index + 2]
    per_row = {0: own[0] / max(float(own[0][0, 0]), 1.0)}
    for node in range(1, tree.size):
        mixed = own[node] + kappa * per_row[tree.parent(node)]
        per_row[node] = mixed / mixed[0, 0]
    spread = even_pull(root)[1:] + ridge_of(fit.rows) / max(fit.rows, 1.0)
    least = 0.5 / max(fit.rows, 1.0)
    result = np.zeros((len(tree.leaves), targets, k))
    for at, leaf in enumerate(tree.leaves):
        gram, right = per_row[leaf][:k], per_row[leaf][k:]
        each = right if targets > 1 else np.stack([gram[0] - right[0], right[0]])
        shares = np.maximum(each[:, 0], least)
        means = each[:, 1:] / shares[:, None]
        scatter = gram[1:, 1:] + np.diag(spread)
        for share, mean in zip(shares.tolist(), means, strict=True):
            scatter -= share * (mean[:, None] * mean)
        slopes = solve(scatter, np.ascontiguousarray(means.T)).T
        # Rounded, as logarithms differ in their last bits.
        scores = [
            [round(log(share), 6) - 0.5 * dot(mean, slope), *slope.tolist()]
            for share, mean, slope in zip(shares.tolist(), means, slopes, strict=True)
        ]
        result[at] = np.array(scores) if targets > 1 else np.array(scores[1]) - np.array(scores[0])
    return result
