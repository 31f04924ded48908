"""Engine of fuzzy rule-based classifiers."""

from glassfleet.export.device.common import Tables, memberships, scaled


def answer(m: Tables, row: list[float]) -> tuple[int, int]:
    """Return the class number and the rule that decided."""
    lower, upper = memberships(scaled(m, row), m["n_sets"])
    rule, best = m["default"], -1.0
    for number, sets in enumerate(m["sets"]):
        strength = 1.0
        for feature, fuzzy_set in enumerate(sets):
            side = fuzzy_set - lower[feature]
            strength = strength * ((1.0 - upper[feature]) if side == 0 else upper[feature] if side == 1 else 0.0)
            if not strength > 0.0:
                break
        else:
            value = strength * m["weight"][number] if m["weighted"] else strength
            if value > best or (value == best and m["rank"][number] < m["rank"][rule]):
                rule, best = number, value
    return m["class"][rule], rule
