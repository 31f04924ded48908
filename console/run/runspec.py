"""What a run is asked to be: from the options of ``glassfleet run start`` to what the coordinator takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import count_or_share, json_file, parse_parameters, read_toml
from console.run.options import RunOptions
from schemas.errors import UsageError

if TYPE_CHECKING:
    from glassfleet.contract.scheme import Scheme
    from glassfleet.data.lags import Memory

OPENS_ROWS = (
    "in this run vehicles use their rows as they are. Whoever reads the messages at the broker or the coordinator can "
    "compute whole rows from them, inputs and target: up to two thirds of a small vehicle's, in our tests. Without "
    "--exact vehicles condense their rows first, and the same attacks find none."
)
"""Said before such a run starts."""


def spec_of(options: RunOptions) -> dict[str, Any]:
    """Return the run's specification from the options; the coordinator checks it."""
    parameters = parse_parameters(options.parameters)
    if options.exact:
        from glassfleet.contract import catalogue  # numpy comes with it

        scheme = catalogue.load(options.scheme)
        parameters = scheme.exact(checked_parameters(scheme, parameters)).model_dump(mode="json")
    policy = {
        "deadline": options.deadline,
        "grace": options.grace,
        "on_missed_quorum": options.on_missed_quorum,
        "extensions": options.extensions,
        "max_restarts": options.max_restarts,
        "gather_agents": options.gather_agents,
        "gather_timeout": options.gather_timeout,
        "min_agents": None if options.min_agents is None else count_or_share(options.min_agents, "--min-agents"),
        "target": options.target_agents,
        "sample": None if options.sample is None else count_or_share(options.sample, "--sample"),
    }
    spec: dict[str, Any] = {
        "scheme": options.scheme,
        "parameters": parameters,
        "policy": policy,
        "model": options.model_name,
        "target": options.target,
        "seed": options.seed,
        "max_rows_each": options.max_rows_each,
        "window": window_of(options.last, options.time),
        "without": list(options.without),
        "readmit": list(options.readmit),
    }
    asked = {"floor": options.floor, "company": options.company, "support": options.support}
    terms = {name: given for name, given in asked.items() if given is not None}
    if options.private:
        spec["private"] = terms
    elif terms:
        raise UsageError(f"--{next(iter(terms))} goes with --private")
    if options.participation is not None:
        spec["participation"] = options.participation
    if options.rollout is not None:
        spec["rollout"] = plan_of(options.rollout)
    if options.features:
        spec["features"] = [name.strip() for name in options.features.split(",") if name.strip()]
    for key, file in (("domain", options.domain_file), ("bounds", options.bounds_file)):
        if file is not None:
            spec[key] = json_file(file, key)
    if options.memory_file is not None:
        spec["memory"] = memory_file(options.memory_file).to_document()
    return spec


def window_of(text: str | None, time: str) -> dict[str, Any] | None:
    """Read ``--last``: so many rows, or days with a d; raises UsageError."""
    if text is None:
        if time:
            raise UsageError("--time goes with --last")
        return None
    number = text.removesuffix("d")
    try:
        window: dict[str, Any] = {"rows": int(number)} if number == text else {"days": float(number)}
    except ValueError:
        raise UsageError(f"--last {text!r}: write a number of rows (5000) or of days (7d)") from None
    return window | ({"time": time} if time else {})


def memory_file(path: Path) -> Memory:
    """Read the declaration of lagged features, JSON or TOML; raises UsageError."""
    from glassfleet.data.lags import Memory  # numpy comes with it

    if path == Path("qoe"):
        from glassfleet.data import presets  # only where it is asked for

        return presets.memory(presets.QOE)
    return Memory.from_document(read_toml(path) if path.suffix == ".toml" else json_file(path, "memory"))


def checked_parameters(scheme: Scheme, given: Mapping[str, Any]) -> Any:
    """Return the parameters of a scheme; raises UsageError that names the option at fault, and what there is."""
    from pydantic import ValidationError

    from glassfleet.data.parameters import parameter_fault

    try:
        return scheme.Parameters.model_validate(given)
    except ValidationError as fault:
        raise UsageError(parameter_fault(scheme.name, scheme.Parameters, fault, "--param ")) from fault


def opens_rows(spec: dict[str, Any]) -> bool:
    """Return whether the vehicles of a run would not condense their rows, where the scheme can."""
    if "private" in spec:
        return False
    parameters = spec["parameters"]
    if not {"min_rows", "nullify"} & set(parameters):
        return False  # the schemes' defaults condense
    from pydantic import ValidationError

    from glassfleet.contract import catalogue

    try:
        chosen = catalogue.load(spec["scheme"]).Parameters.model_validate(parameters)
    except ValidationError:
        return False  # the coordinator says what is wrong with them
    return getattr(chosen, "group_rows", 0) == 1


def plan_of(text: str) -> dict[str, Any]:
    """Read ``--rollout``: a file (JSON or TOML), or the share of the first stage, with 0.5 and 1 after it.

    Raises
    ------
    UsageError
        It is neither. Shares and thresholds are checked by the coordinator.
    """
    try:
        first = float(text)
    except ValueError:
        path = Path(text)
        plan = read_toml(path) if path.suffix == ".toml" else json_file(path, "rollout")
        if not isinstance(plan, dict):
            raise UsageError(f"--rollout {text}: write a JSON object or TOML, e.g. stages = [0.2, 0.5, 1.0]") from None
        return plan
    return {"stages": [first, *(share for share in (0.5, 1.0) if share > first)]}
