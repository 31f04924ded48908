"""The rules of a tree's leaves: polynomials and weights, the document that they are part of, and why they are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, check_levels, needs_levels
from glassfleet.fuzzy.matching import WEIGHTS, WeighedLine
from glassfleet.model.rules import few_digits
from glassfleet.numerics.statistics import rule_weight
from glassfleet.numerics.symmetric import dot, solve
from glassfleet.schemes.tree.joint import Fit, even_pull, ridge_of
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.params import NAME, TreeParameters, check_domain
from glassfleet.schemes.tree.tree import MAX_SPLITS, Tree
from schemas.errors import DocumentError

Array = NDArray[np.float64]

MAX_COEFFICIENT = 1e9
"""Larger ones of scores are refused: scores must stay finite."""


@dataclass(frozen=True)
class LinearRules:
    """Consequents and weights of a tree's leaves, one line per rule, in the order of the leaves.

    Attributes
    ----------
    coefficients : ndarray of float64, shape (r, F + 1)
        Polynomial over the scaled inputs, intercept first; its value is the scaled target, or what adds up to it when
        weighted by the degrees of all rules.
    weight, support, confidence : ndarray of float64, shape (r,)
        All in [0, 1]. Support: the rule's share of the rows' weight. Confidence: one minus the root mean squared error
        of the rule alone on the scaled target. Weight: their harmonic mean.
    """

    coefficients: Array
    weight: Array
    support: Array
    confidence: Array

    @classmethod
    def of(cls, coefficients: Array, strength: Array, error: Array, rows: float) -> LinearRules:
        """Return rules from sums over all `rows`: of each rule its rows' weights and weighted squared errors."""
        some = strength > 0.0
        mean = np.maximum(error, 0.0) / np.where(some, strength, 1.0)
        confidence = np.where(some, 1.0 - np.minimum(np.sqrt(mean), 1.0), 0.0)
        support = np.minimum(np.maximum(strength / max(rows, 1.0), 0.0), 1.0)
        return cls(coefficients, rule_weight(support, confidence), support, confidence)


@dataclass(frozen=True)
class ScoreRules:
    """One line per leaf, in the order of the leaves.

    Attributes
    ----------
    coefficients : ndarray of float64, shape (r, S, F + 1)
        Scores over the scaled inputs, intercept first: of the second of two classes, or of each of more.
    shares : ndarray of float64, shape (r, C)
        Of each class in the rule's weight; they add up to one, or are zero where the rule has no weight.
    support : ndarray of float64, shape (r,)
        The rule's share of the rows' weight, in [0, 1].
    """

    coefficients: Array
    shares: Array
    support: Array

    @property
    def classes(self) -> NDArray[np.intp]:
        """Each rule's class: that of most of its rows, shape (r,)."""
        numbers: NDArray[np.intp] = self.shares.argmax(axis=1)
        return numbers

    @property
    def confidence(self) -> Array:
        """The share of the rule's class, shape (r,)."""
        most: Array = self.shares.max(axis=1)
        return most

    @property
    def weight(self) -> Array:
        """Harmonic mean of support and confidence, shape (r,)."""
        return rule_weight(self.support, self.confidence)


def widened(coefficients: Array, regressors: Sequence[int], inputs: int) -> Array:
    """Return polynomials over some of so many inputs, shape (.., R + 1), over all, shape (.., inputs + 1)."""
    wide = np.zeros((*coefficients.shape[:-1], inputs + 1))
    wide[..., [0, *(feature + 1 for feature in regressors)]] = coefficients
    return wide


def outputs_of(coefficients: Array, inputs: Array) -> Array:
    """Return a polynomial's value, shape (n,), at scaled inputs, shape (R, n); element-wise, in one order."""
    output = np.full(inputs.shape[1], coefficients[0])
    for place in np.flatnonzero(coefficients[1:]):
        output += coefficients[1 + place] * inputs[place]
    return output


# --- lines of a document ----------------------------------------------------------------------------------------------


class _Line(Strict):
    """A polynomial; coefficients by input name."""

    coefficients: dict[str, float]
    intercept: float


