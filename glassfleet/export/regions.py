"""Where each rule of a model holds, input by input, from its tables: for formats that state shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from glassfleet.data.domain import Domain, Variable
from glassfleet.fuzzy.partition import Span
from glassfleet.model.tables import Conditions, RampTree, RuleList, SetTree, SplitTree, knots_of


@dataclass(frozen=True)
class Shape:
    """A set of values of an input, in its own unit.

    Attributes
    ----------
    kind : {"triangular", "trapezoid", "rectangular"}
    points : tuple of float
        Ascending: three, four or two of them. A rectangular shape holds from the first to the last, both included.
    """

    kind: str
    points: tuple[float, ...]


Region = dict[int, Shape]
"""The shapes of a rule's conditions by input; inputs without a condition are left out."""


_Spans = list[dict[int, tuple[int, int]]]
"""The first and the last set that each rule's conditions allow, by input."""


def regions(domain: Domain, conditions: Conditions) -> list[Region]:
    """Return each rule's region, in the order of the model's rules."""
    features = domain.inputs
    match conditions:
        case SplitTree():
            return [
                {f: _interval(features[f], low, high) for f, (low, high) in limits.items()}
                for limits in _limits(conditions)
            ]
        case RampTree():
            return [
                {f: _trapezoid(features[f], *span) for f, span in bounds.items()} for bounds in _ramp_spans(conditions)
            ]
        case SetTree():
            spans = _tree_spans(conditions)
        case RuleList(none, rules):
            spans = [{f: (j, j) for f, j in enumerate(sets) if j != none} for sets in rules]
    knots = knots_of(conditions, len(features))
    return [{f: shape_of(features[f], knots[f], *sets) for f, sets in span.items()} for span in spans]


def shape_of(variable: Variable, knots: Sequence[float], first: int, last: int) -> Shape:
    """Return the union of the sets `first` .. `last` of a partition."""
    below = None if first == 0 else (knots[first - 1], knots[first])
    return _trapezoid(variable, below, None if last == len(knots) - 1 else (knots[last], knots[last + 1]))


def _trapezoid(variable: Variable, below: tuple[float, float] | None, above: tuple[float, float] | None) -> Shape:
    """Return where values come in by the ramp `below` and go out by the ramp `above`, over the scaled range.

    A shoulder goes on beyond the domain, where the model takes the nearest limit, and ends two ranges away.
    """
    width = (variable.high - variable.low) or 1.0

    def at(scaled: float) -> float:
        return variable.low + scaled * (variable.high - variable.low)

    a, b = (variable.low - 2.0 * width, variable.low - width) if below is None else map(at, below)
    c, d = (variable.high + width, variable.high + 2.0 * width) if above is None else map(at, above)
    return Shape("triangular", (a, b, d)) if b == c else Shape("trapezoid", (a, b, c, d))


def _interval(variable: Variable, low: float, high: float) -> Shape:
    """Return the values above `low`, up to `high`; an open end ends two ranges beyond the domain."""
    width = (variable.high - variable.low) or 1.0
    begin = min(variable.low, high) - 2.0 * width if math.isinf(low) else math.nextafter(low, math.inf)
    end = max(variable.high, low) + 2.0 * width if math.isinf(high) else high
    return Shape("rectangular", (begin, end))


def _tree_spans(tree: SetTree) -> _Spans:
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    stack: list[tuple[int, dict[int, tuple[int, int]]]] = [(0, {})]
    while stack:
        node, span = stack.pop()
        if tree.rule[node] >= 0:
            spans[tree.rule[node]] = span
        for j, child in enumerate(tree.child[node]):
            if child >= 0:
                stack.append((child, {**span, tree.feature[node]: (j, j)}))
    return [spans[rule] for rule in sorted(spans)]


def _ramp_spans(tree: RampTree) -> list[dict[int, Span]]:
    spans: dict[int, dict[int, Span]] = {0: {}}
    for index, ((node, feature), (begin, end)) in enumerate(zip(tree.splits, tree.ramps, strict=True)):
        below, above = spans[node].get(feature, (None, None))
        spans[2 * index + 1] = {**spans[node], feature: (below, (begin, end))}
        spans[2 * index + 2] = {**spans[node], feature: ((begin, end), above)}
    return [spans[leaf] for leaf in tree.leaves]


def _limits(tree: SplitTree) -> list[dict[int, tuple[float, float]]]:
    limits: dict[int, dict[int, tuple[float, float]]] = {}
    stack: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while stack:
        node, above = stack.pop()
        feature = tree.feature[node]
        if feature < 0:
            limits[tree.rule[node]] = above
            continue
        low, high = above.get(feature, (-math.inf, math.inf))
        threshold = tree.threshold[node]
        stack.append((node + 1, {**above, feature: (low, min(high, threshold))}))
        stack.append((tree.right[node], {**above, feature: (max(low, threshold), high)}))
    return [limits[rule] for rule in sorted(limits)]


def is_ordered(shape: Shape) -> bool:
    """Return whether a shape's points are in order (an empty interval's are not)."""
    return all(a <= b for a, b in pairwise(shape.points))
