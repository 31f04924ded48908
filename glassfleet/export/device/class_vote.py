"""Evaluator "class_vote": the strongest rule's class answers."""

from glassfleet.export.device.common import Fired, Values, strongest


def answer(m: Values, z: list[float], fired: Fired) -> tuple[float, int]:  # noqa: ARG001 - alike in all evaluators
    """Return the class number and the rule that decided."""
    rule = strongest(m, fired)
    return m["votes"][rule], rule
