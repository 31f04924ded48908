"""Engine of first-order Takagi-Sugeno-Kang rule bases."""

from glassfleet.export.device.common import Tables, memberships, polynomial, scaled, unscaled


def answer(m: Tables, row: list[float]) -> tuple[float, int]:
    """Return the forecast and the rule that decided (averaging: the strongest)."""
    z = scaled(m, row)
    lower, upper = memberships(z, m["n_sets"])
    strengths = []
    for sets in m["sets"]:
        strength = 1.0
        for feature, fuzzy_set in enumerate(sets):
            side = fuzzy_set - lower[feature]
            strength = strength * ((1.0 - upper[feature]) if side == 0 else upper[feature] if side == 1 else 0.0)
        strengths.append(strength)
    rule, best = m["default"], 0.0
    for number, strength in enumerate(strengths):
        if strength > best or (strength == best and strength > 0.0 and m["rank"][number] < m["rank"][rule]):
            rule, best = number, strength
    if not m["averaged"] or not best > 0.0:
        return unscaled(m, polynomial(m["coefficients"][rule], z)), rule
    total = terms = 0.0
    for number, strength in enumerate(strengths):
        if strength != 0.0:
            weight = strength / best
            total = total + weight
            terms = terms + weight * polynomial(m["coefficients"][number], z)
    return unscaled(m, terms / total), rule
