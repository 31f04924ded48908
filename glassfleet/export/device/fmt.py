"""Engine of fuzzy model trees: binary trees of fuzzy cuts."""

from glassfleet.export.device.common import Tables, polynomial, scaled, unscaled


def answer(m: Tables, row: list[float]) -> tuple[float, int]:
    """Return the forecast and the rule that decided (averaging: the strongest)."""
    z = scaled(m, row)
    position = []
    for value, knots in zip(z, m["knots"], strict=True):
        lower = 0
        while lower + 2 < len(knots) and value >= knots[lower + 1]:
            lower += 1
        position.append(float(lower) + (value - knots[lower]) / (knots[lower + 1] - knots[lower]))
    degree = [1.0] + [0.0] * (2 * len(m["splits"]))
    inside = [True] + [False] * (2 * len(m["splits"]))
    for index, (node, feature, cut) in enumerate(m["splits"]):
        low = min(max(float(cut) + 1.0 - position[feature], 0.0), 1.0)
        degree[2 * index + 1] = degree[node] * low
        degree[2 * index + 2] = degree[node] * (1.0 - low)
        inside[2 * index + 1] = inside[node] and low >= 0.5
        inside[2 * index + 2] = inside[node] and not low >= 0.5
    rule, total = 0, 0.0
    for number, leaf in enumerate(m["leaves"]):
        if m["averaged"]:
            total = total + degree[leaf] * polynomial(m["coefficients"][number], z)
            if degree[leaf] > degree[m["leaves"][rule]]:
                rule = number
        elif inside[leaf]:
            total, rule = polynomial(m["coefficients"][number], z), number
    return unscaled(m, min(max(total, 0.0), 1.0)), rule
