"""Engine of crisp binary trees."""

from glassfleet.export.device.common import Tables


def answer(m: Tables, row: list[float]) -> tuple[float, int]:
    """Return the forecast or class number, and the leaf's rule."""
    node = 0
    while m["feature"][node] >= 0:
        node = node + 1 if row[m["feature"][node]] <= m["threshold"][node] else m["right"][node]
    return m["answer"][node], m["rule_of"][node]
