"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.fuzzy.matching import ReadsRules, linear_rule, linear_score
from glassfleet.fuzzy.partition import Span, ramp_condition, span_degree
from glassfleet.model.explanation import RUNNERS_UP, Activation, Chance, Explanation
from glassfleet.model.rules import Condition, Consequent, Rule
from glassfleet.model.tables import RampTree, RuleTables, lines
from glassfleet.numerics.softmax import all_scores, probabilities
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.tree.rules import (
    LinearRules,
    ScoreRules,
    outputs_of,
    read_document,
    write_document,
)
from glassfleet.schemes.tree.tree import Tree, degrees

Array = NDArray[np.float64]

_ROW_BLOCK = 1 << 13
_ROUNDING = 1e-12


class _RampTree(ReadsRules):
    """A finished tree of ramps with linear models in each leaf; all rules that fire are blended by their degrees.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs, target or classes, and their limits.
    tree : Tree
        The splits.
    rules : LinearRules or ScoreRules
        One line per leaf of `tree`, in its order: depth first, lower sides first.
    levels : tuple of tuple of float
        Of each input's categories; see :mod:`glassfleet.fuzzy.levels`. May be empty where all inputs are numbers.
    """

    scheme = "tree"

    def __init__(self, parameters: Any, domain: Domain, tree: Tree, rules: Any, levels: Levels = ()) -> None:
        self.parameters = parameters
        self.domain = domain
        self.tree = tree
        self.base = rules
        self.levels = levels

    def strengths(self, scaled: Array) -> Array:
        """Return the degree to which rows `scaled`, shape (F, n), reach each leaf, shape (L, n); they add up to one."""
        reached = degrees(self.tree, scaled)
        return np.stack([reached[leaf] for leaf in self.tree.leaves])

    def deciding(self, X: Array) -> NDArray[np.intp]:
        """Return the leaf whose output counts most for each of the rows `X`, shape (n,); see `explain`."""
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0], dtype=np.intp)
        for block in blocks(X.shape[0], _ROW_BLOCK):
            result[block] = self.strengths(self.scaled_rows(X[block])).argmax(axis=0)
        return result

    def scaled_rows(self, X: Array) -> Array:
        """Return rows in own units, shape (n, F), as inputs in [0, 1], those of excess a little more, shape (F, n)."""
        return scaled_inputs(self.domain, self.levels, X)

    @cached_property
    def leaf_spans(self) -> list[dict[int, Span]]:
        """Of each leaf the innermost ramps that bound it, by input."""
        return [self.tree.spans(leaf) for leaf in self.tree.leaves]

    def conditions_of(self, rule: int) -> tuple[Condition, ...]:
        """Return that inputs are between two ramps, or each one of the categories there."""
        return tuple(
            ramp_condition(self.domain.inputs[f], *span, self.levels[f] if self.levels else ())
            for f, span in self.leaf_spans[rule].items()
        )

    def fired(self, scaled: Array, strength: Sequence[float]) -> list[Activation]:
        """Return the rules that fire for a scaled row, shape (F,): those whose outputs count most first."""
        order = sorted(range(len(strength)), key=lambda rule: (-strength[rule], rule))
        return [
            Activation(
                self.rules()[rule],
                strength[rule],
                tuple(span_degree(float(scaled[f]), span) for f, span in self.leaf_spans[rule].items()),
            )
            for rule in order[: RUNNERS_UP + 1]
            if rule == order[0] or strength[rule] > 0.0
        ]

    def _size(self) -> int:
        return len(self.leaf_spans)

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (the root not counted), leaves, depth, conditions, and parameters.

        Parameters: splits below the root, all intercepts, and slopes that are not zero, as C_FRT counts them (Eq. 31
        of the FRT paper).
        """
        splits, coefficients = len(self.tree.splits), self.base.coefficients
        used = int(np.count_nonzero(coefficients[..., 1:])) + coefficients[..., 0].size
        return {
            "nodes": self.tree.size - 1,
            "leaves": splits + 1,
            "depth": self.tree.depth,
            "conditions": sum(map(len, self.leaf_spans)),
            "parameters": max(splits - 1, 0) + used,
        }

    def conditions(self) -> RampTree:
        """Return when which rule fires, for exports."""
        splits = self.tree.splits
        places, ramps = [(split.node, split.feature) for split in splits], [(split.low, split.high) for split in splits]
        return RampTree(tuple(places), tuple(ramps), tuple(self.tree.leaves))

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.tree, self.base, self.levels)


class FuzzyTree(_RampTree):
    """A tree of ramps with a linear model of a number in each leaf: the leaves' outputs, weighted, are its forecast."""

    base: LinearRules

    def predict(self, X: Array) -> Array:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit.

        The result is clipped to the target's limits; what lies beyond the limits of inputs is added to that.
        """
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0])
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = self.scaled_rows(X[block])
            result[block] = self._clipped(*self._raw(scaled, self.strengths(scaled)))
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
        weights = self.strengths(scaled)
        strength = weights[:, 0].tolist()
        within, beyond = self._raw(scaled, weights)
        prediction = float(self._clipped(within, beyond)[0])
        unclipped = float(self.domain.unscale_target(within + beyond)[0])
        target = self.domain.target
        assert target is not None
        width = target.high - target.low
        shares = np.zeros(len(scaled))
        for part, coefficients in zip(strength, self.base.coefficients, strict=True):
            shares += part * width * coefficients[1:] * scaled[:, 0]
        fired = self.fired(scaled[:, 0], strength)
        # A last digit beyond the limit is rounding, not something the rules say.
        clipped = abs(unclipped - prediction) > _ROUNDING * width
        alone = sum(part > 0.0 for part in strength) == 1
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
        line, conditions = self.base.coefficients[index], self.conditions_of(index)
        return linear_rule(self.domain, index, self.base, conditions, line[0], line[1:], self.forecasts.get(index))

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports."""
        lines_of = self.base.coefficients
        return RuleTables(
            evaluator="weighted_mean",
            conditions=self.conditions(),
            # Of two leaves that fire alike, the first is named.
            weights=(1.0,) * len(lines_of),
            constants=tuple(lines_of[:, 0].tolist()),
            slopes=lines((lines_of[:, 1:] + 0.0).tolist()),
            partition=True,
            clipped=True,
            levels=self.levels,
        )


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


