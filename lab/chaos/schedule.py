"""What goes wrong, when, and for how long: drawn from the seed before anything starts. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

COORDINATOR, STANDBY, WORKER, BROKER, EVERYONE = "coordinator", "standby", "worker", "broker", "everyone"
"""What faults are done to; of two coordinators the first is the one that leads then, and the second the other."""

STATES = ("gathering", "domain", "recruiting", "learning")
"""The engine's states in which a run can be found. What lies between two of them is met by `crash`: see below."""

CRASH_TOPICS = ("", "/receipt", "/request", "/model/", "/current", "/blob/")
"""A coordinator that crashes does so before it publishes on such a topic: between the journal and an effect of it."""

KINDS: dict[str, int] = {
    "coordinator-kill": 12,
    "coordinator-crash": 9,
    "agent-kill": 14,
    "agent-crash": 8,
    "broker-kill": 6,
    "broker-restart": 4,
    "agent-freeze": 8,
    "coordinator-freeze": 4,
    "broker-freeze": 3,
    "link-cut": 9,
    "link-stall": 5,
    "link-delay": 6,
    "loss": 6,
    "duplication": 6,
    "reordering": 6,
    "clock-jump": 8,
}
"""Kind of fault -> how often it is drawn, in relation to the others. Each comes once before any comes twice."""

MORE_KINDS: dict[str, dict[str, int]] = {
    "secure": {"certificate-renew": 8, "certificate-replace": 8, "vehicle-revoke": 6},
    "standby": {"standby-kill": 5, "standby-freeze": 4},
    "workers": {"worker-kill": 8, "worker-freeze": 4},
}
"""The same by mode, for what happens in it only; these come first.

``secure``, a fleet with identities: a certificate is renewed under a running process; is renewed and the former one
revoked; a vehicle is revoked as stolen, and enrols again with a new key. ``standby``: a coordinator stands by, and
takes the place of the one that leads whenever that one is killed or crashes. ``workers``: the coordinator's intake
workers."""

MODES = ("secure", "private", "standby", "workers")

LASTS: dict[str, tuple[float, float]] = {
    "kill": (0.0, 1.2),
    "agent-kill": (0.0, 4.0),
    "crash": (0.0, 1.0),
    "restart": (0.0, 0.6),
    "freeze": (0.2, 2.5),
    "cut": (0.1, 1.5),
    "stall": (0.3, 4.0),
    "delay": (0.5, 2.5),
    "loss": (0.8, 2.5),
    "duplication": (0.8, 2.5),
    "reordering": (0.8, 2.5),
    "jump": (0.5, 4.0),
    "renew": (0.1, 1.0),
    "replace": (0.5, 3.0),
    "revoke": (6.0, 10.0),
}
"""Seconds for which a fault lasts (a killed process: until it is started again), by its kind or the
last word of it."""

_JUMPS = (-10 * 365 * 86400.0, -86400.0, -3600.0, -31.0, 31.0, 3600.0, 86400.0, 10 * 365 * 86400.0)

_SECURE_JUMPS = (-240.0, -31.0, 31.0, 3600.0, 86400.0)
"""Certificates have dates: a clock may be wrong by what the leeway allows, and forward within their two days."""


def run_name(number: int) -> str:
    """Return the id of the run with a number, from 1."""
    return f"chaos-{number:04d}"


