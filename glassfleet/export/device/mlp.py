"""Engine of multilayer perceptrons."""

from glassfleet.export.device.common import Tables, scaled, unscaled


def answer(m: Tables, row: list[float]) -> tuple[float, int]:
    """Return the forecast or class number, and 0: a network has no rules that could have a number."""
    given = [2.0 * value - 1.0 for value in scaled(m, row)]
    for number, (weights, biases) in enumerate(m["layers"]):
        total = list(biases)
        for value, line in zip(given, weights, strict=True):
            total = [above + value * weight for above, weight in zip(total, line, strict=True)]
        given = total if number == len(m["layers"]) - 1 else [max(value, 0.0) for value in total]
    if m["classes"]:
        return given.index(max(given)), 0
    return unscaled(m, given[0]), 0
