"""Rules with a polynomial for a consequent: their numbers, their lines in a document, and the model that they make."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.fuzzy.matching import WEIGHTS, ReadsRules, WeighedLine, linear_rule
from glassfleet.fuzzy.partition import BinaryTree
from glassfleet.model.explanation import RUNNERS_UP, Activation, Explanation
from glassfleet.model.rules import Condition, Rule
from glassfleet.model.tables import Conditions, RuleTables, lines
from glassfleet.numerics.statistics import blocks, rule_weight
from schemas.errors import DocumentError

Array = NDArray[np.float64]
T = TypeVar("T", bound=BinaryTree[Any])
Span = TypeVar("Span")
"""Where the rows of a leaf may be on one input."""

_ROW_BLOCK = 1 << 13
_ROUNDING = 1e-12


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


class RuleLine(WeighedLine):
    """A rule in a document; coefficients by input name."""

    coefficients: dict[str, float]
    intercept: float


def write_rules(rules: LinearRules, domain: Domain) -> list[dict[str, Any]]:
    """Return the rules as a document has them; coefficients of zero are left out."""
    return [
        {
            "coefficients": {
                name: float(value) for name, value in zip(domain.input_names, row[1:], strict=True) if value != 0.0
            },
            "intercept": float(row[0]),
            **{name: float(getattr(rules, name)[line]) for name in WEIGHTS},
        }
        for line, row in enumerate(rules.coefficients)
    ]


def read_rules(lines: Sequence[RuleLine], leaves: int, domain: Domain) -> LinearRules:
    """Read a document's rules; raises DocumentError unless they are one for each of so many leaves of the domain."""
    if len(lines) != leaves:
        raise DocumentError(f"{len(lines)} rules for {leaves} leaves")
    place = {name: index for index, name in enumerate(domain.input_names)}
    coefficients = np.zeros((len(lines), len(place) + 1))
    for line, rule in enumerate(lines):
        coefficients[line, 0] = rule.intercept
        for name, value in rule.coefficients.items():
            if name not in place:
                raise DocumentError(f"rule {line} has a coefficient of {name!r}, which the domain lacks")
            coefficients[line, place[name] + 1] = value
    weights = (np.array([getattr(rule, name) for rule in lines], dtype=np.float64) for name in WEIGHTS)
    return LinearRules(coefficients, *weights)


