"""Rules that say scores of classes, linear in the inputs: their numbers, lines in a document, and the model of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.linear_rules import LinearTreeModel, Span, T, outputs_of
from glassfleet.fuzzy.matching import linear_score
from glassfleet.model.explanation import Chance, Explanation
from glassfleet.model.rules import Consequent, Rule
from glassfleet.model.tables import Conditions, RuleTables, lines
from glassfleet.numerics.softmax import all_scores, probabilities
from glassfleet.numerics.statistics import blocks, rule_weight
from schemas.errors import DocumentError

Array = NDArray[np.float64]

MAX_COEFFICIENT = 1e9
"""Larger ones are refused: scores must stay finite."""

_ROW_BLOCK = 1 << 13


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


class _ScoreLine(Strict):
    coefficients: dict[str, float]
    intercept: float


class ScoreLine(Strict):
    """A rule in a document; coefficients by input name."""

    scores: tuple[_ScoreLine, ...]
    shares: tuple[float, ...]
    support: float = Field(ge=0.0, le=1.0)


def write_scores(rules: ScoreRules, domain: Domain) -> list[dict[str, Any]]:
    """Return the rules as a document has them; coefficients of zero are left out."""
    return [
        {
            "scores": [
                {
                    "coefficients": {
                        name: value for name, value in zip(domain.input_names, slopes, strict=True) if value != 0.0
                    },
                    "intercept": intercept,
                }
                for intercept, *slopes in scores.tolist()
            ],
            "shares": rules.shares[line].tolist(),
            "support": float(rules.support[line]),
        }
        for line, scores in enumerate(rules.coefficients)
    ]


def read_scores(lines: Sequence[ScoreLine], leaves: int, domain: Domain) -> ScoreRules:
    """Read a document's rules; raises DocumentError unless they are one for each of so many leaves of the domain."""
    if len(lines) != leaves:
        raise DocumentError(f"{len(lines)} rules for {leaves} leaves")
    classes, place = len(domain.classes), {name: index for index, name in enumerate(domain.input_names)}
    n_scores = 1 if classes == 2 else classes
    coefficients = np.zeros((len(lines), n_scores, len(place) + 1))
    for number, rule in enumerate(lines):
        if len(rule.scores) != n_scores or len(rule.shares) != classes:
            raise DocumentError(f"rule {number} must have {n_scores} scores and {classes} shares")
        if not all(0.0 <= share <= 1.0 for share in rule.shares) or sum(rule.shares) > 1.0 + 1e-9:
            raise DocumentError(f"the shares of rule {number} are not those of classes")
        for score, line in enumerate(rule.scores):
            coefficients[number, score, 0] = line.intercept
            for name, value in line.coefficients.items():
                if name not in place:
                    raise DocumentError(f"rule {number} has a coefficient of {name!r}, which the domain lacks")
                coefficients[number, score, place[name] + 1] = value
    if not (np.abs(coefficients) <= MAX_COEFFICIENT).all():
        raise DocumentError(f"a coefficient is above {MAX_COEFFICIENT:g}")
    shares = np.array([rule.shares for rule in lines], dtype=np.float64)
    return ScoreRules(coefficients, shares, np.array([rule.support for rule in lines], dtype=np.float64))


class ScoreTree(LinearTreeModel[T, Span]):
    """A finished tree with scores of classes in each leaf: of the leaves' scores, weighted, the highest answers."""

    base: ScoreRules

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Array) -> NDArray[Any]:
        """Classify rows `X`, shape (n, F), in the inputs' own units; returns labels (text), shape (n,).

        Of classes with the same score the first answers.
        """
        labels = np.array(self.domain.classes, dtype=np.str_)
        answers: NDArray[Any] = labels[all_scores(self._scores(X)).argmax(axis=0)]
        return answers

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each class, in the order of the domain's; shape (n, C), rows add up to one."""
        return np.ascontiguousarray(probabilities(self._scores(X)).T)

    def _scores(self, X: Array) -> Array:
        """Return the scores of rows in own units, shape (S, n): the rules', weighted by their degrees."""
        X = self.domain.check_rows(X)
        result = np.zeros((self.base.coefficients.shape[1], X.shape[0]))
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = self.scaled_rows(X[block])
            for weight, own in zip(self.weights(scaled), self.base.coefficients, strict=True):
                for score, line in enumerate(own):
                    result[score, block] += weight * outputs_of(line, scaled)
        return result

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: Array) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        ``base`` and ``shares`` add up to the log of the odds of the class over the next likely one.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        scores = all_scores(self._scores(row))[:, 0]
        order = sorted(range(len(scores)), key=lambda number: (-float(scores[number]), number))
        scaled = self.scaled_rows(self.domain.check_rows(row))
        strength = self.strengths(scaled)[:, 0].tolist()
        blend = np.zeros(self.base.coefficients.shape[1:])
        for degree, own in zip(strength, self.base.coefficients, strict=True):
            blend += degree * own
        each = np.concatenate([np.zeros_like(blend), blend]) if len(blend) == 1 else blend
        lead = each[order[0]] - each[order[1]]
        shares = self.domain.by_feature(lead[1:] * scaled[:, 0]).tolist()
        fired = self.fired(scaled[:, 0], strength, strength)
        classes, chance = self.domain.classes, self.predict_proba(row)[0]
        among_all = (self.base.support[:, None] * self.base.shares).sum(axis=0)
        return Explanation(
            prediction=classes[order[0]],
            fired=fired[0],
            runners_up=tuple(fired[1:]),
            shares=dict(zip(self.domain.names, shares, strict=True)),
            base=float(lead[0]),
            measure=f"log of the odds of {classes[order[0]]} over {classes[order[1]]}",
            chances=tuple(
                Chance(classes[number], float(chance[number]), float(among_all[number]), float(scores[number]))
                for number in order
            ),
        )

    def _rule(self, index: int) -> Rule:
        rules, domain = self.base, self.domain
        conditions = tuple(self.condition(f, span) for f, span in self.leaf_spans[index].items())
        scored = domain.classes[1:] if len(domain.classes) == 2 else domain.classes
        scores = tuple(
            linear_score(domain, f"score of {name}", line, conditions)
            for name, line in zip(scored, rules.coefficients[index], strict=True)
        )
        return Rule(
            index=index,
            conditions=conditions,
            consequent=Consequent(domain.label or "class", domain.classes[int(rules.classes[index])], scores=scores),
            weight=float(rules.weight[index]),
            support=float(rules.support[index]),
            confidence=float(rules.confidence[index]),
        )

    def tables_over(self, conditions: Conditions) -> RuleTables:
        """Return the model as plain tables; of the blended scores the highest answers."""
        rules = self.base
        return RuleTables(
            evaluator="highest_score",
            conditions=conditions,
            # Of two leaves that fire alike, the first is named.
            weights=(1.0,) * len(self.tree.leaves),
            constants=tuple(rules.coefficients[:, :, 0].ravel().tolist()),
            slopes=lines(rules.coefficients[:, :, 1:].reshape(rules.coefficients[:, :, 0].size, -1).tolist()),
            votes=tuple(rules.classes.tolist()),
            partition=True,
            levels=self.levels,
        )

    @abstractmethod
    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
