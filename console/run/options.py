"""The options that say what a run is: of ``glassfleet run start``, and of ``glassfleet run schedule add``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from console.run.connection import CoordinatorOptions
from glassfleet.schemes import DEFAULT

F = TypeVar("F", bound=Callable[..., Any])

SECTIONS = {
    "What is learned": ("scheme", "parameters", "features", "target", "domain_file", "bounds_file", "memory_file"),
    "What others may see": ("exact", "private", "floor", "company", "support"),
    "Which vehicles": (
        *("min_agents", "target_agents", "sample", "without", "readmit", "max_rows_each", "last", "time"),
        *("participation", "gather_agents", "gather_timeout"),
    ),
    "Rounds": ("deadline", "grace", "on_missed_quorum", "extensions", "max_restarts"),
    "The model": ("model_name", "rollout", "seed"),
}
"""Their sections in the help."""

BOUNDS_HELP = (
    'JSON file: {"column": [low, high]}, or {"column": {"low": 0, "high": 60, "unit": "m/s", "terms": ["slow", '
    '"fast"]}}, every part optional.'
)

MEMORY_HELP = (
    "JSON or TOML file: differences and lags of columns as further inputs, "
    '{"memory": [{"input": "speed", "difference": 1}], "drive": "trip", "time": "second"}; or qoe, the case study\'s.'
)


@dataclass(frozen=True, kw_only=True)
class RunOptions(CoordinatorOptions):
    """What `run_options` adds, and how the coordinator is reached."""

    scheme: str
    parameters: tuple[str, ...]
    exact: bool
    private: bool
    floor: int | None
    company: int | None
    support: int | None
    model_name: str
    participation: str | None
    min_agents: str | None
    target_agents: int | None
    sample: str | None
    deadline: float
    grace: float
    on_missed_quorum: str
    extensions: int
    max_restarts: int
    gather_agents: int
    gather_timeout: float
    without: tuple[str, ...]
    readmit: tuple[str, ...]
    max_rows_each: int | None
    last: str | None
    time: str
    features: str | None
    target: str | None
    domain_file: Path | None
    bounds_file: Path | None
    memory_file: Path | None
    seed: int
    rollout: str | None
    as_json: bool


_OPTIONS = (
    click.option("--scheme", default=DEFAULT, show_default=True, help="What to learn: a scheme of the catalogue."),
    click.option(
        "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable."
    ),
    click.option(
        "--exact",
        is_flag=True,
        help="Vehicles use their rows as they are: the model equals the central one of these rows, and messages give "
        "rows away. Without it rows are condensed first.",
    ),
    click.option(
        "--private",
        is_flag=True,
        help="Nobody sees a single vehicle's numbers, only sums over --floor vehicles or more; the model equals the "
        "central one of their rows as they are.",
    ),
    click.option(
        "--floor",
        type=click.IntRange(min=8),
        metavar="N",
        help="With --private: fewest vehicles over which anything is summed. Default: 8.",
    ),
    click.option(
        "--company",
        type=click.IntRange(min=3),
        metavar="N",
        help="With --private: so many vehicles leave together, at least, when some are lost. Default: 3.",
    ),
    click.option(
        "--support",
        type=click.IntRange(min=0),
        metavar="K",
        help="With --private: nothing is asked that rests on fewer rows; 0: no such bound. Default: 3.",
    ),
    click.option(
        "--model", "model_name", default="model", show_default=True, metavar="NAME", help="Name to publish under."
    ),
    click.option(
        "--participation",
        type=click.Choice(["cohort", "elastic"]),
        help="One set of vehicles for the whole model, or whoever answers each round. Default: cohort, or the scheme's "
        "only one.",
    ),
    click.option(
        "--min-agents",
        metavar="N",
        help="Quorum: a number, or a share like 0.5. Default: half of the vehicles that learned the model in use, or "
        "else of those known; at least 2.",
    ),
    click.option("--target-agents", type=int, metavar="N", help="Close a round as soon as so many have answered."),
    click.option("--sample", metavar="N", help="Ask only so many: a number, or a share like 0.5."),
    click.option("--deadline", type=float, default=30.0, show_default=True, metavar="SECONDS", help="Per round."),
    click.option(
        "--grace", type=float, default=0.0, show_default=True, metavar="SECONDS", help="Late answers that count."
    ),
    click.option(
        "--on-missed-quorum",
        type=click.Choice(["extend", "fail"]),
        default="extend",
        show_default=True,
        help="With fewer answers than --min-agents at the deadline.",
    ),
    click.option("--extensions", type=int, default=2, show_default=True, help="How often a round is extended."),
    click.option("--max-restarts", type=int, default=5, show_default=True, help="Replays after losing vehicles."),
    click.option(
        "--gather-agents", type=int, default=1, show_default=True, metavar="N", help="Wait until so many are up."
    ),
    click.option(
        "--gather-timeout", type=float, default=60.0, show_default=True, metavar="SECONDS", help="Wait for them."
    ),
    click.option(
        "--without", multiple=True, metavar="ID", help="Never ask this vehicle; repeatable. The model's record says so."
    ),
    click.option(
        "--readmit",
        multiple=True,
        metavar="ID",
        help="With --private: let this vehicle take part again, which gave false answers in an earlier run; "
        "repeatable.",
    ),
    click.option(
        "--max-rows-each",
        type=click.IntRange(min=1),
        metavar="N",
        help="At most so many rows of each vehicle count. Default: five times the median, from five vehicles on.",
    ),
    click.option(
        "--last",
        metavar="ROWS|DAYS",
        help="Only the last rows of each vehicle count: so many (5000), or those of so many days (7d). Default: all.",
    ),
    click.option(
        "--time",
        default="",
        metavar="COLUMN",
        help="With --last in days: the column that tells when a row was, in seconds since 1970. Default: the only one "
        "of such a name.",
    ),
    click.option("--features", metavar="A,B,...", help="Input columns. Default: those that the agents offer."),
    click.option("--target", metavar="COLUMN", help="Target column. Default: the agents' target."),
    click.option(
        "--domain",
        "domain_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="JSON file: limits (units, terms) of all variables, as `model show --json` has it under document.domain.",
    ),
    click.option("--bounds", "bounds_file", type=click.Path(path_type=Path), metavar="FILE", help=BOUNDS_HELP),
    click.option("--memory", "memory_file", type=click.Path(path_type=Path), metavar="FILE", help=MEMORY_HELP),
    click.option("--seed", type=int, default=0, show_default=True, help="For what is random at the coordinator."),
    click.option(
        "--rollout",
        metavar="SHARE|FILE",
        help="Let this share of the fleet (or the stages of a JSON or TOML file) try the model before it becomes "
        "current.",
    ),
)


def run_options(function: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
