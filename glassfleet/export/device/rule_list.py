"""Strengths of rules that name one fuzzy set for each input."""

from glassfleet.export.device.common import Fired, Values, memberships


def fire(m: Values, row: list[float], z: list[float]) -> Fired:  # noqa: ARG001 - alike in all trees and lists
    """Return the rules that fire, each with its strength."""
    lower, upper = memberships(z, m["n_sets"])
    fired = []
    for rule, sets in enumerate(m["sets"]):
        strength = 1.0
        for feature, fuzzy_set in enumerate(sets):
            side = fuzzy_set - lower[feature]
            strength = strength * ((1.0 - upper[feature]) if side == 0 else upper[feature] if side == 1 else 0.0)
            if not strength > 0.0:
                break
        else:
            fired.append((rule, strength))
    return fired
