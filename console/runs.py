"""``glassfleet run``: federated trainings, asked of the coordinator over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import (
    config_option,
    count_or_share,
    is_quiet,
    json_option,
    parse_parameters,
    print_json,
    read_toml,
    state_dir_option,
)
from schemas.errors import RunFailedError, UsageError

if TYPE_CHECKING:
    from glassfleet.memory import Memory

F = TypeVar("F", bound=Callable[..., Any])

BOUNDS_HELP = (
    'JSON file: {"column": [low, high]}, or {"column": {"low": 0, "high": 60, "unit": "m/s", "terms": ["slow", '
    '"fast"]}}, every part optional.'
)

MEMORY_HELP = (
    "JSON or TOML file: differences and lags of columns as further inputs, "
    '{"memory": [{"input": "speed", "difference": 1}], "drive": "trip", "time": "second"}; or qoe, the case study\'s.'
)


def coordinator_options(function: F) -> F:
    """Add ``--coordinator URL``, ``--token TEXT`` and ``--state-dir DIR``."""
    function = state_dir_option(function)
    function = click.option(
        "--token", envvar="GLASSFLEET_TOKEN", help="For actions. Default: what is in STATE_DIR/api-token."
    )(function)
    return click.option(
        "--coordinator",
        envvar="GLASSFLEET_COORDINATOR",
        metavar="URL",
        help="The coordinator's HTTP address. Default: what is in STATE_DIR/api-url.",
    )(function)


def _coordinator_wait(function: F) -> F:
    return click.option(
        "--coordinator-wait", type=click.FloatRange(0, 86400), default=60.0, show_default=True, metavar="SECONDS",
        help="With --wait: how long the coordinator may be away, to be started again, before this gives up.",
    )(function)  # fmt: skip


@click.group()
def run() -> None:
    """Start, list, show and cancel federated trainings.

    \b
    Examples:
      glassfleet run start --scheme frt --model qoe --wait
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks


@run.command()
@coordinator_options
@click.option("--scheme", default="frt", show_default=True, help="What to learn: a scheme of the catalogue.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option(
    "--exact", is_flag=True, help="All nullification off: the model then equals the central one, bit for bit."
)
@click.option(
    "--model", "model_name", default="model", show_default=True, metavar="NAME", help="Name to publish under."
)
@click.option("--run", "run_id", default="", metavar="ID", help="Id of the run. Default: made up.")
@click.option(
    "--participation",
    type=click.Choice(["cohort", "elastic"]),
    help="One set of vehicles for the whole model, or whoever answers each round. Default: cohort, or the scheme's "
    "only one.",
)
@click.option(
    "--min-agents", default="1", show_default=True, metavar="N", help="Quorum: a number, or a share like 0.5."
)
@click.option("--target-agents", type=int, metavar="N", help="Close a round as soon as so many have answered.")
@click.option("--sample", metavar="N", help="Ask only so many: a number, or a share like 0.5.")
@click.option("--deadline", type=float, default=30.0, show_default=True, metavar="SECONDS", help="Per round.")
@click.option("--grace", type=float, default=0.0, show_default=True, metavar="SECONDS", help="Late answers that count.")
@click.option(
    "--on-missed-quorum",
    type=click.Choice(["extend", "fail"]),
    default="extend",
    show_default=True,
    help="With fewer answers than --min-agents at the deadline.",
)
@click.option("--extensions", type=int, default=2, show_default=True, help="How often a round is extended.")
@click.option("--max-restarts", type=int, default=5, show_default=True, help="Replays after losing vehicles.")
@click.option("--gather-agents", type=int, default=1, show_default=True, metavar="N", help="Wait until so many are up.")
@click.option("--gather-timeout", type=float, default=60.0, show_default=True, metavar="SECONDS", help="Wait for them.")
@click.option("--features", metavar="A,B,...", help="Input columns. Default: those that the agents offer.")
@click.option("--target", metavar="COLUMN", help="Target column. Default: the agents' target.")
@click.option(
    "--domain", "domain_file", type=click.Path(path_type=Path), metavar="FILE",
    help="JSON file: limits (units, terms) of all variables, as `model show --json` has it under document.domain.",
)  # fmt: skip
@click.option("--bounds", "bounds_file", type=click.Path(path_type=Path), metavar="FILE", help=BOUNDS_HELP)
@click.option("--memory", "memory_file", type=click.Path(path_type=Path), metavar="FILE", help=MEMORY_HELP)
@click.option("--seed", type=int, default=0, show_default=True, help="For what is random at the coordinator.")
@click.option(
    "--rollout",
    metavar="SHARE|FILE",
    help="Let this share of the fleet (or the stages of a JSON or TOML file) try the model before it becomes current.",
)
@click.option("--wait", is_flag=True, help="Follow the rounds until the run ends; exit code 6 when it fails.")
@_coordinator_wait
@json_option
@config_option
def start(**options: Any) -> None:
    """Start a run.

    Without --domain the fleet finds the variables' limits first, federatedly, within --bounds where they are given.

    \b
    Examples:
      glassfleet run start --scheme frt --param n_sets=5 --min-agents 0.5 --deadline 10 --wait
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.client import Coordinator  # noqa: PLC0415 - the extra `operator` is asked for when it is used

    spec = _spec(options)
    api = Coordinator(options["coordinator"], options["token"], options["state_dir"])
    started = api.post("/api/runs", spec)
    run_id = str(started["run"])
    if not options["wait"]:
        if options["as_json"]:
            print_json({"run": run_id})
        else:
            click.echo(f"{run_id} started. Follow it: glassfleet run show {run_id} --wait")
        return
    say = _sayer(as_json=options["as_json"])
    _finish(follow(api, run_id, say, patience=options["coordinator_wait"]), as_json=options["as_json"])


@run.command("list")
@coordinator_options
@json_option
@config_option
def list_runs(coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool) -> None:
    """List all runs, oldest first.

    \b
    Examples:
      glassfleet run list --json
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.client import Coordinator  # noqa: PLC0415

    runs = _items(Coordinator(coordinator, token, state_dir).get("/api/runs"), "runs")
    if as_json:
        print_json(runs)
        return
    if not runs:
        click.echo("No runs yet. Start one: glassfleet run start --scheme frt")
    for item in runs:
        click.echo(_line_of_run(item))


