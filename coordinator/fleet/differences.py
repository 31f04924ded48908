"""Vehicles whose columns differ from most others', by what their birth certificates say: before they learn together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from coordinator.engine import Offer

FEWEST: Final = 3
"""Of fewer vehicles nobody can say what most have."""


def differences(offers: Mapping[str, Offer]) -> Iterator[tuple[str, str]]:
    """Yield vehicles that differ from more than half of all, and in what.

    Parameters
    ----------
    offers : mapping of str to Offer
        Of the vehicles that are known, those that are down too.
    """
    counts = Counter(offer for offer in offers.values() if offer.features)
    if counts.total() < FEWEST:
        return
    most = _most(counts)
    words = {offer: text for offer in counts if (text := _differs(offer, most))}
    yield from ((agent, words[offer]) for agent, offer in offers.items() if offer in words)


def _most(counts: Counter[Offer]) -> Offer:
    """Return the offer that more than half of all make, part by part; a part on which they do not agree is empty."""
    half = counts.total() / 2
    targets, features, plans = Counter[str](), Counter[str](), Counter[str]()
    kinds: dict[str, Counter[str]] = {}
    for offer, count in counts.items():
        targets[offer.target] += count
        plans[offer.plan] += count
        features.update(dict.fromkeys(offer.features, count))
        for name, kind in offer.kind_of.items():
            kinds.setdefault(name, Counter())[kind] += count

    def agreed(votes: Counter[str]) -> str:
        (choice, number), *_ = votes.most_common(1)
        return choice if number > half else ""

    columns = tuple(sorted(name for name, number in features.items() if number > half))
    target = agreed(targets)
    of_columns = tuple(agreed(kinds[name]) if name in kinds else "" for name in (*columns, target))
    return Offer(frozenset(), columns, target, of_columns, (), agreed(plans))


def _differs(offer: Offer, most: Offer) -> str:
    if most.target and offer.target not in ("", most.target):
        return f"has the target {offer.target!r}, most have {most.target!r}"
    missing = sorted({*most.features} - {*offer.features, offer.target})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"has no column {missing[0]!r}{more}, which most have"
    if odd := offer.odd_in(most.kind_of):
        return odd
    if offer.far:
        return f"has a value in {offer.far[0]!r} that is far from all its others, and repeated: does it mean no value?"
    if most.plan and offer.plan != most.plan:
        return "has rows that were made by another plan than most" if offer.plan else "has rows that no plan made"
    return ""
