"""What a demonstration is asked to be: from the options of ``glassfleet demo`` to its settings."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.operator.specification import checked_parameters, document_of
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, least_members
from schemas.errors import UsageError

if TYPE_CHECKING:
    from coordinator.specification.run import RunSpec
    from glassfleet.contract.scheme import Scheme
    from lab.demo.display import Watcher


SHOWN: dict[str, dict[str, Any]] = {"tree": {"max_rules": 12, "max_regressors": 16}}
"""Parameters that a scheme is shown with: a quick run of few rules."""

ENOUGH_ROUNDS = 9
"""A run of so many rounds has room for all that may happen to its vehicles."""

SLOW, REJOIN = 0.1, 0.5
"""Shares: of the fleet that answers too late, and of those killed that come back."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Of ``glassfleet demo``."""

    vehicles: int | None
    drop: float
    seed: int
    data: Path | None
    scheme: str | None
    policy_file: Path | None
    kind: str
    secure: bool
    private: bool
    stay: bool
    keep: Path | None
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is demonstrated.

    Attributes
    ----------
    options : DemoOptions
        What was asked for.
    spec : RunSpec
        The run that is started.
    files : mapping of str to Path
        Vehicle id -> its data.
    plan : Plan
    work : Path
        Folder for logs and state.
    pace : float
        Seconds that every vehicle takes to answer, so that people can watch and kills fall into open rounds.
    labels : bool
        The target is a class.
    is_exact : bool
        Vehicles use their rows as they are.
    """

    options: DemoOptions
    spec: RunSpec
    files: Mapping[str, Path]
    plan: Plan
    work: Path
    pace: float
    labels: bool
    is_exact: bool

    @property
    def deadline(self) -> float:
        """Seconds per round, > 0."""
        return self.spec.rounds.deadline

    @property
    def slowness(self) -> float:
        """Seconds that each answer of a slow vehicle is on its way: beyond every deadline."""
        return self.deadline + 0.4


def settings_of(options: DemoOptions, work: Path, watcher: Watcher) -> Settings:
    """Return what is demonstrated, its rows made or looked at; raises UsageError or DataError."""
    from coordinator.specification.run import RunSpec
    from glassfleet.contract import catalogue
    from lab.demo.reference import MANY_ROUNDS, run_preflight, tempo
    from lab.demo.vehicles import check_columns, read_rows, real_files, simulated_files
    from lab.qoe.windows import GOOD_ABOVE

    given = {} if options.policy_file is None else document_of(options.policy_file, "policy")
    given |= {"scheme": options.scheme} if options.scheme is not None else {}
    given |= {"private": given.get("private") or {}} if options.private else {}
    asked = RunSpec.from_document(given)
    scheme = catalogue.load(asked.scheme)
    is_private, labels = asked.private is not None, "regression" not in scheme.purpose
    participation = given.get("participation", "cohort" if "cohort" in scheme.participation else "elastic")
    parameters = _parameters(asked, scheme, participation, labels=labels)
    real = None if options.data is None else real_files(options.data, options.vehicles)
    if real is None and asked.target is not None:
        raise UsageError("target goes with --data; the simulated vehicles have their own")
    # What a user can have mistyped is known by now: only after it is something said.
    watcher.step("making the rows of simulated vehicles" if real is None else "reading the vehicles' files")
    if real is not None:
        check_columns(real, asked.target)
    above = GOOD_ABOVE if labels else None
    files = real or simulated_files(work / "data", options.vehicles or 15, options.seed, good_above=above)
    # Two vehicles' rows tell how many rounds there will be, and what bounds may name.
    few = list(read_rows(dict(list(files.items())[:2]), asked.target, labels=labels).values())
    known = {*few[0].train.features, few[0].train.target}
    if unknown := sorted(set(asked.bounds or {}) - known):
        columns = ", ".join(sorted(known))
        raise UsageError(f"bounds: no vehicle has a column {unknown[0]!r}; the columns are: {columns}")
    watcher.step("preflight with two vehicles: number of rounds, time for an answer")
    at_most = MANY_ROUNDS if participation == "elastic" else ENOUGH_ROUNDS
    found, seconds = run_preflight(scheme, parameters, few, options.seed, at_most=at_most)
    pace, deadline = tempo(found, seconds, len(files), participation)
    policy = {
        "min_agents": min(2, len(files)),
        "deadline": deadline,
        "gather_agents": len(files),
        "gather_timeout": 90.0,
        # Each vehicle that is lost may send the growth back once.
        "max_restarts": 2 * len(files),
        **given.get("rounds", {}),
    }
    rounds = None if found >= ENOUGH_ROUNDS else found
    # Of a private run the slow are not: they announce themselves too late.
    plan = make_plan(list(files), options.drop, 0.0 if is_private else SLOW, REJOIN, options.seed, rounds)
    if is_private:
        if len(files) < LEAST_FLOOR:
            raise UsageError(
                f"--private needs {LEAST_FLOOR} vehicles, as sums over fewer tell too much; there would be "
                f"{len(files)}: use --vehicles"
            )
        plan = for_private_run(plan, len(files), None if rounds is None else rounds + 1)  # the first asks for keys
    own = parameters.model_dump(mode="json")
    own.pop("support", None)
    made = {
        "parameters": own,
        "participation": participation,
        "rounds": policy,
        "model": given.get("model") or _name(options.data),
        "bounds": given.get("bounds") or (_bounds(known) if real is None else None),
        "seed": options.seed,
    }
    return Settings(
        options=options,
        spec=RunSpec.from_document({**given, **made}),
        files=files,
        plan=plan,
        work=work,
        pace=min(pace, policy["deadline"] / 2),
        labels=labels,
        is_exact=is_private or scheme.exact(parameters) == parameters,
    )


def _name(data: Path | None) -> str:
    """Return the name to publish the model under, where none is given: the data's."""
    if data is None:
        return "qoe"
    return re.sub(r"[^A-Za-z0-9._-]", "-", data.resolve().name).lstrip("._-")[:64] or "model"


def _parameters(asked: RunSpec, scheme: Scheme, participation: str, *, labels: bool) -> Any:
    """Return the scheme's parameters; raises UsageError where it cannot be shown as asked."""
    from glassfleet.contract.scheme import private_parameters

    if participation not in scheme.participation:
        modes = ", ".join(sorted(scheme.participation))
        raise UsageError(f"scheme {scheme.name} takes part only in: {modes}; the scheme frt knows both ways")
    parameters = checked_parameters(scheme, {**SHOWN.get(scheme.name, {}), **asked.parameters}, "parameters.")
    if asked.private is None:
        return parameters
    if participation != "cohort":
        raise UsageError("a private demo goes with cohort participation: one set of vehicles for the whole model")
    if labels:
        raise UsageError("a private run finds no classes, and the demo declares none: use a scheme for numbers")
    return private_parameters(scheme, parameters, asked.private.support)


def _bounds(known: set[str]) -> dict[str, Any]:
    """Return the simulator's own limits and units."""
    from lab.qoe.windows import BOUNDS, UNITS

    return {
        name: {"low": low, "high": high, "unit": UNITS[name]} for name, (low, high) in BOUNDS.items() if name in known
    }


# --- who is killed when, who lags, who comes back: drawn once from the seed, before anything starts. Pure -------------


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
