"""Evaluator "network": a perceptron of rectified units."""

from glassfleet.export.device.common import Values, linked


def answer(m: Values, z: list[float]) -> tuple[float, int]:
    """Return the forecast or class number, and 0: a network has no rules that could have a number."""
    given, at = [2.0 * value - 1.0 for value in z], 0
    for layer, below in enumerate(m["units"][1:]):
        above = len(given)
        total = list(m["parameters"][at + above * below : at + (above + 1) * below])
        for i, value in enumerate(given):
            for j in range(below):
                total[j] = total[j] + value * m["parameters"][at + i * below + j]
        at += (above + 1) * below
        given = total if layer + 2 == len(m["units"]) else [max(value, 0.0) for value in total]
    if m["classes"]:
        return given.index(max(given)), 0
    return linked(m, given[0]), 0
