"""Strengths of the rules of a binary tree of ramps."""

from glassfleet.export.device.common import Fired, Values


def fire(m: Values, row: list[float], z: list[float]) -> Fired:  # noqa: ARG001 - alike in all trees and lists
    """Return the rules that fire, each with its strength."""
    degree = [1.0] + [0.0] * (2 * len(m["splits"]))
    for index, ((node, feature), (begin, end)) in enumerate(zip(m["splits"], m["ramps"], strict=True)):
        low = min(max((end - z[feature]) / (end - begin), 0.0), 1.0)
        degree[2 * index + 1] = degree[node] * low
        degree[2 * index + 2] = degree[node] * (1.0 - low)
    return [(rule, degree[leaf]) for rule, leaf in enumerate(m["leaves"]) if degree[leaf] > 0.0]
