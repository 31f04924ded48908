"""``glassfleet run``: federated trainings, asked of the coordinator over HTTP, and whom they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from console.common import json_option, options_as, print_json, tell
from console.lazy import is_quiet
from console.operator.connection import (
    PATIENCE,
    asked,
    coordinator_options,
    follow_run,
    line_of_round,
    line_of_run,
    not_asked_lines,
    posted,
    private_lines,
    times,
)
from console.operator.rollouts import after_gate, in_words, is_waiting, refused_from_sums, rollout_of
from console.operator.schedules import schedule
from console.operator.specification import OPENS_ROWS, RunOptions, opens_rows, run_options, spec_of
from schemas.errors import NotFoundError, RunFailedError, UsageError
from schemas.rounds import bytes_each
from schemas.text import printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient


@click.group()
def run() -> None:
    """Start, list, show and cancel federated trainings.

    \b
    Examples:
      glassfleet run start --model qoe --wait
    """


@dataclass(frozen=True, kw_only=True)
class StartOptions(RunOptions):
    """Of ``glassfleet run start``."""

    run_id: str | None
    wait: bool


@run.command()
@run_options
@click.option("--run", "run_id", metavar="ID", help="Id of the run.  [default: made up]")
@click.option(
    "--wait",
    is_flag=True,
    help="Follow the rounds until the run ends and its model is current; exit code 6 when it fails, or stays a "
    "candidate.",
)
@json_option
@options_as(StartOptions)
def start(options: StartOptions) -> None:
    """Start a run.

    \b
    Examples:
      glassfleet run start --model qoe --min-agents 0.5 --deadline 10 --policy policy.toml --wait
    """
    spec = spec_of(options)
    if options.run_id is not None:
        spec["run"] = options.run_id
    api = options.api
    patience = PATIENCE if options.wait else 0.0
    notes = [OPENS_ROWS] * opens_rows(spec) + ([] if is_quiet() else quorum_lines(api, spec, patience))
    started = posted(api, "/api/runs", spec, patience)
    for note in [*notes, *filter(None, [started.get("warning")])]:  # not of a run that is refused
        click.echo(printable(note), err=True)
    run_id = str(started["run"])
    if not options.wait:
        tell(f"{run_id} started. Follow it: glassfleet run show {run_id} --wait", as_json=options.as_json, run=run_id)
        return
    _finish(api, run_id, as_json=options.as_json, patience=patience)


@run.command("list")
@coordinator_options
@json_option
def list_runs(api: CoordinatorClient, *, as_json: bool) -> None:
    """List all runs with their times (UTC), oldest first, a line each.

    \b
    Examples:
      glassfleet run list --json
    """
    runs = _items(api.get("/api/runs"), "runs")
    if as_json:
        print_json(runs)
        return
    if not runs:
        click.echo("No runs yet. Start one: glassfleet run start")
    for item in runs:
        click.echo(f"{line_of_run(item)}  {times(item)}")


@run.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@click.option("--wait", is_flag=True, help="Follow the run and its model, as `run start --wait`.")
@json_option
def show(run_id: str, api: CoordinatorClient, *, wait: bool, as_json: bool) -> None:
    """Show one run: its rounds, who was in, who dropped and why. `last` is the run that was started last.

    \b
    Examples:
      glassfleet run show run-1f2e3d4c5b6a
      glassfleet run show last
    """
    run_id = api.run_named(run_id)
    if wait:
        _finish(api, run_id, as_json=as_json, patience=PATIENCE)
        return
    status = api.run(run_id)
    if as_json:
        print_json(status)
        return
    click.echo(line_of_run(status))
    if status.get("warning"):
        click.echo(printable(f"  {status['warning']}"))
    if status.get("model") and (result := rollout_of(api, status["model"], 0.0)) is not None:
        click.echo(f"  {in_words(result)}")
    for item in status.get("rounds", []):
        click.echo(line_of_round(item))
    if model := status.get("model"):  # what was grown is not yet pruned
        click.echo(f"  its rules: glassfleet model rules {model['name']}@{model['version']}")
    for line in () if model else (status.get("progress") or {}).get("lines", []):
        click.echo(f"    {line}")
    click.echo(f"  cohort: {', '.join(status.get('cohort') or []) or '-'}")
    to_each, from_each = bytes_each(status.get("rounds") or [])
    click.echo(
        f"  bytes: each vehicle got {to_each:,} in requests and sent {from_each:,} in answers; receipts, seals and the "
        "model are not counted"
    )
    for line in (*private_lines(status), *not_asked_lines(status)):
        click.echo(line)
    _tell_why_few(status)
    _tell_notes(status)


@run.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@json_option
def cancel(run_id: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Cancel a run; its vehicles are told at once.

    One that was cancelled already is no error; one that has ended otherwise is refused (exit code 2).

    \b
    Examples:
      glassfleet run cancel run-1f2e3d4c5b6a
    """
    words = "had been cancelled already" if api.cancel(run_id) else "cancelled"
    tell(f"{run_id} {words}", as_json=as_json, run=run_id)


