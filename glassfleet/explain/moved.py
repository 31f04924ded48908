"""What has moved since a model was learned, in words: of the sums that later runs recorded of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glassfleet.data.domain import Domain
from glassfleet.evaluation.drift import COLUMNS, Moved, drifted


def moved(records: Iterable[tuple[str, Mapping[str, Any]]], digest: str, domain: Domain) -> list[str]:
    """Return a sentence for each rule and input that moved.

    Parameters
    ----------
    records : iterable of (str, mapping)
        When a later version was learned, ISO 8601, and the parameters of its record, oldest first.
    digest : str
        Of the model.
    domain : Domain
        Of the model.
    """
    later = [(created, each["drift"]) for created, each in records if each.get("drift", {}).get("of") == digest]
    if not later:
        return []
    rules = int(later[-1][1]["rules"])
    lines = rules + len(domain.features)
    nights = [(created, np.array(each["sums"], dtype=np.int64)) for created, each in later if each["rules"] == rules]
    nights = [(created, sums) for created, sums in nights if sums.shape == (lines, COLUMNS)]
    return [
        _sentence(each, rules, domain, nights[each.since][0]) for each in drifted([sums for _, sums in nights], rules)
    ]


def _sentence(moved: Moved, rules: int, domain: Domain, since: str) -> str:
    if moved.line < rules:
        share = abs(math.expm1(moved.change))
        name = f"rule {moved.line}: its error" if rules > 1 else "the error"
        what = f"{name} is {share:.0%} {'larger' if moved.change > 0 else 'smaller'}"
    else:
        name, way = domain.features[moved.line - rules].name, "higher" if moved.change > 0 else "lower"
        what = f"{name} is {way} by {abs(moved.change):.1f} standard deviations"
    where = f"on {moved.moved} of {moved.vehicles} vehicles" if moved.moved else f"over {moved.vehicles} vehicles"
    return f"{what} than when the model was learned, {where}, since {since[:10]}"
