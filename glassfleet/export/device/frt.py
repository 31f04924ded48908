"""Engine of multi-way fuzzy regression trees."""

from glassfleet.export.device.common import Tables, memberships, polynomial, scaled, unscaled


def answer(m: Tables, row: list[float]) -> tuple[float, int]:
    """Return the forecast and the rule that decided (averaging: the strongest)."""
    z = scaled(m, row)
    lower, upper = memberships(z, m["n_sets"])
    level = [(0, 1.0)]
    leaves: list[tuple[int, float]] = []
    while level:
        inner: list[tuple[int, float]] = []
        for node, strength in level:
            (leaves if m["rule_of"][node] >= 0 else inner).append((node, strength))
        level = []
        for side in (0, 1):
            for node, strength in inner:
                feature = m["split"][node]
                degree = upper[feature] if side else 1.0 - upper[feature]
                child, reached = m["child"][node][lower[feature] + side], strength * degree
                if child >= 0 and reached > 0.0:
                    level.append((child, reached))
    fired = [(m["rule_of"][node], strength) for node, strength in leaves]
    rule, best = m["default"], 0.0
    for number, strength in fired:
        measure = strength if m["averaged"] else strength / m["mean_strength"][number]
        if measure > best or (measure == best and m["rank"][number] < m["rank"][rule]):
            rule, best = number, measure
    if not m["averaged"] or not fired:
        return unscaled(m, polynomial(m["coefficients"][rule], z)), rule
    total = terms = 0.0
    for number, strength in fired:
        total = total + strength
        terms = terms + strength * polynomial(m["coefficients"][number], z)
    return unscaled(m, terms / total), rule
