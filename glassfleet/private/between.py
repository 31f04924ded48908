"""Whom to add up so that no two private runs over the same rows differ by few vehicles.

A vehicle speaks in no set that differs from one of its earlier ones, over rows that it still has, by fewer than
`company` vehicles, in either direction, see :func:`glassfleet.private.chain.follow`. So a fleet that has changed by one
or two vehicles would learn no more. Here a coordinator, who knows the earlier sets, leaves out a few more until the
rule holds: a new vehicle waits for others, and where one is missing, others are left out with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Held: TypeAlias = Mapping[str, Collection[frozenset[str]]]
"""By vehicle: the sets in which it answered before, over rows that it still has."""

WAITS = "waits for company"
"""What the reason of a new vehicle begins with that is left out."""

COMPANY = "company"
"""What the reason of a vehicle begins with that goes with others."""


@dataclass(frozen=True)
class Apart:
    """Who is left out.

    Attributes
    ----------
    reasons : Mapping of str to str
        Why, by vehicle.
    missing : frozenset of str
        Vehicles of earlier runs that are not there: if they were, fewer would be left out.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


def apart(members: Collection[str], held: Held, company: int, order: Sequence[str]) -> Apart:
    """Return who of `members` must be left out so that each of the others may answer.

    New vehicles go first, as nothing else helps them. Then, for the smallest earlier set first, as many others as make
    the vehicles that it has more at least `company`: so a fleet that has shrunk stays what it was the last time. Not
    always the fewest; it is a function of its arguments.

    Parameters
    ----------
    members : collection of str
        Who would be added up.
    held : Held
        Those who are not in it have no earlier sets.
    company : int
        At least 1.
    order : sequence of str
        All of `members`: who is left out first.
    """
    left, reasons, missing = set(members), dict[str, str](), set[str]()
    while True:
        sets = sorted(
            {each for agent in left for each in held.get(agent, ())}, key=lambda each: (len(each), sorted(each))
        )
        few = next((new for each in sets if 0 < len(new := left - each) < company), None)
        if few is not None:
            more = company - len(few)
            come = f"{more} more new vehicles come" if more > 1 else "one more new vehicle comes"
            reasons |= dict.fromkeys(few, f"{WAITS}: it joins when {come}")
            left -= few
            continue
        lacking = next((each for each in sets if 0 < len(each - left) < company), None)
        if lacking is None:
            return Apart(dict(sorted(reasons.items())), frozenset(missing))
        gone = lacking - left
        missing |= gone - set(members)
        with_them = [agent for agent in order if agent in left and agent in lacking][: company - len(gone)]
        names = ", ".join(sorted(gone - set(members))) or "others"
        why = f"{COMPANY}: an earlier run over the same rows had {names}, too, and nobody leaves alone"
        reasons |= dict.fromkeys(with_them, why)
        left -= set(with_them)
