"""The rules: scores of classes as polynomials, and which classes the rows of a rule have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain
from glassfleet.numerics.statistics import rule_weight
from schemas.errors import DocumentError

Array = NDArray[np.float64]

MAX_COEFFICIENT = 1e9
"""Larger ones are refused: scores must stay finite."""


@dataclass(frozen=True)
class ScoreRules:
    """One line per leaf, in the order of the leaves.

    Attributes
    ----------
    coefficients : ndarray of float64, shape (r, S, F + H + 1)
        Scores over the scaled inputs and their hinges, intercept first.
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
    hinges: tuple[float, ...] = ()
    intercept: float


class RuleLine(Strict):
    """A rule in a document; coefficients by input name."""

    scores: tuple[_ScoreLine, ...]
    shares: tuple[float, ...]
    support: float = Field(ge=0.0, le=1.0)


def write_rules(rules: ScoreRules, domain: Domain) -> list[dict[str, Any]]:
    """Return the rules as a document has them; coefficients of zero are left out."""
    return [
        {
            "scores": [_score_line(row, domain) for row in scores],
            "shares": rules.shares[line].tolist(),
            "support": float(rules.support[line]),
        }
        for line, scores in enumerate(rules.coefficients)
    ]


def _score_line(row: Array, domain: Domain) -> dict[str, Any]:
    intercept, *slopes = row.tolist()
    own = {name: value for name, value in zip(domain.input_names, slopes, strict=False) if value != 0.0}
    bends = slopes[len(domain.input_names) :]
    return {"coefficients": own, **({"hinges": bends} if bends else {}), "intercept": intercept}


def read_rules(lines: Sequence[RuleLine], leaves: int, n_scores: int, domain: Domain, hinges: int) -> ScoreRules:
    """Read a document's rules; raises DocumentError unless they are one for each of so many leaves of the domain."""
    if len(lines) != leaves:
        raise DocumentError(f"{len(lines)} rules for {leaves} leaves")
    place = {name: index for index, name in enumerate(domain.input_names)}
    coefficients = np.zeros((len(lines), n_scores, len(place) + hinges + 1))
    for number, rule in enumerate(lines):
        if len(rule.scores) != n_scores or len(rule.shares) != len(domain.classes):
            raise DocumentError(f"rule {number} must have {n_scores} scores and {len(domain.classes)} shares")
        if not all(0.0 <= share <= 1.0 for share in rule.shares) or sum(rule.shares) > 1.0 + 1e-9:
            raise DocumentError(f"the shares of rule {number} are not those of classes")
        for score, line in enumerate(rule.scores):
            if len(line.hinges) != hinges:
                raise DocumentError(f"rule {number} has {len(line.hinges)} coefficients of hinges, expected {hinges}")
            coefficients[number, score, [0, *range(len(place) + 1, len(place) + hinges + 1)]] = (
                line.intercept,
                *line.hinges,
            )
            for name, value in line.coefficients.items():
                if name not in place:
                    raise DocumentError(f"rule {number} has a coefficient of {name!r}, which the domain lacks")
                coefficients[number, score, place[name] + 1] = value
    if not (np.abs(coefficients) <= MAX_COEFFICIENT).all():
        raise DocumentError(f"a coefficient is above {MAX_COEFFICIENT:g}")
    shares = np.array([rule.shares for rule in lines], dtype=np.float64)
    return ScoreRules(coefficients, shares, np.array([rule.support for rule in lines], dtype=np.float64))
