"""What the evaluators share: scaling, memberships, polynomials, the strongest rule."""

import math
from typing import Any

Values = dict[str, Any]
Fired = list[tuple[int, float]]


def scaled(m: Values, row: list[float]) -> list[float]:
    """Map a row to [0, 1] per input: (x - low) / (high - low), clipped; a constant becomes 0, a text its level.

    An empty cell (NaN) is taken for a number of the model's. Behind the inputs stand what says that cells are empty,
    and how far values are beyond limits.
    """
    empty = [1.0 if math.isnan(row[gap]) else 0.0 for gap in m["gaps"]]
    row = list(row)
    for gap, value in zip(m["gaps"], m["taken_for"], strict=True):
        row[gap] = value if math.isnan(row[gap]) else row[gap]
    scaled = []
    for value, low, high, levels in zip(row, m["low"], m["high"], m["levels"], strict=True):
        if levels:
            known = 0.0 <= value <= len(levels) - 2 and value == math.floor(value)
            scaled.append(levels[int(value) + 1 if known else 0])
            continue
        width = high - low
        scaled.append(min(max((value - low) / width, 0.0), 1.0) if width > 0 else 0.0)
    far = [max(row[at] - limit if above else limit - row[at], 0.0) / most for at, above, limit, most in m["excess"]]
    return scaled + empty + [min(value, m["farthest"][0]) for value in far]


def memberships(z: list[float], n_sets: int) -> tuple[list[int], list[float]]:
    """Return for each input the lower of the two sets that fire, and the membership in the upper one."""
    lower, upper = [], []
    for value in z:
        position = value * float(n_sets - 1)
        below = min(math.floor(position), n_sets - 2)
        lower.append(below)
        upper.append(position - float(below))
    return lower, upper


def polynomial(m: Values, rule: int, z: list[float]) -> float:
    """Return a rule's constant plus its slopes times inputs within their limits, added in the order of inputs."""
    total: float = m["constants"][rule]
    slopes = m["slopes"][rule]
    for slope, value in zip(slopes[: len(slopes) - len(m["excess"])], z, strict=False):
        total = total + slope * value
    return total


def beyond(m: Values, rule: int, z: list[float]) -> float:
    """Return a rule's slopes times what is beyond limits, which comes last."""
    total, many = 0.0, len(m["excess"])
    for slope, value in zip(m["slopes"][rule][len(z) - many :], z[len(z) - many :], strict=False):
        total = total + slope * value
    return total


def linked(m: Values, output: float, excess: float = 0.0) -> float:
    """Map what the rules say to the own unit, within limits if the model keeps to them, and add what is beyond."""
    low: float = m["target"][0]
    high: float = m["target"][1]
    return low + ((min(max(output, 0.0), 1.0) if m["clipped"] else output) + excess) * (high - low)


def strongest(m: Values, fired: Fired) -> int:
    """Return the strongest rule, of equal ones the first by rank; the default when none fires."""
    winner: int = m["default"]
    best = -1.0
    for rule, strength in fired:
        measure = strength
        if m["divisors"]:
            measure = strength / m["divisors"][rule]
        if m["factors"]:
            measure = strength * m["factors"][rule]
        if measure > best or (measure == best and m["rank"][rule] < m["rank"][winner]):
            winner, best = rule, measure
    return winner
