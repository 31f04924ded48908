"""From summed statistics to rules: weights, conflicts, reduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.schemes.frbc.matching import read
from glassfleet.schemes.frbc.messages import Candidates
from glassfleet.schemes.frbc.params import FrbcParameters


@dataclass(frozen=True)
class RuleBase:
    """Rules in the order of antecedents, each antecedent once.

    Attributes
    ----------
    antecedents : ndarray of int8, shape (r, F)
        One fuzzy set per input. No inputs at all, shape (1, 0): the one rule that always holds.
    classes : ndarray of intp, shape (r,)
        Class numbers.
    weight : ndarray of float64, shape (r,)
        Rule weight Num / Den, the rule's confidence, [0, 1].
    support : ndarray of float64, shape (r,)
        Share of all rows that found the rule, [0, 1].
    """

    antecedents: NDArray[np.int8]
    classes: NDArray[np.intp]
    weight: NDArray[np.float64]
    support: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of rules."""
        return int(self.classes.shape[0])

    @property
    def unconditional(self) -> bool:
        """Whether this is the one rule without conditions."""
        return int(self.antecedents.shape[1]) == 0

    def take(self, lines: NDArray[np.intp]) -> RuleBase:
        """Return the given rules, in the order given."""
        return RuleBase(self.antecedents[lines], self.classes[lines], self.weight[lines], self.support[lines])

    def ranking(self) -> NDArray[np.intp]:
        """Return the rules from the most to the least worth keeping: support, then weight, then first."""
        return np.lexsort((np.arange(self.size), -self.weight, -self.support))

    def reduced(self, max_rules: int | None, min_support: float = 0.0) -> RuleBase:
        """Return the rules with a support of `min_support` at least, `max_rules` at most; may be none."""
        kept = self.ranking()[:max_rules]
        return self.take(np.sort(kept[self.support[kept] >= min_support]))


def weigh(
    candidates: Candidates, sums: Mapping[str, NDArray[np.int64]], rows: int, parameters: FrbcParameters
) -> tuple[RuleBase, int]:
    """Weigh the candidates (Eq. 5) and settle conflicts; return the rules and the number of conflicts settled.

    Of rules with the same antecedent the one with the highest weight stays; ties go to the larger Num, then to the
    smaller class number. Candidates that fire for no row (Den is zero) are no rules.

    Parameters
    ----------
    candidates : Candidates
        Rules to weigh.
    sums : Mapping of str to ndarray of int64, shape (r,)
        ``rows`` and the limbs of Num and Den, all of them per rule.
    rows : int
        Rows of the agents that answered, >= 1.
    """
    bits = parameters.limb_bits
    num = read(sums["num_high"], sums["num_low"], bits)
    den = read(sums["den_high"], sums["den_low"], bits)
    # Num is at most Den, but beyond 2^53 units both are rounded: hence the minimum.
    weight = np.minimum(num / np.where(den > 0, den, 1.0), 1.0)
    at = candidates.antecedent_of
    order = np.lexsort((candidates.classes, -num, -weight, at))
    new = np.ones(order.size, dtype=bool)
    new[1:] = at[order][1:] != at[order][:-1]
    best = order[new]
    conflicts = order.size - best.size
    best = best[den[best] > 0]
    base = RuleBase(
        candidates.antecedents[best],
        candidates.classes[best].astype(np.intp),
        weight[best],
        sums["rows"][best].astype(np.float64) / float(rows),
    )
    return base, conflicts


def always(class_rows: NDArray[np.int64]) -> RuleBase:
    """Return the one rule without conditions: the class of most rows (the first of equals), its share as weight."""
    total = int(class_rows.sum())
    best = int(np.argmax(class_rows))
    share = np.array([int(class_rows[best]) / total if total else 0.0])
    return RuleBase(np.zeros((1, 0), dtype=np.int8), np.array([best], dtype=np.intp), share, share)
