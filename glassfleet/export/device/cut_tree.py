"""Strengths of the rules of a binary tree of fuzzy cuts."""

from glassfleet.export.device.common import Fired, Values


def fire(m: Values, row: list[float], z: list[float]) -> Fired:  # noqa: ARG001 - alike in all trees and lists
    """Return the rules that fire, each with its strength."""
    position = []
    for value, knots in zip(z, m["knots"], strict=True):
        lower = 0
        while lower + 2 < len(knots) and value >= knots[lower + 1]:
            lower += 1
        position.append(float(lower) + (value - knots[lower]) / (knots[lower + 1] - knots[lower]))
    degree = [1.0] + [0.0] * (2 * len(m["splits"]))
    for index, (node, feature, cut) in enumerate(m["splits"]):
        low = min(max(float(cut) + 1.0 - position[feature], 0.0), 1.0)
        if m["crisp"]:
            low = 1.0 if low >= 0.5 else 0.0
        degree[2 * index + 1] = degree[node] * low
        degree[2 * index + 2] = degree[node] * (1.0 - low)
    return [(rule, degree[leaf]) for rule, leaf in enumerate(m["leaves"]) if degree[leaf] > 0.0]