class LinearTreeModel(ReadsRules, Generic[T, Span]):
    """A finished tree with linear models in each leaf: what one for a number and one for classes share.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs, target or classes, and their limits.
    tree : SplitTree
        The splits.
    rules : LinearRules or ScoreRules
        One line per leaf of `tree`, in its order: depth first, lower sides first.
    levels : tuple of tuple of float
        Of each input's categories; see :mod:`glassfleet.fuzzy.levels`. May be empty where all inputs are numbers.
    """

    def __init__(self, parameters: Any, domain: Domain, tree: T, rules: Any, levels: Levels = ()) -> None:
        self.parameters = parameters
        self.domain = domain
        self.tree = tree
        self.base = rules
        self.levels = levels

    # --- what each tree says of itself ------------------------------------------------------------------------------

    @abstractmethod
    def strengths(self, scaled: Array) -> Array:
        """Return the degree to which rows `scaled`, shape (F, n), reach each leaf, shape (L, n)."""

    def weights(self, scaled: Array) -> Array:
        """Return by how much each leaf's output counts, shape (L, n); for each row they add up to one."""
        return self.strengths(scaled)

    @abstractmethod
    def spans(self, leaf: int) -> dict[int, Span]:
        """Return the spans that lead to a node, by input, in the order in which inputs first appear on the path."""

    @abstractmethod
    def condition(self, feature: int, span: Span) -> Condition:
        """Return that an input is in a span."""

    @abstractmethod
    def membership(self, feature: int, value: float, span: Span) -> float:
        """Return the degree of a scaled value of an input in a span, in [0, 1]."""

    # --- what all do ------------------------------------------------------------------------------------------------

    def deciding(self, X: Array) -> NDArray[np.intp]:
        """Return the leaf whose output counts most for each of the rows `X`, shape (n,); see `explain`."""
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0], dtype=np.intp)
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = self.scaled_rows(X[block])
            weights = self.weights(scaled)
            most = weights == weights.max(axis=0)
            result[block] = np.where(most, self.strengths(scaled), -1.0).argmax(axis=0)
        return result

    def scaled_rows(self, X: Array) -> Array:
        """Return rows in own units, shape (n, F), as inputs in [0, 1], those of excess a little more, shape (F, n)."""
        return scaled_inputs(self.domain, self.levels, X)

    @cached_property
    def leaf_spans(self) -> list[dict[int, Span]]:
        """Spans of each leaf."""
        return [self.spans(leaf) for leaf in self.tree.leaves]

    def fired(self, scaled: Array, strength: Sequence[float], weight: Sequence[float]) -> list[Activation]:
        """Return the rules that fire for a scaled row, shape (F,): those whose outputs count most first."""
        order = sorted(range(len(strength)), key=lambda rule: (-weight[rule], -strength[rule], rule))
        return [
            Activation(
                self.rules()[rule],
                strength[rule],
                tuple(self.membership(f, float(scaled[f]), span) for f, span in self.leaf_spans[rule].items()),
            )
            for rule in order[: RUNNERS_UP + 1]
            if rule == order[0] or strength[rule] > 0.0
        ]

    def _size(self) -> int:
        return len(self.leaf_spans)

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (the root not counted), leaves, depth, conditions, and parameters.

        Parameters: splits below the root and all coefficients that are not zero, as C_FRT counts them (Eq. 31 of the
        FRT paper).
        """
        return tree_complexity(self.tree, sum(map(len, self.leaf_spans)), self.base.coefficients)


class LinearTree(LinearTreeModel[T, Span]):
    """A finished tree with a linear model in each leaf: the leaves' outputs, weighted, are its forecast."""

    def predict(self, X: Array) -> Array:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit.

        The result is clipped to the target's limits; what lies beyond the limits of inputs is added to that.
        """
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0])
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = self.scaled_rows(X[block])
            result[block] = self._clipped(*self._raw(scaled, self.weights(scaled)))
        return result

    def _raw(self, scaled: Array, weights: Array) -> tuple[Array, Array]:
        """Return what rules say of scaled rows, shape (F, n), with the leaves' weights, shape (L, n): not clipped.

        Both of shape (n,): what they say of the inputs within their limits, and what excess adds.
        """
        plain = scaled.shape[0] - len(self.domain.excess)
        within, beyond = np.zeros(scaled.shape[1]), np.zeros(scaled.shape[1])
        far = np.flatnonzero((scaled[plain:] > 0.0).any(axis=0))
        for leaf in np.flatnonzero(weights.any(axis=1)):  # of a single row few leaves say something
            weight, coefficients = weights[leaf], self.base.coefficients[leaf]
            within += weight * outputs_of(coefficients[: plain + 1], scaled[:plain])
            if far.size:
                beyond[far] += weight[far] * outputs_of(np.append(0.0, coefficients[plain + 1 :]), scaled[plain:, far])
        return within, beyond

    def _clipped(self, within: Array, beyond: Array) -> Array:
        """Return forecasts in the target's unit: within its limits, but for what excess adds."""
        return self.domain.unscale_target(np.minimum(np.maximum(within, 0.0), 1.0) + beyond)

    def explain(self, x: Array) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        Where the forecast is clipped to the target's limits, the difference is part of `base`, and `clipped_from` and
        a note tell what the rules say.
        """
        scaled = self.scaled_rows(self.domain.check_rows(np.asarray(x, dtype=np.float64).reshape(1, -1)))
        weights = self.weights(scaled)
        strength, weight = self.strengths(scaled)[:, 0].tolist(), weights[:, 0].tolist()
        within, beyond = self._raw(scaled, weights)
        prediction = float(self._clipped(within, beyond)[0])
        unclipped = float(self.domain.unscale_target(within + beyond)[0])
        target = self.domain.target
        assert target is not None
        width = target.high - target.low
        shares = np.zeros(len(scaled))
        for part, coefficients in zip(weight, self.base.coefficients, strict=True):
            shares += part * width * coefficients[1:] * scaled[:, 0]
        fired = self.fired(scaled[:, 0], strength, weight)
        # A last digit beyond the limit is rounding, not something the rules say.
        clipped = abs(unclipped - prediction) > _ROUNDING * width
        alone = sum(part > 0.0 for part in weight) == 1
        return Explanation(
            prediction=prediction,
            fired=fired[0],
            runners_up=tuple(fired[1:]),
            shares=dict(zip(self.domain.names, self.domain.by_feature(shares).tolist(), strict=True)),
            base=prediction - float(shares.sum()),
            clipped_from=unclipped if clipped else None,
            notes=(
                *([_clipped_note(self.domain, unclipped, prediction, alone=alone)] if clipped else []),
                *_unseen_notes(self.domain, scaled[:, 0]),
            ),
        )

    def _rule(self, index: int) -> Rule:
        conditions = tuple(self.condition(f, span) for f, span in self.leaf_spans[index].items())
        line = self.base.coefficients[index]
        return linear_rule(self.domain, index, self.base, conditions, line[0], line[1:], self.forecasts.get(index))

    def tables_over(self, conditions: Conditions, *, alone: bool = False) -> RuleTables:
        """Return the model as plain tables; one rule answers `alone`, or all, whose strengths add up to one."""
        lines_of = self.base.coefficients
        return RuleTables(
            evaluator="maximum_matching" if alone else "weighted_mean",
            conditions=conditions,
            # Of two leaves that fire alike, the first is named.
            weights=(1.0,) * len(lines_of),
            constants=tuple(lines_of[:, 0].tolist()),
            slopes=lines((lines_of[:, 1:] + 0.0).tolist()),
            partition=True,
            clipped=True,
            levels=self.levels,
        )


def tree_complexity(tree: BinaryTree[Any], conditions: int, coefficients: Array) -> Mapping[str, int | float]:
    """Return the measures of a tree whose leaves have polynomials, shape (leaves, .., F + 1), intercepts first.

    An intercept counts whether it is zero or not, a slope only where it is not zero.
    """
    splits = len(tree.splits)
    used = int(np.count_nonzero(coefficients[..., 1:])) + coefficients[..., 0].size
    return {
        "nodes": tree.size - 1,
        "leaves": splits + 1,
        "depth": tree.depth,
        "conditions": conditions,
        "parameters": max(splits - 1, 0) + used,
    }


def _unseen_notes(domain: Domain, scaled: Array) -> list[str]:
    """Say which inputs of a row, shape (F,), are further out than the fleet has seen: lines go on there."""
    notes = []
    for own, value in zip(domain.excess, scaled[len(scaled) - len(domain.excess) :].tolist(), strict=True):
        if value > 1.0:
            end = own.of.lowest if own.side == "below" else own.of.highest
            notes.append(f"{own.of.name} is {own.side} all that the fleet has seen, {own.of.text(end or 0.0)}")
    return notes


def _clipped_note(domain: Domain, unclipped: float, prediction: float, *, alone: bool) -> str:
    """Say that the rules, or one `alone`, give `unclipped`, beyond the limit of the target that the forecast is."""
    target = domain.target
    assert target is not None
    unit = f" {target.unit}" if target.unit else ""
    limit = "lower" if unclipped < prediction else "upper"
    return (
        f"{'the rule says' if alone else 'the rules together say'} {unclipped:.6g}{unit}; clipped to the target's "
        f"{limit} limit, {prediction:.6g}{unit}"
    )
