"""Who is killed when, who lags, who comes back: drawn once from the seed, before anything starts. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, least_members

FIRST_KILL, LAST_KILL = 2, 6
"""Kills happen when this many rounds have been opened, at the earliest and at the latest: from the search for the
domain to the third or fourth level of a tree. A scheme with fewer rounds has its kills earlier."""

FIRST_RETURN, LAST_RETURN = 1, 3
"""A vehicle that comes back does so this many opened rounds after it was killed."""


@dataclass(frozen=True)
class Plan:
    """What will happen to the vehicles.

    Attributes
    ----------
    kills : mapping of str to int
        Vehicle -> it is killed when so many rounds have been opened.
    returns : mapping of str to int
        Vehicle, one of `kills` -> it is started again when so many rounds have been opened.
    slow : tuple of str
        Vehicles that answer after every deadline; none of `kills`.
    """

    kills: Mapping[str, int] = field(default_factory=dict)
    returns: Mapping[str, int] = field(default_factory=dict)
    slow: tuple[str, ...] = ()


def make_plan(  # noqa: PLR0917 - as they are drawn
    vehicles: Sequence[str], drop: float, slow: float, rejoin: float, seed: int, rounds: int | None = None
) -> Plan:
    """Draw a plan.

    Parameters
    ----------
    vehicles : sequence of str
    drop, slow : float
        Shares of the fleet, [0, 1]; a share above zero is at least one vehicle where the fleet allows it.
    rejoin : float
        Share of those killed that come back, [0, 1].
    seed : int
    rounds : int or None
        How many rounds the run will have; None: enough for everything.

    Returns
    -------
    Plan
        At least two vehicles (one, in a fleet of two or one) are neither killed nor slow.
    """
    spare = max(0, len(vehicles) - (2 if len(vehicles) > 2 else 1))
    killed = min(_count(drop, len(vehicles), at_least_one=True), spare)
    lagging = min(_count(slow, len(vehicles), at_least_one=False), spare - killed)
    # random and not numpy: this is a handful of draws, and the order of the standard library's is fixed.
    rng = random.Random(f"glassfleet demo {seed}")  # noqa: S311 - a plan of a demonstration is no secret
    shuffled = rng.sample(sorted(vehicles), len(vehicles))
    kills = {vehicle: rng.randint(FIRST_KILL, LAST_KILL) for vehicle in shuffled[:killed]}
    returning = rng.sample(sorted(kills), min(_count(rejoin, killed, at_least_one=True), killed))
    returns = {vehicle: kills[vehicle] + rng.randint(FIRST_RETURN, LAST_RETURN) for vehicle in sorted(returning)}
    if rounds is not None:
        last = max(FIRST_KILL + 1, rounds)
        kills = {vehicle: min(moment, last - (vehicle in returns)) for vehicle, moment in kills.items()}
        returns = {vehicle: min(moment, last) for vehicle, moment in returns.items()}
    return Plan(kills, returns, tuple(sorted(shuffled[killed : killed + lagging])))


def for_private_run(plan: Plan, vehicles: int, rounds: int | None = None) -> Plan:
    """Return the plan with its kills in at most two moments, and no more of them than leave a private run enough.

    Nobody leaves a group alone: each loss of fewer than `LEAST_COMPANY` vehicles takes others along.

    Parameters
    ----------
    plan : Plan
    vehicles : int
        Size of the fleet. The slow ones do not take part: they announce themselves too late.
    rounds : int or None
        As for `make_plan`.
    """
    founders = vehicles - len(plan.slow)
    room = max(0, founders - least_members(founders, LEAST_FLOOR, LEAST_COMPANY))
    killed = list(plan.kills)
    while sum(max(len(part), LEAST_COMPANY) for part in _parts(killed)) > room:
        killed.pop()
    first = min(plan.kills.values(), default=FIRST_KILL)
    # In the next round but one the first loss has been noticed, and all is asked again.
    moments = (first, first + FIRST_RETURN + 1)
    last = first + (rounds or LAST_KILL + LAST_RETURN)
    kills = {vehicle: moment for moment, part in zip(moments, _parts(killed), strict=False) for vehicle in part}
    returns = {
        vehicle: min(kills[vehicle] + moment - plan.kills[vehicle], last)
        for vehicle, moment in plan.returns.items()
        if vehicle in kills
    }
    return replace(plan, kills=kills, returns=returns)


def _parts(killed: list[str]) -> list[list[str]]:
    """Cut those to be killed in two, unless they are company for each other; the first part always is."""
    first = max(LEAST_COMPANY, (len(killed) + 1) // 2)
    return [part for part in (killed[:first], killed[first:]) if part]


def _count(share: float, of: int, *, at_least_one: bool) -> int:
    count = int(share * of + 0.5)
    return 1 if at_least_one and share > 0 and count == 0 and of > 0 else count
