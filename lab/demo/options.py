"""What a demonstration is asked to be: from the options of ``glassfleet demo`` to its settings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import json_file, parse_parameters
from console.operator.specification import checked_parameters, memory_file
from glassfleet.private.groups import LEAST_FLOOR, SUPPORT_ROWS
from lab.demo.words import OWN_MEMORY
from schemas.errors import UsageError
from schemas.limits import ID_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glassfleet.data.lags import Memory
    from lab.demo.display import Watcher
    from lab.demo.plan import Plan

SHOWN: dict[str, dict[str, Any]] = {"tree": {"max_rules": 12, "max_regressors": 16}}
"""Parameters that a scheme is shown with: a quick run, with lagged features too."""

ENOUGH_ROUNDS = 9
"""A run of so many rounds has room for all that may happen to its vehicles."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Of ``glassfleet demo``."""

    vehicles: int | None
    drop: float
    slow: float
    rejoin: float
    seed: int
    participation: str | None
    data: Path | None
    target: str | None
    bounds_file: Path | None
    scheme: str
    good_above: float | None
    labels: bool
    memory: str | None
    model_name: str | None
    parameters: tuple[str, ...]
    exact: bool
    broker_kind: str
    deadline: float | None
    pace: float | None
    timeout: float
    keep: Path | None
    secure: bool
    private: bool
    support: int | None
    stay: bool
    plain: bool
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is demonstrated.

    Attributes
    ----------
    options : DemoOptions
        What was asked for.
    files : mapping of str to Path
        Vehicle id -> its data.
    plan : Plan
    work : Path
        Folder for logs and state.
    scheme : str
    parameters : mapping
        Of the scheme, as the run is started with.
    participation : "cohort" or "elastic"
    model : str
        Name to publish under.
    deadline : float
        Seconds per round, > 0.
    pace : float
        Seconds that every vehicle takes to answer, so that people can watch and kills fall into open rounds.
    bounds : mapping or None
        As the run's specification takes it: column -> [low, high], or an object with unit and terms too.
    labels : bool
        The target is a class.
    memory : Memory or None
        Lagged features of the run.
    support : int
        Of a private run: fewest rows on which anything rests that is asked.
    """

    options: DemoOptions
    files: Mapping[str, Path]
    plan: Plan
    work: Path
    scheme: str
    parameters: Mapping[str, Any]
    participation: str
    model: str
    deadline: float
    pace: float
    bounds: Mapping[str, Any] | None
    labels: bool
    memory: Memory | None
    support: int

    @property
    def slowness(self) -> float:
        """Seconds that each answer of a slow vehicle is on its way: beyond every deadline."""
        return self.deadline + 0.4


def model_name(given: str | None, data: Path | None) -> str:
    """Return the name to publish the model under: the given one, else the data's.

    Raises
    ------
    UsageError
        The given one cannot be a model's name.
    """
    if given is not None:
        if not re.fullmatch(ID_PATTERN, given):
            raise UsageError(f"--model {given!r}: use up to 64 letters, digits, dots, dashes and underscores")
        return given
    if data is None:
        return "qoe"
    return re.sub(r"[^A-Za-z0-9._-]", "-", data.resolve().name).lstrip("._-")[:64] or "model"


def settings_of(options: DemoOptions, work: Path, watcher: Watcher) -> Settings:
    """Return what is demonstrated, its rows made or looked at; raises UsageError or DataError."""
    from lab.demo.plan import for_private_run, make_plan
    from lab.demo.preflight import MANY_ROUNDS, run_preflight, tempo
    from lab.demo.vehicles import check_columns, read_rows

    name = model_name(options.model_name, options.data)
    support = _support(options)
    scheme, parameters, participation, labels = _scheme(options, support)
    memory = _memory(options)
    real = _real_files(options)
    # What a user can have mistyped is known by now: only after it is something said.
    watcher.step("making the rows of simulated vehicles" if real is None else "reading the vehicles' files")
    if real is not None:
        check_columns(real, options.target)
    files = _files(options, work, real, labels=labels)
    # Two vehicles' rows tell how many rounds there will be, and what a file of bounds may name.
    few = list(read_rows(dict(list(files.items())[:2]), options.target, labels=labels, memory=memory).values())
    known = {*few[0].train.features, few[0].train.target}
    bounds = _bounds(options, known)
    watcher.step("preflight with two vehicles: number of rounds, time for an answer")
    at_most = MANY_ROUNDS if participation == "elastic" else ENOUGH_ROUNDS
    preflight = run_preflight(scheme, parameters, few, options.seed, at_most=at_most)
    pace, deadline = tempo(preflight, len(files), participation)
    pace = pace if options.pace is None else options.pace
    deadline = deadline if options.deadline is None else options.deadline
    if pace > 0.8 * deadline:
        raise UsageError(f"--pace {pace} leaves no time before --deadline {deadline}: make it smaller")
    rounds = None if preflight.rounds >= ENOUGH_ROUNDS else preflight.rounds
    plan = make_plan(list(files), options.drop, options.slow, options.rejoin, options.seed, rounds)
    if options.private:
        _check_enough(len(files) - len(plan.slow))
        plan = for_private_run(plan, len(files), None if rounds is None else rounds + 1)  # the first asks for keys
    return Settings(
        options=options,
        files=files,
        plan=plan,
        work=work,
        scheme=scheme.name,
        parameters=parameters.model_dump(mode="json"),
        participation=participation,
        model=name,
        deadline=deadline,
        pace=pace,
        bounds=bounds,
        labels=labels,
        memory=memory,
        support=support,
    )


def _support(options: DemoOptions) -> int:
    """Return the fewest rows on which anything rests that is asked; 0 in a run that is not private."""
    if options.support is not None and not options.private:
        raise UsageError("--support goes with --private")
    return SUPPORT_ROWS if options.private and options.support is None else options.support or 0


def _check_enough(vehicles: int) -> None:
    if vehicles < LEAST_FLOOR:
        raise UsageError(
            f"--private needs {LEAST_FLOOR} vehicles that answer in time, as sums over fewer tell too much; there "
            f"would be {vehicles}: use --vehicles, or --slow 0"
        )


def _scheme(options: DemoOptions, support: int) -> tuple[Any, Any, str, bool]:
    """Return the scheme, its parameters, the participation, and whether the target is a class."""
    from glassfleet.contract import catalogue
    from glassfleet.contract.scheme import private_parameters

    scheme = catalogue.load(options.scheme)
    participation = options.participation or ("cohort" if "cohort" in scheme.participation else "elastic")
    if participation not in scheme.participation:
        modes = ", ".join(sorted(scheme.participation))
        raise UsageError(f"scheme {scheme.name} takes part only in: {modes}; --scheme frt knows both ways")
    wants_labels = options.labels or options.good_above is not None
    if wants_labels and "classification" not in scheme.purpose:
        raise UsageError(f"--labels and --good-above go with a classifier; scheme {scheme.name} forecasts numbers")
    if options.good_above is not None and not math.isfinite(options.good_above):
        raise UsageError(f"--good-above {options.good_above}: give a finite number")
    parameters = checked_parameters(scheme, {**SHOWN.get(scheme.name, {}), **parse_parameters(options.parameters)})
    if options.private and participation != "cohort":
        raise UsageError("--private goes with --participation cohort: one set of vehicles for the whole model")
    labels = wants_labels or "regression" not in scheme.purpose
    if options.private and labels:
        raise UsageError("a private run finds no classes, and the demo declares none: use a scheme for numbers")
    if options.private:
        parameters = private_parameters(scheme, parameters, support)
    elif options.exact:
        parameters = scheme.exact(parameters)
    return scheme, parameters, participation, labels


def _memory(options: DemoOptions) -> Memory | None:
    """Return the lagged features of the run; raises UsageError where vehicles and declaration do not go together."""
    given = options.memory
    if given is None:
        return None
    if given != OWN_MEMORY:
        if options.data is None:
            raise UsageError("--memory FILE goes with --data; the simulated vehicles have their own: --memory alone")
        return memory_file(Path(given))
    if options.data is not None:
        raise UsageError("--memory needs a FILE with --data: it says which columns to remember")
    from lab.qoe.windows import MEMORY

    return MEMORY


def _real_files(options: DemoOptions) -> dict[str, Path] | None:
    """Return the files of ``--data``; None: the vehicles are simulated. Raises UsageError or DataError."""
    from lab.demo.vehicles import real_files

    if options.data is not None:
        return real_files(options.data, options.vehicles)
    for name, given in (("target", options.target), ("bounds", options.bounds_file), ("labels", options.labels)):
        if given:
            raise UsageError(f"--{name} goes with --data; the simulated vehicles have their own")
    return None


def _files(options: DemoOptions, work: Path, real: dict[str, Path] | None, *, labels: bool) -> dict[str, Path]:
    from lab.demo.vehicles import labelled_files, simulated_files
    from lab.qoe.windows import GOOD_ABOVE

    good_above = GOOD_ABOVE if options.good_above is None else options.good_above
    if real is None:
        return simulated_files(
            work / "data",
            options.vehicles or 15,
            options.seed,
            good_above=good_above if labels else None,
            drives=options.memory is not None,
        )
    if not labels:
        return real
    return labelled_files(real, work / "data", options.target, good_above, labels=options.labels)


def _bounds(options: DemoOptions, known: set[str]) -> dict[str, Any] | None:
    """Return the run's bounds: the simulator's own, or those of the file; raises UsageError for an unknown column."""
    from lab.qoe.windows import BOUNDS, UNITS

    if options.data is None:
        return {
            name: {"low": low, "high": high, "unit": UNITS[name]}
            for name, (low, high) in BOUNDS.items()
            if name in known
        }
    if options.bounds_file is None:
        return None
    bounds = json_file(options.bounds_file, "bounds")
    if not isinstance(bounds, dict):
        raise UsageError(f'--bounds: {options.bounds_file} must hold an object: {{"column": [low, high]}}')
    unknown = sorted(set(bounds) - known)
    if unknown:
        raise UsageError(
            f"--bounds: no vehicle has a column {unknown[0]!r}; the columns are: {', '.join(sorted(known))}"
        )
    return bounds
