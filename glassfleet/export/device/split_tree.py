"""The one rule of a binary tree of thresholds that holds for a row."""

from glassfleet.export.device.common import Fired, Values


def fire(m: Values, row: list[float], z: list[float]) -> Fired:  # noqa: ARG001 - alike in all trees and lists
    """Return the rule of the row's leaf, with strength 1."""
    node = 0
    while m["feature"][node] >= 0:
        node = node + 1 if row[m["feature"][node]] <= m["threshold"][node] else m["right"][node]
    return [(m["rule"][node], 1.0)]
