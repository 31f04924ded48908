"""Antecedents, rule strengths, and the numbers of the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.matching import WEIGHTS
from glassfleet.fuzzy.partition import Memberships, fuzzify

Floats = NDArray[np.float64]

DUST = 1e-12
"""When rules are learned, a strength below this is taken as zero: products of rounding errors of memberships, which a
consequent of a region without rows would otherwise be fitted to. When they answer, any strength above zero counts."""

MAX_COEFFICIENT = 2.0**62
"""No least-squares solution above the solver's cut is larger."""


def antecedents_of(centres: Floats, n_sets: int) -> NDArray[np.int8]:
    """Return the different antecedents of cluster centres, shape (r, F), in lexicographic order.

    Per input the set with the highest membership; of equals the lower.

    Parameters
    ----------
    centres : ndarray of float64, shape (K, F)
        In [0, 1], inputs only.
    """
    if len(centres) == 0:
        return np.zeros((0, centres.shape[1]), dtype=np.int8)
    members = fuzzify(centres, n_sets)
    return union([np.ascontiguousarray((members.lower + (members.upper > 0.5)).astype(np.int8).T)])


def union(parts: Sequence[NDArray[np.int8]]) -> NDArray[np.int8]:
    """Return the different lines of all parts, in lexicographic order."""
    return np.unique(np.concatenate(parts), axis=0)


def in_order(antecedents: NDArray[np.int8]) -> bool:
    """Whether the lines differ and are in lexicographic order."""
    step = np.sign(antecedents[1:].astype(np.int16) - antecedents[:-1])
    first = np.argmax(step != 0, axis=1)
    return bool((step[np.arange(len(step)), first] > 0).all()) if len(step) else True


def with_otherwise(antecedents: NDArray[np.int8], n_sets: int) -> NDArray[np.int8]:
    """Return the rules and, last, OTHERWISE: a line of `n_sets`, which is one above the last set."""
    return np.concatenate([antecedents, np.full((1, antecedents.shape[1]), n_sets, dtype=np.int8)])


def has_otherwise(antecedents: NDArray[np.int8], n_sets: int) -> bool:
    """Whether the last rule is OTHERWISE."""
    return bool(len(antecedents)) and bool((antecedents[-1] == n_sets).all())


def strengths(antecedents: NDArray[np.int8], members: Memberships) -> Floats:
    """Return the strength of each rule for each row, shape (r, n), in [0, 1].

    The product of the memberships, input by input in column order (element-wise, so that a row's strengths do not
    depend on the rows beside it). The strengths of all T^F antecedents that can be add up to one; OTHERWISE has what
    the other rules leave of it.
    """
    n = members.rows
    line = np.arange(n)
    strength = np.ones((len(antecedents), n))
    if has_otherwise(antecedents, members.n_sets):
        strength[:-1] = strengths(antecedents[:-1], members)
        for other in strength[:-1]:
            strength[-1] -= other
        np.maximum(strength[-1], 0.0, out=strength[-1])
        return strength
    for feature in range(antecedents.shape[1]):
        degree = np.zeros((members.n_sets, n))
        lower, upper = members.lower[feature], members.upper[feature]
        degree[lower, line] = 1.0 - upper
        degree[lower + 1, line] = upper
        strength *= degree[antecedents[:, feature]]
    return strength


def outputs(coefficients: Floats, inputs: Floats) -> Floats:
    """Return each polynomial's value at each row, shape (r, n).

    Parameters
    ----------
    coefficients : ndarray of float64, shape (r, F + 1)
        Over the scaled inputs, intercept last.
    inputs : ndarray of float64, shape (F, n)
        Scaled; one line per input.
    """
    result = np.repeat(coefficients[:, -1:], inputs.shape[1], axis=1)
    for feature, column in enumerate(inputs):
        result += coefficients[:, feature, None] * column
    return result


@dataclass(frozen=True)
class TskRuleBase:
    """The rules, in the lexicographic order of their antecedents.

    Attributes
    ----------
    antecedents : ndarray of int8, shape (r, F)
        One set per input; the last may be OTHERWISE, see :func:`with_otherwise`.
    coefficients : ndarray of float64, shape (r, F + 1)
        Polynomial over the scaled inputs, intercept last; its value is the scaled target.
    weight, support, confidence : ndarray of float64, shape (r,)
        In [0, 1].
    """

    antecedents: NDArray[np.int8]
    coefficients: Floats
    weight: Floats
    support: Floats
    confidence: Floats

    @property
    def size(self) -> int:
        """Number of rules."""
        return len(self.weight)


def average(bases: Sequence[TskRuleBase]) -> TskRuleBase:
    """Merge rule bases: consequents of equal antecedents averaged by rule weight (Eq. 10), the rest plainly (Eq. 11).

    Sums are those of :func:`math.fsum`, correctly rounded, so the order of the bases changes nothing.

    Parameters
    ----------
    bases : sequence of RuleBase
        At least one rule in all.
    """
    antecedents, of = np.unique(np.concatenate([base.antecedents for base in bases]), axis=0, return_inverse=True)
    order = np.argsort(of.ravel(), kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(of.ravel()))[:-1])
    coefficients = np.concatenate([base.coefficients for base in bases])
    numbers = np.column_stack([np.concatenate([getattr(base, name) for base in bases]) for name in WEIGHTS])
    merged, means = np.empty((len(groups), coefficients.shape[1])), np.empty((len(groups), 3))
    for rule, group in enumerate(groups):  # rules, not rows: a few dozen per agent
        means[rule] = [math.fsum(column) / len(group) for column in numbers[group].T]
        weight = numbers[group, 0]
        if len(group) == 1:
            merged[rule] = coefficients[group[0]]
            continue
        if not weight.any():  # no agent's rule counts for more than another's
            weight = np.ones(len(group))
        total = math.fsum(weight)
        merged[rule] = [math.fsum(column) / total for column in (weight[:, None] * coefficients[group]).T]
    return TskRuleBase(antecedents, merged + 0.0, *means.T.copy())
