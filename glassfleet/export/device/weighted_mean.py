"""Evaluator "weighted_mean": the rules that fire are averaged by their strengths."""

from glassfleet.export.device.common import Fired, Values, beyond, linked, polynomial, strongest


def answer(m: Values, z: list[float], fired: Fired) -> tuple[float, int]:
    """Return the forecast and the strongest rule."""
    rule = strongest(m, fired)
    if not fired:
        return linked(m, polynomial(m, rule, z), beyond(m, rule, z)), rule
    scale = max(strength for _, strength in fired) if m["relative"] else 1.0
    total = terms = excess = 0.0
    for number, strength in fired:
        weight = strength / scale
        total = total + weight
        terms = terms + weight * polynomial(m, number, z)
        excess = excess + weight * beyond(m, number, z)
    if m["partition"]:
        total = 1.0
    return linked(m, terms / total, excess / total), rule