def era(run: str) -> int:
    """Return over which rows a private run counts as being: equal numbers, equal rows.

    The fleet learns from the same files in run after run, and loses vehicles all the time. Vehicles rightly refuse most
    runs then, as the differences tell of few of them. So only two runs in a row are over the same rows for their
    ledgers.
    """
    return (int(run.rpartition("-")[2]) + 1) // 2


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    number : int
        From 1.
    kind : str
        One of `KINDS`.
    target : str
        ``coordinator``, ``standby``, ``worker``, ``broker``, ``everyone`` or an agent's id.
    state : str
        One of `STATES`, ``pairing`` or ``any``: it strikes when the run is in this state.
    answers : int
        ... and the open round has at least so many answers.
    gap : float
        Seconds after the fault before, at least.
    lasts : float
        Seconds.
    strength : float
        Chance per message, seconds of delay, or seconds of the jump; by kind. Of a revoked vehicle: 1 when its
        connection is cut, so that it must connect again; 0 when it stands, without a right. Of a worker: which.
    count : int
        A crash happens at this publish, on a topic that contains `topic`.
    topic : str
    """

    number: int
    kind: str
    target: str
    state: str
    answers: int
    gap: float
    lasts: float
    strength: float = 0.0
    count: int = 0
    topic: str = ""


def make_schedule(
    seed: int, faults: int, vehicles: Sequence[str], modes: Collection[str] = frozenset()
) -> tuple[Fault, ...]:
    """Draw `faults` faults; the same arguments give the same schedule, and more faults only lengthen it.

    Parameters
    ----------
    seed : int
    faults : int
        At least 0.
    vehicles : sequence of str
        Agent ids, at least one.
    modes : collection of str
        Of `MODES`. Clocks of a secure fleet jump less far. In private runs vehicles are paired first, and none are
        recruited later.
    """
    # random and not numpy: a handful of draws, and the order of the standard library's is fixed.
    rng = random.Random(f"glassfleet chaos {seed}")  # noqa: S311 - a schedule of faults is no secret
    kinds = list(KINDS)
    rng.shuffle(kinds)
    more = {kind: share for mode, own in MORE_KINDS.items() if mode in modes for kind, share in own.items()}
    if first := list(more):
        rng.shuffle(first)
    shares, kinds = KINDS | more, first + kinds
    schedule = []
    for number in range(1, faults + 1):
        kind = kinds[number - 1] if number <= len(kinds) else rng.choices(list(shares), list(shares.values()))[0]
        fault = _draw(rng, number, kind, vehicles, _SECURE_JUMPS if "secure" in modes else _JUMPS)
        schedule.append(
            replace(fault, state="pairing") if "private" in modes and fault.state == "recruiting" else fault
        )
    return tuple(schedule)


def _draw(rng: random.Random, number: int, kind: str, vehicles: Sequence[str], jumps: Sequence[float]) -> Fault:
    who, _, what = kind.rpartition("-")
    one_of = {"agent": [], "vehicle": [], "link": [COORDINATOR], "clock": [COORDINATOR]}
    one_of["certificate"] = [COORDINATOR, BROKER]
    target = rng.choice([*vehicles, *one_of[who]]) if who in one_of else who or EVERYONE
    # An agent may be away for longer than a deadline: then the cohort goes on without it.
    low, high = LASTS[kind] if kind in LASTS else LASTS[what]
    state = rng.choices(("any", *STATES), (2, 1, 2, 2, 4))[0]
    answers = rng.choice((0, 0, 1, 2)) if state in ("domain", "recruiting", "learning") else 0
    strength = {
        "delay": rng.uniform(0.02, 0.4),
        "loss": rng.uniform(0.05, 0.4),
        "duplication": rng.uniform(0.1, 0.6),
        "reordering": rng.uniform(0.1, 0.6),
        "jump": rng.choice(jumps),
    }.get(what, 0.0)
    if what == "revoke" or who == WORKER:
        strength = float(rng.randrange(2))
    topic = rng.choice(CRASH_TOPICS) if kind == "coordinator-crash" else ""
    count = rng.randint(1, 2 if topic or who == "agent" else 12) if what == "crash" else 0
    return Fault(
        number=number,
        kind=kind,
        target=target,
        state=state,
        answers=answers,
        gap=round(rng.uniform(0.05, 0.7), 3),
        lasts=round(rng.uniform(low, high), 3),
        strength=round(strength, 4),
        count=count,
        topic=topic,
    )