@run.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@click.option("--wait", is_flag=True, help="Follow the rounds until the run ends; exit code 6 when it fails.")
@_coordinator_wait
@json_option
@config_option
def show(
    run_id: str,
    coordinator: str | None,
    token: str | None,
    state_dir: Path,
    coordinator_wait: float,
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Show one run: its rounds, who was in, who dropped and why.

    \b
    Examples:
      glassfleet run show run-1f2e3d4c5b6a
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.client import Coordinator  # noqa: PLC0415

    api = Coordinator(coordinator, token, state_dir)
    if wait:
        _finish(follow(api, run_id, _sayer(as_json=as_json), patience=coordinator_wait), as_json=as_json)
        return
    status = api.run(run_id)
    if as_json:
        print_json(status)
        return
    click.echo(_line_of_run(status))
    for item in status.get("rounds", []):
        click.echo(line_of_round(item))
    for line in (status.get("progress") or {}).get("lines", []):
        click.echo(f"    {line}")
    click.echo(f"  cohort: {', '.join(status.get('cohort') or []) or '-'}")


@run.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@json_option
@config_option
def cancel(run_id: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool) -> None:
    """Cancel a run; its vehicles are told at once.

    \b
    Examples:
      glassfleet run cancel run-1f2e3d4c5b6a
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.client import Coordinator  # noqa: PLC0415

    answer = Coordinator(coordinator, token, state_dir).post(f"/api/runs/{run_id}/cancel")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{run_id} cancelled")


def follow(
    api: Any, run_id: str, say: Callable[[str], Any], *, poll: float = 0.2, patience: float = 0.0
) -> dict[str, Any]:
    """Say each round of a run as it closes; return the run once it has ended.

    Parameters
    ----------
    api : console.client.Coordinator
    say : callable
        Takes one line.
    poll : float
        Seconds between looks.
    patience : float
        Seconds, at least 0, that the coordinator may be away at a time: started again, it finishes the run.

    Raises
    ------
    CoordinatorError
        It was away for longer.
    """
    said = 0
    while True:
        status = _patiently(api, run_id, patience)
        for item in status.get("rounds", [])[said:]:
            said += 1
            say(line_of_round(item))
        if status.get("state") == "ended":
            return status
        time.sleep(poll)


def _patiently(api: Any, run_id: str, patience: float) -> dict[str, Any]:
    """Return the run, as soon as the coordinator answers."""
    from console.client import UnreachableError  # noqa: PLC0415 - the extra `operator` is asked for when it is used

    gone: float | None = None
    while True:
        try:
            status: dict[str, Any] = api.run(run_id)
        except UnreachableError:
            now = time.monotonic()
            if gone is None:
                gone = now
                if patience:
                    _to_stderr(f"no coordinator answers at {api.url}: trying for {patience:g} s")
            if now - gone >= patience:
                raise
            time.sleep(min(0.5, patience))
            api.look_again()
        else:
            return status


def line_of_round(item: dict[str, Any]) -> str:
    """Return one round in one line."""
    dropped = item.get("dropped_agents") or {}
    dropped = {**dropped, **dict.fromkeys(item.get("late_agents") or (), "too late")}
    why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted(dropped.items()))
    attempt = f" (attempt {item['attempt']})" if int(item.get("attempt", 1)) > 1 else ""
    where = f"{item.get('phase', ''):<10} {item.get('number', '?'):>3}{attempt}  {item.get('kind', ''):<9}"
    counts = "  ".join(f"{name} {item.get(name, 0):>2}" for name in ("asked", "accepted", "late", "dropped"))
    return f"  {where} {counts}  {float(item.get('seconds', 0.0)):6.2f} s" + (f"  [{why}]" if why else "")


def _finish(status: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(status)
    else:
        click.echo(_line_of_run(status))
    name, outcome = status.get("run"), status.get("outcome")
    if outcome == "finished" and status.get("model") is None:
        raise RunFailedError(f"run {name} finished, but its model is not published: see the coordinator's log")
    if outcome != "finished":
        raise RunFailedError(f"run {name} {outcome}: {status.get('reason') or 'no reason given'}")


def _line_of_run(status: dict[str, Any]) -> str:
    model = status.get("model")
    made = f"  model {model['name']} v{model['version']} {model['digest'][:12]}" if model else ""
    reason = f" ({status['reason']})" if status.get("reason") else ""
    state = status.get("outcome") or status.get("phase") or status.get("state") or "?"
    rounds = status.get("rounds")
    counted = f"  {len(rounds)} rounds" if isinstance(rounds, list) else ""
    return f"{status.get('run')}  {status.get('scheme', '')}  {state}{reason}{counted}{made}"


def _items(answer: Any, key: str) -> list[dict[str, Any]]:
    found = answer.get(key, []) if isinstance(answer, dict) else answer
    return list(found) if isinstance(found, list) else []


def _sayer(*, as_json: bool) -> Callable[[str], Any]:
    """Return where rounds are told: on stdout, unless that is for JSON or the user wants the result only."""
    return _to_stderr if as_json or is_quiet() else click.echo


def _to_stderr(line: str) -> None:
    click.echo(line, err=True)


def _spec(options: dict[str, Any]) -> dict[str, Any]:
    """Return the run's specification from the options; the coordinator checks it."""
    parameters = parse_parameters(options["parameters"])
    if options["exact"]:
        parameters = _exact(options["scheme"], parameters)
    policy: dict[str, Any] = {
        name: options[name]
        for name in (
            *("deadline", "grace", "on_missed_quorum", "extensions", "max_restarts"),
            *("gather_agents", "gather_timeout"),
        )
    }
    policy["min_agents"] = count_or_share(options["min_agents"], "--min-agents")
    policy["target"] = options["target_agents"]
    policy["sample"] = None if options["sample"] is None else count_or_share(options["sample"], "--sample")
    spec: dict[str, Any] = {
        "run": options["run_id"],
        "scheme": options["scheme"],
        "parameters": parameters,
        "policy": policy,
        "model": options["model_name"],
        "target": options["target"],
        "seed": options["seed"],
    }
    if options["participation"] is not None:
        spec["participation"] = options["participation"]
    if options["rollout"] is not None:
        from console.model_registry import plan_of  # noqa: PLC0415 - it imports this module

        spec["rollout"] = plan_of(options["rollout"])
    if options["features"]:
        spec["features"] = [name.strip() for name in options["features"].split(",") if name.strip()]
    for key in ("domain", "bounds"):
        if options[f"{key}_file"] is not None:
            spec[key] = json_file(options[f"{key}_file"], key)
    if options["memory_file"] is not None:
        spec["memory"] = memory_file(options["memory_file"]).to_document()
    return spec


def memory_file(path: Path) -> Memory:
    """Read the declaration of memory inputs, JSON or TOML; raises UsageError."""
    from glassfleet.memory import Memory  # noqa: PLC0415 - numpy comes with it

    if path == Path("qoe"):
        from qoe.windows import MEMORY  # noqa: PLC0415 - only where it is asked for

        return MEMORY
    return Memory.from_document(read_toml(path) if path.suffix == ".toml" else json_file(path, "memory"))


def _exact(scheme: str, parameters: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError  # noqa: PLC0415

    from glassfleet import catalogue  # noqa: PLC0415

    loaded = catalogue.load(scheme)
    try:
        exact = loaded.exact(loaded.Parameters.model_validate(parameters))
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"--param {where}: {first['msg']}") from fault
    return dict(exact.model_dump(mode="json"))


def json_file(path: Path, what: str) -> Any:
    """Read the JSON file of option --`what`; raises UsageError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"--{what}: cannot read {path}: {fault.strerror}") from fault
    except ValueError as fault:
        raise UsageError(f"--{what}: {path} is not valid JSON: {fault}") from fault
