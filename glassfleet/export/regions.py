"""Where each rule of a model holds, input by input, from the engines' tables: for formats that state shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from glassfleet.explain.partitions import knots_of
from glassfleet.export.device.common import Tables

if TYPE_CHECKING:
    from glassfleet.data.domain import Variable
    from glassfleet.scheme import Model


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


def regions(model: Model, engine: str, found: Tables) -> list[Region]:
    """Return each rule's region, in the order of the model's rules."""
    features = model.domain.features
    if engine == "tree":
        return [
            {f: _interval(features[f], low, high) for f, (low, high) in limits.items()} for limits in _limits(found)
        ]
    knots = knots_of(model.to_document(), len(features)) or []
    crisp = engine == "fmt" and not found["averaged"]
    spans = {"frt": _frt, "fmt": _fmt}.get(engine, _named)(found)
    return [
        {
            f: (_side if crisp else shape_of)(features[f], list(knots[f]), first, last)
            for f, (first, last) in span.items()
        }
        for span in spans
    ]


def shape_of(variable: Variable, knots: list[float], first: int, last: int) -> Shape:
    """Return the union of the sets `first` .. `last` of a partition.

    A shoulder goes on beyond the domain, where the model takes the nearest limit, and ends two ranges away.
    """
    width = (variable.high - variable.low) or 1.0
    peaks = [variable.low + knot * (variable.high - variable.low) for knot in knots]
    left, right = first == 0, last == len(knots) - 1
    a = variable.low - 2.0 * width if left else peaks[first - 1]
    b = variable.low - width if left else peaks[first]
    c = variable.high + width if right else peaks[last]
    d = variable.high + 2.0 * width if right else peaks[last + 1]
    return Shape("triangular", (a, b, d)) if b == c else Shape("trapezoid", (a, b, c, d))


def _side(variable: Variable, knots: list[float], first: int, last: int) -> Shape:
    """Return where a row is on the side of the sets `first` .. `last` at every cut: from half to half."""

    def middle(j: int) -> float:
        return variable.low + 0.5 * (knots[j] + knots[j + 1]) * (variable.high - variable.low)

    low = -math.inf if first == 0 else middle(first - 1)
    return _interval(variable, low, math.inf if last == len(knots) - 1 else middle(last))


def _interval(variable: Variable, low: float, high: float) -> Shape:
    """Return the values above `low`, up to `high`; an open end ends two ranges beyond the domain."""
    width = (variable.high - variable.low) or 1.0
    begin = min(variable.low, high) - 2.0 * width if math.isinf(low) else math.nextafter(low, math.inf)
    end = max(variable.high, low) + 2.0 * width if math.isinf(high) else high
    return Shape("rectangular", (begin, end))


def _named(found: Tables) -> list[dict[int, tuple[int, int]]]:
    none = found["n_sets"]
    return [{f: (j, j) for f, j in enumerate(sets) if j != none} for sets in found["sets"]]


def _frt(found: Tables) -> list[dict[int, tuple[int, int]]]:
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    stack: list[tuple[int, dict[int, tuple[int, int]]]] = [(0, {})]
    while stack:
        node, span = stack.pop()
        if found["rule_of"][node] >= 0:
            spans[found["rule_of"][node]] = span
        for j, child in enumerate(found["child"][node]):
            if child >= 0:
                stack.append((child, {**span, found["split"][node]: (j, j)}))
    return [spans[rule] for rule in sorted(spans)]


def _fmt(found: Tables) -> list[dict[int, tuple[int, int]]]:
    spans: dict[int, dict[int, tuple[int, int]]] = {0: {}}
    for index, (node, feature, cut) in enumerate(found["splits"]):
        first, last = spans[node].get(feature, (0, len(found["knots"][feature]) - 1))
        spans[2 * index + 1] = {**spans[node], feature: (first, cut)}
        spans[2 * index + 2] = {**spans[node], feature: (cut + 1, last)}
    return [spans[leaf] for leaf in found["leaves"]]


def _limits(found: Tables) -> list[dict[int, tuple[float, float]]]:
    limits: dict[int, dict[int, tuple[float, float]]] = {}
    stack: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while stack:
        node, above = stack.pop()
        feature = found["feature"][node]
        if feature < 0:
            limits[found["rule_of"][node]] = above
            continue
        low, high = above.get(feature, (-math.inf, math.inf))
        threshold = found["threshold"][node]
        stack.append((node + 1, {**above, feature: (low, min(high, threshold))}))
        stack.append((found["right"][node], {**above, feature: (max(low, threshold), high)}))
    return [limits[rule] for rule in sorted(limits)]


def is_ordered(shape: Shape) -> bool:
    """Return whether a shape's points are in order (an empty interval's are not)."""
    return all(a <= b for a, b in pairwise(shape.points))