class RuleLine(_Line, WeighedLine):
    """A rule that says a number."""


class ScoreLine(Strict):
    """A rule that says scores of classes."""

    scores: tuple[_Line, ...]
    shares: tuple[float, ...]
    support: float = Field(ge=0.0, le=1.0)


def write_rules(rules: LinearRules | ScoreRules, domain: Domain) -> list[dict[str, Any]]:
    """Return the rules as a document has them; coefficients of zero are left out."""
    if isinstance(rules, ScoreRules):
        return [
            {"scores": [_written(line, domain) for line in scores], "shares": shares, "support": support}
            for scores, shares, support in zip(
                rules.coefficients, rules.shares.tolist(), rules.support.tolist(), strict=True
            )
        ]
    return [
        {**_written(row, domain), **{name: float(getattr(rules, name)[line]) for name in WEIGHTS}}
        for line, row in enumerate(rules.coefficients)
    ]


def _written(polynomial: Array, domain: Domain) -> dict[str, Any]:
    intercept, *slopes = polynomial.tolist()
    named = zip(domain.input_names, slopes, strict=True)
    return {"coefficients": {name: value for name, value in named if value != 0.0}, "intercept": intercept}


def read_rules(lines: Sequence[Any], leaves: int, domain: Domain) -> LinearRules | ScoreRules:
    """Read a document's rules; raises DocumentError unless they are one for each of so many leaves of the domain.

    Parameters
    ----------
    lines : sequence of RuleLine or of ScoreLine
        Those of scores where the domain has classes.
    """
    if len(lines) != leaves:
        raise DocumentError(f"{len(lines)} rules for {leaves} leaves")
    if domain.classes:
        return _read_scores(lines, domain)
    coefficients = np.array([_read(line, number, domain) for number, line in enumerate(lines)])
    weights = (np.array([getattr(rule, name) for rule in lines], dtype=np.float64) for name in WEIGHTS)
    return LinearRules(coefficients, *weights)


def _read_scores(lines: Sequence[ScoreLine], domain: Domain) -> ScoreRules:
    classes = len(domain.classes)
    n_scores = 1 if classes == 2 else classes
    for number, rule in enumerate(lines):
        if len(rule.scores) != n_scores or len(rule.shares) != classes:
            raise DocumentError(f"rule {number} must have {n_scores} scores and {classes} shares")
        if not all(0.0 <= share <= 1.0 for share in rule.shares) or sum(rule.shares) > 1.0 + 1e-9:
            raise DocumentError(f"the shares of rule {number} are not those of classes")
    coefficients = np.array(
        [[_read(line, number, domain) for line in rule.scores] for number, rule in enumerate(lines)]
    )
    if not (np.abs(coefficients) <= MAX_COEFFICIENT).all():
        raise DocumentError(f"a coefficient is above {MAX_COEFFICIENT:g}")
    shares = np.array([rule.shares for rule in lines], dtype=np.float64)
    return ScoreRules(coefficients, shares, np.array([rule.support for rule in lines], dtype=np.float64))


def _read(line: _Line, rule: int, domain: Domain) -> Array:
    place = {name: 1 + index for index, name in enumerate(domain.input_names)}
    polynomial = np.zeros(1 + len(place))
    polynomial[0] = line.intercept
    for name, value in line.coefficients.items():
        if name not in place:
            raise DocumentError(f"rule {rule} has a coefficient of {name!r}, which the domain lacks")
        polynomial[place[name]] = value
    return polynomial


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
    model = {
        **({"levels": [list(line) for line in levels]} if levels else {}),
        "splits": [{"node": s.node, "feature": s.feature, "low": s.low, "high": s.high} for s in tree.splits],
        "rules": write_rules(rules, domain),
    }
    return document_of(NAME, FORMAT, parameters, domain, model)


def read_document(
    document: Mapping[str, Any],
) -> tuple[TreeParameters, Domain, Tree, LinearRules | ScoreRules, Levels]:
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
    return parameters, domain, tree, read_rules(body.rules, len(tree.leaves), domain), levels


# --- from the sums over all rows, and why they are few ----------------------------------------------------------------


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
