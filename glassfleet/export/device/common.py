"""What the engines share: scaling, memberships, polynomials."""

import math
from typing import Any

Tables = dict[str, Any]


def scaled(m: Tables, row: list[float]) -> list[float]:
    """Map a row to [0, 1] per input: (x - low) / (high - low), clipped; a constant input becomes 0."""
    found = []
    for value, low, high in zip(row, m["low"], m["high"], strict=True):
        width = high - low
        found.append(min(max((value - low) / width, 0.0), 1.0) if width > 0 else 0.0)
    return found


def memberships(z: list[float], n_sets: int) -> tuple[list[int], list[float]]:
    """Return for each input the lower of the two sets that fire, and the membership in the upper one."""
    lower, upper = [], []
    for value in z:
        position = value * float(n_sets - 1)
        below = min(math.floor(position), n_sets - 2)
        lower.append(below)
        upper.append(position - float(below))
    return lower, upper


def polynomial(coefficients: list[float], z: list[float]) -> float:
    """Return intercept (last) plus coefficients times inputs, added in the order of inputs."""
    total: float = coefficients[-1]
    for coefficient, value in zip(coefficients, z, strict=False):
        total = total + coefficient * value
    return total


def unscaled(m: Tables, value: float) -> float:
    """Map a scaled output to the target's own unit."""
    low: float = m["target_low"]
    high: float = m["target_high"]
    return low + value * (high - low)