def _finish(api: CoordinatorClient, run_id: str, *, as_json: bool, patience: float) -> None:
    """Follow a run, and the gate of its model, to their ends."""
    status = follow_run(api, run_id, as_json=as_json, patience=patience)
    if not as_json:
        _tell_notes(status)
        for line in (*private_lines(status), *not_asked_lines(status)):
            click.echo(line)
        _tell_why_few(status)
        click.echo(line_of_run(status))
    model = status.get("model")
    result = None if model is None else after_gate(api, model, as_json=as_json, patience=patience)
    if result is not None:  # the vehicles have scored the model meanwhile
        before, status = status, asked(api, f"/api/runs/{run_id}", patience)
        if not as_json:
            _tell_notes(status, before)
    if as_json:
        print_json({**status, "rollout": result})
    elif result is not None and not is_waiting(result):
        click.echo(in_words(result))
    _check_end(api, status, result, patience)


def _check_end(api: CoordinatorClient, status: dict[str, Any], result: dict[str, Any] | None, patience: float) -> None:
    """Raise RunFailedError unless the run brought a model that did not stay a candidate."""
    name, outcome, model = status.get("run"), status.get("outcome"), status.get("model")
    if outcome == "finished" and model is None:
        raise RunFailedError(f"run {name} finished, but its model is not published: see the coordinator's log")
    if outcome != "finished":
        raise RunFailedError(f"run {name} {outcome}: {status.get('reason') or 'no reason given'}")
    if result is not None and is_waiting(result):
        raise RunFailedError(in_words(result))
    is_private = (status.get("spec") or {}).get("private") is not None
    if is_private and model is not None and (why := refused_from_sums(api, model, patience)):
        raise RunFailedError(why)


def _tell_why_few(status: dict[str, Any]) -> None:
    """Say why the model has few rules, where it has."""
    if why := (status.get("summary") or {}).get("why_few"):
        click.echo(printable(f"  {why}"))


def _tell_notes(status: dict[str, Any], before: dict[str, Any] | None = None) -> None:
    """Say which vehicles stand out, and how to learn without them; of those that did `before`, it was said."""
    known = (before or {}).get("notes") or []
    notes = [note for note in status.get("notes") or [] if note not in known]
    for line in notes:
        click.echo(printable(f"  {line}"))
    if notes:
        click.echo("  (to learn without a vehicle: glassfleet run start --without ID)")


def _items(answer: Any, key: str) -> list[dict[str, Any]]:
    result = answer.get(key, []) if isinstance(answer, dict) else answer
    return list(result) if isinstance(result, list) else []


run.add_command(schedule)

_NAMED = 5


def quorum_lines(api: CoordinatorClient, spec: dict[str, Any], patience: float) -> list[str]:
    """Return how many vehicles are up, what none of them has, and whether they could learn privately, in lines.

    Parameters
    ----------
    api : console.client.CoordinatorClient
    spec : dict
        What is to be started.
    patience : float
        Seconds, at least 0, to wait for the coordinator.

    Raises
    ------
    CoordinatorError
        It is not there.
    """
    vehicles = asked(api, "/api/agents", patience)
    if not vehicles:
        return []
    down = sorted(str(each["agent"]) for each in vehicles if each["status"] != "up")
    up = len(vehicles) - len(down)
    lacks = f" (down: {', '.join(down[:_NAMED])}{f' and {len(down) - _NAMED} more' if len(down) > _NAMED else ''})"
    known = f"{up} of {len(vehicles)} known vehicles {'is' if up == 1 else 'are'} up{lacks if down else ''}"
    wanted, target = (spec.get("rounds") or {}).get("gather_agents") or 1, spec.get("target")
    waits = f"the run waits for {wanted}" if wanted > 1 else "the run waits"
    lines = [f"{known}: {'the model will rest on those that answer' if up >= wanted else waits}"]
    if target and all(each.get("target") != target for each in vehicles):
        lines.append(f"none of them has the target {target!r}")
    if strangers := sorted({*spec.get("without", ())} - {each["agent"] for each in vehicles}):
        lines.append(f"not known here, left out if they come: {', '.join(strangers)}")
    lines = [printable(line) for line in lines]
    # A private run does not find out which texts there are.
    texts = "domain" not in spec and any("words" in each.get("kinds", ()) for each in vehicles)
    if not texts and could_be_private(spec, up):
        lines.append("this fleet could learn privately, nobody would see a single vehicle's numbers: --private")
    return lines


def could_be_private(spec: dict[str, Any], vehicles: int) -> bool:
    """Return whether a run that is not private could be, with so many vehicles up."""
    # What is needed to know is loaded when it is asked.
    from pydantic import ValidationError

    from glassfleet.private.groups import LEAST_FLOOR

    if spec.get("private") is not None or vehicles < LEAST_FLOOR:
        return False
    try:
        from coordinator.engine import Engine
        from coordinator.specification.run import RunSpec

        Engine().check_start(RunSpec.from_document({**spec, "private": {}}))
    except (ModuleNotFoundError, ValidationError, UsageError, NotFoundError):
        # A desk can do without the coordinator's packages; if it cannot be meant as written, the coordinator says why.
        return False
    return True
