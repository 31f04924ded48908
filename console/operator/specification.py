"""What a run is asked to be: options of ``glassfleet run start`` and ``run schedule add`` over a policy file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import count_or_share, json_file, policy_option, read_toml
from console.operator.connection import CoordinatorOptions, coordinator_options
from glassfleet.schemes import DEFAULT
from schemas.errors import UsageError

if TYPE_CHECKING:
    from glassfleet.contract.scheme import Scheme

F = TypeVar("F", bound=Callable[..., Any])

OPENS_ROWS = (
    "in this run vehicles use their rows as they are. Whoever reads the messages at the broker or the coordinator can "
    "compute whole rows from them, inputs and target: up to two thirds of a small vehicle's, in our tests. Without "
    "--exact vehicles condense their rows first, and the same attacks find none."
)
"""Said before such a run starts."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(CoordinatorOptions):
    """What `run_options` adds, and how the coordinator is reached."""

    model_name: str | None
    target: str | None
    private: bool
    exact: bool
    min_agents: str | None
    deadline: float | None
    last: str | None
    without: tuple[str, ...]
    policy_file: Path | None
    as_json: bool


_OPTIONS = (
    click.option("--model", "model_name", metavar="NAME", help="Name to publish under.  [default: model]"),
    click.option("--target", metavar="COLUMN", help="Column to forecast.  [default: the agents' target]"),
    click.option(
        "--private", is_flag=True,
        help="Nobody sees a single vehicle's numbers, only sums over eight vehicles or more; the model equals the "
        "central one of their rows as they are.",
    ),
    click.option(
        "--exact", is_flag=True,
        help="Vehicles use their rows as they are: the model equals the central one of these rows, and messages give "
        "rows away. Without it rows are condensed first.",
    ),
    click.option(
        "--min-agents", metavar="N",
        help="Quorum of a round: a number, for which the run also waits at its start, or a share like 0.5.  [default: "
        "half of the vehicles that learned the model in use, or of those known; at least 2]",
    ),
    click.option("--deadline", type=float, metavar="SECONDS", help="Of a round.  [default: 30]"),
    click.option(
        "--last", metavar="ROWS|DAYS",
        help="Only the last rows of each vehicle count: so many (5000), or those of so many days (7d).  [default: all]",
    ),
    click.option("--without", multiple=True, metavar="ID", help="Never ask this vehicle; repeatable."),
    policy_option(
        "All else that a run can be told, as TOML or JSON: scheme, parameters, bounds, sample, rollout ... "
        "(docs/reference/settings.md). Options are stronger.",
    ),
)  # fmt: skip


def run_options(function: F) -> Callable[..., Any]:
    """Add the options that say what a run is, and how the coordinator is reached."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return coordinator_options(function)


def spec_of(options: RunOptions) -> dict[str, Any]:
    """Return the run's specification, as the HTTP API takes it: the policy file, and what options say over it.

    Raises
    ------
    UsageError
        The file cannot be read, or the run cannot be meant.
    """
    from coordinator.specification.run import RunSpec  # numpy comes with it

    spec = {} if options.policy_file is None else document_of(options.policy_file, "policy")
    given = {"model": options.model_name, "target": options.target, "without": list(options.without) or None}
    spec |= {key: value for key, value in given.items() if value is not None}
    policy = {"deadline": options.deadline}
    if options.min_agents is not None:
        least = count_or_share(options.min_agents, "--min-agents")
        policy |= {"min_agents": least, "gather_agents": least if isinstance(least, int) else None}
    policy = {key: value for key, value in policy.items() if value is not None}
    if policy and isinstance(spec.setdefault("rounds", {}), dict):
        spec["rounds"] = {**spec["rounds"], **policy}
    if options.last is not None:
        spec["window"] = window_of(options.last)
    if options.private:
        spec.setdefault("private", {})
    try:
        asked = RunSpec.from_document(spec)
    except UsageError as fault:
        raise fault if options.policy_file is None else UsageError(f"{options.policy_file}: {fault}") from fault
    if options.exact:
        from glassfleet.contract import catalogue

        scheme = catalogue.load(asked.scheme)
        spec["parameters"] = scheme.exact(checked_parameters(scheme, asked.parameters, "parameters.")).model_dump(
            mode="json"
        )
    return spec


def document_of(path: Path, option: str) -> dict[str, Any]:
    """Return the JSON values of a file, TOML if its name ends so, else JSON; raises UsageError."""
    document = read_toml(path) if path.suffix == ".toml" else json_file(path, option)
    if not isinstance(document, dict):
        raise UsageError(f"--{option} {path}: write an object of JSON, or TOML in a file named .toml")
    return document


def window_of(text: str) -> dict[str, Any]:
    """Read ``--last``: so many rows, or days with a d; raises UsageError."""
    number = text.removesuffix("d")
    try:
        return {"rows": int(number)} if number == text else {"days": float(number)}
    except ValueError:
        raise UsageError(f"--last {text!r}: write a number of rows (5000) or of days (7d)") from None


def checked_parameters(scheme: Scheme, given: Mapping[str, Any], before: str = "--param ") -> Any:
    """Return the parameters of a scheme; raises UsageError that names the one at fault, and what there is."""
    from pydantic import ValidationError

    from glassfleet.data.documents import parameter_fault

    try:
        return scheme.Parameters.model_validate(given)
    except ValidationError as fault:
        raise UsageError(parameter_fault(scheme.name, scheme.Parameters, fault, before)) from fault


def opens_rows(spec: Mapping[str, Any]) -> bool:
    """Return whether the vehicles of a run would not condense their rows, where the scheme can."""
    parameters = spec.get("parameters", {})
    if spec.get("private") is not None or not {"min_rows", "nullify"} & set(parameters):
        return False  # the schemes' defaults condense
    from pydantic import ValidationError

    from glassfleet.contract import catalogue

    try:
        chosen = catalogue.load(spec.get("scheme", DEFAULT)).Parameters.model_validate(parameters)
    except ValidationError:
        return False  # the coordinator says what is wrong with them
    return getattr(chosen, "group_rows", 0) == 1