class FuzzyClassTree(_RampTree):
    """A tree of ramps with scores of classes in each leaf: of the leaves' scores, weighted, the highest answers."""

    base: ScoreRules

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
            for weight, own in zip(self.strengths(scaled), self.base.coefficients, strict=True):
                for score, line in enumerate(own):
                    result[score, block] += weight * outputs_of(line, scaled)
        return result

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
        fired = self.fired(scaled[:, 0], strength)
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
        conditions = self.conditions_of(index)
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

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; of the blended scores the highest answers."""
        rules = self.base
        return RuleTables(
            evaluator="highest_score",
            conditions=self.conditions(),
            # Of two leaves that fire alike, the first is named.
            weights=(1.0,) * len(self.tree.leaves),
            constants=tuple(rules.coefficients[:, :, 0].ravel().tolist()),
            slopes=lines(rules.coefficients[:, :, 1:].reshape(rules.coefficients[:, :, 0].size, -1).tolist()),
            votes=tuple(rules.classes.tolist()),
            partition=True,
            levels=self.levels,
        )


def from_document(document: Mapping[str, Any]) -> FuzzyTree | FuzzyClassTree:
    """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
    parameters, domain, tree, rules, levels = read_document(document)
    kind = FuzzyClassTree if domain.classes else FuzzyTree
    return kind(parameters, domain, tree, rules, levels)


def tables(model: FuzzyTree | FuzzyClassTree) -> RuleTables:
    """Return a model as plain tables, for exports."""
    return model.tables()
