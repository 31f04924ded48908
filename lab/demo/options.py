"""What a demonstration is asked to be: from the options of ``glassfleet demo`` to its settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.operator.specification import checked_parameters, document_of
from glassfleet.private.groups import LEAST_FLOOR
from schemas.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.specification.run import RunSpec
    from glassfleet.contract.scheme import Scheme
    from lab.demo.display import Watcher
    from lab.demo.plan import Plan

SHOWN: dict[str, dict[str, Any]] = {"tree": {"max_rules": 12, "max_regressors": 16}}
"""Parameters that a scheme is shown with: a quick run, with lagged features too."""

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
        return self.spec.policy.deadline

    @property
    def slowness(self) -> float:
        """Seconds that each answer of a slow vehicle is on its way: beyond every deadline."""
        return self.deadline + 0.4


def settings_of(options: DemoOptions, work: Path, watcher: Watcher) -> Settings:
    """Return what is demonstrated, its rows made or looked at; raises UsageError or DataError."""
    from coordinator.specification.run import RunSpec
    from glassfleet.contract import catalogue
    from lab.demo.plan import for_private_run, make_plan
    from lab.demo.preflight import MANY_ROUNDS, run_preflight, tempo
    from lab.demo.vehicles import check_columns, read_rows, real_files

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
    files = real or _simulated(options, work, labels=labels)
    # Two vehicles' rows tell how many rounds there will be, and what bounds may name.
    few = list(read_rows(dict(list(files.items())[:2]), asked.target, labels=labels).values())
    known = {*few[0].train.features, few[0].train.target}
    if unknown := sorted(set(asked.bounds or {}) - known):
        columns = ", ".join(sorted(known))
        raise UsageError(f"bounds: no vehicle has a column {unknown[0]!r}; the columns are: {columns}")
    watcher.step("preflight with two vehicles: number of rounds, time for an answer")
    at_most = MANY_ROUNDS if participation == "elastic" else ENOUGH_ROUNDS
    preflight = run_preflight(scheme, parameters, few, options.seed, at_most=at_most)
    pace, deadline = tempo(preflight, len(files), participation)
    policy = {
        "min_agents": min(2, len(files)),
        "deadline": deadline,
        "gather_agents": len(files),
        "gather_timeout": 90.0,
        # Each vehicle that is lost may send the growth back once.
        "max_restarts": 2 * len(files),
        **given.get("policy", {}),
    }
    rounds = None if preflight.rounds >= ENOUGH_ROUNDS else preflight.rounds
    # Of a private run the slow are not: they announce themselves too late.
    plan = make_plan(list(files), options.drop, 0.0 if is_private else SLOW, REJOIN, options.seed, rounds)
    if is_private:
        _check_enough(len(files))
        plan = for_private_run(plan, len(files), None if rounds is None else rounds + 1)  # the first asks for keys
    own = parameters.model_dump(mode="json")
    own.pop("support", None)
    made = {
        "parameters": own,
        "participation": participation,
        "policy": policy,
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


def _check_enough(vehicles: int) -> None:
    if vehicles < LEAST_FLOOR:
        raise UsageError(
            f"--private needs {LEAST_FLOOR} vehicles, as sums over fewer tell too much; there would be {vehicles}: use "
            "--vehicles"
        )


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


def _simulated(options: DemoOptions, work: Path, *, labels: bool) -> dict[str, Path]:
    from lab.demo.vehicles import simulated_files
    from lab.qoe.windows import GOOD_ABOVE

    above = GOOD_ABOVE if labels else None
    return simulated_files(work / "data", options.vehicles or 15, options.seed, good_above=above)


def _bounds(known: set[str]) -> dict[str, Any]:
    """Return the simulator's own limits and units."""
    from lab.qoe.windows import BOUNDS, UNITS

    return {
        name: {"low": low, "high": high, "unit": UNITS[name]} for name, (low, high) in BOUNDS.items() if name in known
    }
