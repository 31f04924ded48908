"""Strengths of the rules of a tree with one child for each fuzzy set."""

from glassfleet.export.device.common import Fired, Values, memberships


def fire(m: Values, row: list[float], z: list[float]) -> Fired:  # noqa: ARG001 - alike in all trees and lists
    """Return the rules that fire, each with its strength."""
    lower, upper = memberships(z, m["n_sets"])
    level = [(0, 1.0)]
    fired = []
    while level:
        inner: list[tuple[int, float]] = []
        for node, strength in level:
            if m["rule"][node] >= 0:
                fired.append((m["rule"][node], strength))
            else:
                inner.append((node, strength))
        level = []
        for side in (0, 1):
            for node, strength in inner:
                feature = m["feature"][node]
                degree = upper[feature] if side else 1.0 - upper[feature]
                child, reached = m["child"][node][lower[feature] + side], strength * degree
                if child >= 0 and reached > 0.0:
                    level.append((child, reached))
    return fired
