"""Whom to add up so that totals of several private runs can be combined into nothing about few vehicles.

A vehicle answers in no total that could be combined with those that it knows into one about fewer than `company`
vehicles, and in none that lacks too many founders of one of these, see :mod:`glassfleet.private.totals`. So a fleet
that has changed by one or two vehicles would learn no more. Here a coordinator, who knows the earlier totals, leaves
out a few more until the rule holds: a new vehicle waits for others, and where one is missing, others go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field

from glassfleet.private.totals import Member, Total, lacking, patterns, singled_out

WAITS = "waits for company"
"""What the reason of a vehicle begins with that is left out until others are as it is."""

COMPANY = "company"
"""What the reason of a vehicle begins with that goes with others."""

GROUP = "waits for its group"
"""What the reason of a vehicle begins with that is left out until more of its earlier group are there."""


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


def apart(
    members: Mapping[str, Member],
    known: Callable[[Collection[str]], Sequence[Total]],
    company: int,
    order: Sequence[str],
) -> Apart:
    """Return who of `members` must be left out so that each of the others may answer in a sum over them.

    Not always the fewest; it is a function of its arguments.

    Parameters
    ----------
    members : mapping of str to Member
        Who would be added up, by id.
    known : callable
        Takes ids; returns the totals that vehicles know where these are founders.
    company : int
        At least 1.
    order : sequence of str
        All of `members`: who is left out first.
    """
    left, reasons, missing = dict(members), dict[str, str](), set[str]()

    def without(agents: Collection[str], why: str) -> None:
        reasons.update(dict.fromkeys(agents, why))
        for agent in agents:
            del left[agent]

    while left:
        totals = known(left)
        few = next((each for each in totals if lacking(each, left.values(), company)), None)
        if few is not None:
            # Those who know of it would refuse; without them nobody does.
            more, founders = lacking(few, left.values(), company), {each.agent for each in few.founders}
            missing |= founders - members.keys()
            without(
                [agent for agent in left if few in known([agent])],
                f"{GROUP}: of the {len(founders)} vehicles of an earlier run {more} more are needed, with rows of then;"
                " or it joins once none of its own is of then",
            )
            continue
        now = Total((), tuple(left.values()))
        singled = singled_out([*totals, now], company)
        if not singled or not totals:  # of new vehicles, too few are no group: whoever cuts groups sees that
            break
        alike = _alike(singled, totals, left)
        inside, outside = [agent for agent in order if agent in alike & left.keys()], alike - left.keys()
        if not outside:  # new, or with new rows, or what is left of a few
            more = company - len(inside)
            come = f"{more} more come" if more > 1 else "one more comes"
            without(inside, f"{WAITS}: {_why(left[inside[0]], totals)}; it joins when {come}")
            continue
        missing |= outside - members.keys()
        names = ", ".join(sorted(outside - members.keys())) or "others"
        leave = inside[: max(company - len(outside), 0)]
        if len(inside) - len(leave) < company:
            leave = inside
        without(
            leave or list(order[:1] if order[0] in left else list(left)[:1]),
            f"{COMPANY}: an earlier run over the same rows had {names}, too, and nobody leaves alone",
        )
    return Apart(dict(sorted(reasons.items())), frozenset(missing))


def _why(member: Member, totals: Sequence[Total]) -> str:
    known = {each for total in totals for each in total.members if each.agent == member.agent}
    if not known:
        return "too few vehicles are new with it"
    return f"too few vehicles {'were in the same runs' if member in known else 'have new rows'} as it"


def _alike(singled: Collection[str], totals: Sequence[Total], left: Mapping[str, Member]) -> set[str]:
    """Return one of `singled` with all that were in the same earlier totals, with rows that changed as its did.

    Somebody who would be added up, or is like one, where there is one; else only those who would not be.
    """
    sets = [set(map(astuple, total.members)) for total in totals]
    seen = patterns([*sets, set(map(astuple, left.values()))])
    was = frozenset().union(*sets)
    marks = {
        agent: (frozenset(line[:-1] for line in lines), agent in left and astuple(left[agent]) not in was)
        for agent, lines in seen.items()
    }
    classes = [{agent for agent, mark in marks.items() if mark == marks[one]} for one in sorted(singled)]
    return next((each for each in classes if each & left.keys()), classes[0])
