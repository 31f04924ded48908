"""Evaluator "maximum_matching": the strongest rule answers."""

from glassfleet.export.device.common import Fired, Values, beyond, linked, polynomial, strongest


def answer(m: Values, z: list[float], fired: Fired) -> tuple[float, int]:
    """Return the forecast and the rule that decided."""
    rule = strongest(m, fired)
    return linked(m, polynomial(m, rule, z), beyond(m, rule, z)), rule
