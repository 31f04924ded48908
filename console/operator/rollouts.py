"""``glassfleet model rollout``: a model tried on a part of the fleet, or on all of it, which is the gate of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import (
    json_option,
    options_as,
    policy_option,
    print_json,
    reason_option,
    tell,
    version_argument,
)
from console.operator.connection import (
    PATIENCE,
    ROLLOUT_ENDED,
    CoordinatorOptions,
    asked,
    coordinator_options,
    follow_rollout,
    patiently,
    posted,
)
from console.operator.specification import document_of
from console.progress import progress
from schemas.errors import RunFailedError, UsageError

if TYPE_CHECKING:
    from console.client import CoordinatorClient


@click.group()
def rollout() -> None:
    """Try a model on a part of the fleet first; promote it or roll it back by what the vehicles report.

    \b
    Examples:
      glassfleet model rollout start qoe@4 --share 0.2 --share 0.5 --share 1 --wait
    """


@dataclass(frozen=True, kw_only=True)
class RolloutOptions(CoordinatorOptions):
    """Of ``glassfleet model rollout start``."""

    chosen: tuple[str, int]
    shares: tuple[float, ...]
    deadline: float | None
    policy_file: Path | None
    wait: bool
    as_json: bool


@rollout.command()
@version_argument
@click.option(
    "--share", "shares", type=float, multiple=True, metavar="SHARE",
    help="A stage: this share of the fleet tries it; repeatable, rising. Default: 0.2, 0.5, 1.",
)  # fmt: skip
@click.option("--deadline", type=float, metavar="SECONDS", help="For each stage. Default: 3600.")
@policy_option("Thresholds and stages, TOML or JSON.")
@click.option("--wait", is_flag=True, help="Follow it to its end; exit code 6 unless it was promoted.")
@coordinator_options
@json_option
@options_as(RolloutOptions)
def start(options: RolloutOptions) -> None:
    """Start trying a version that is registered already.

    \b
    Examples:
      glassfleet model rollout start qoe@4 --share 0.1 --share 1 --deadline 600
    """
    plan = {} if options.policy_file is None else document_of(options.policy_file, "policy")
    if options.deadline is not None:
        plan["deadline"] = options.deadline
    if options.shares:
        plan["stages"] = list(options.shares)
    api = options.api
    name, version = options.chosen
    patience = PATIENCE if options.wait else 0.0
    wanted = {"name": name, "version": version, "plan": plan}
    started = posted(api, "/api/rollouts", wanted, patience)["rollout"]
    if not options.wait:
        text = f"{started} started. Look at it: glassfleet model rollout status {name}"
        tell(text, as_json=options.as_json, rollout=started)
        return
    _finish(api, name, started, as_json=options.as_json, patience=patience)


@rollout.command()
@click.argument("name", required=False)
@click.option("--wait", is_flag=True, help="Follow the newest to its end; exit code 6 unless it was promoted.")
@coordinator_options
@json_option
def status(name: str | None, api: CoordinatorClient, *, wait: bool, as_json: bool) -> None:
    """Show the rollouts of a model, or of all: stages, reports, verdicts.

    \b
    Examples:
      glassfleet model rollout status qoe
    """
    if wait:
        if name is None:
            raise UsageError("--wait follows one model's rollout: give its NAME")
        result = asked(api, f"/api/rollouts/{name}", PATIENCE)
        if not result:
            raise UsageError(f"there is no rollout of {name} to wait for")
        _finish(api, name, result[-1]["rollout"], as_json=as_json, patience=PATIENCE)
        return
    result = api.get("/api/rollouts" if name is None else f"/api/rollouts/{name}")
    if as_json:
        print_json(result)
        return
    if not result:
        click.echo("No rollouts yet. Start one: glassfleet model rollout start NAME@VERSION")
    for each in result:
        click.echo("\n".join(rollout_lines(each)))


@rollout.command()
@click.argument("name")
@reason_option()
@coordinator_options
@json_option
def pause(name: str, reason: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Let a rollout stand still: its deadline waits, reports are taken, nothing is judged.

    \b
    Examples:
      glassfleet model rollout pause qoe --reason "roadworks"
    """
    _act(api, name, "pause", {"reason": reason}, as_json=as_json)


@rollout.command()
@click.argument("name")
@coordinator_options
@json_option
def resume(name: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Let a paused rollout go on.

    \b
    Examples:
      glassfleet model rollout resume qoe
    """
    _act(api, name, "resume", None, as_json=as_json)


@rollout.command()
@click.argument("name")
@reason_option()
@coordinator_options
@json_option
def stop(name: str, reason: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """End a rollout: the candidate is withdrawn, the current model stays.

    \b
    Examples:
      glassfleet model rollout stop qoe --reason "a better one is coming"
    """
    _act(api, name, "stop", {"reason": reason}, as_json=as_json)


def _finish(api: CoordinatorClient, name: str, started: str, *, as_json: bool, patience: float) -> None:
    result = follow_rollout(api, name, started, as_json=as_json, patience=patience)
    text = f"{result['model']} v{result['version']}: {result['phase']} ({result['reason']})"
    tell(text, as_json=as_json, **result)
    if result["phase"] != "promoted":
        raise RunFailedError(f"{name} v{result['version']} was not promoted: {result['phase']} ({result['reason']})")


def _act(api: CoordinatorClient, name: str, action: str, body: dict[str, Any] | None, *, as_json: bool) -> None:
    result = api.post(f"/api/rollouts/{name}/{action}", body)
    tell(f"rollout of {name}: {result['phase']}", as_json=as_json, **result)


_NAMED = 5


def rollout_of(api: CoordinatorClient, model: dict[str, Any], patience: float) -> dict[str, Any] | None:
    """Return the newest rollout of a version, the gate as a rule; None: it became current without.

    Parameters
    ----------
    api : console.client.CoordinatorClient
    model : dict
        ``name`` and ``version``, as a run has them.
    patience : float
        Seconds, at least 0, to wait for the coordinator.

    Raises
    ------
    CoordinatorError
        It is not there.
    """
    name = model["name"]
    with progress("asking what became of the model") as work:
        trials = patiently(api, lambda: api.get(f"/api/rollouts/{name}"), patience, work)
    return next((each for each in reversed(trials) if each["version"] == model["version"]), None)


def after_gate(
    api: CoordinatorClient, model: dict[str, Any], *, as_json: bool, patience: float
) -> dict[str, Any] | None:
    """Return the rollout of a version as `rollout_of`, a gate once it has ended: that takes two minutes at most."""
    trial = rollout_of(api, model, patience)
    if trial is None or not trial["plan"].get("gate"):
        return trial
    return follow_rollout(api, model["name"], trial["rollout"], as_json=as_json, patience=patience)


def refused_from_sums(api: CoordinatorClient, model: dict[str, Any], patience: float) -> str:
    """Return why the model of a private run stayed a candidate, in one line; empty: it did not.

    No vehicle tries it: the run's summed scores decide as it ends.
    """
    name, version = model["name"], model["version"]
    with progress("asking what became of the model") as work:
        history = patiently(api, lambda: api.get(f"/api/models/{name}/history"), patience, work)
    if (history["candidate"] or {}).get("version") != version:
        return ""
    reasons = [each.get("reason", "") for each in history["decisions"] if each.get("version") == version]
    return _stayed(name, version, reasons[-1] if reasons else "")


def is_waiting(trial: dict[str, Any] | None) -> bool:
    """Whether a version did not pass the gate, and waits for an operator."""
    return trial is not None and bool(trial["plan"].get("gate")) and trial["phase"] in {"rolled-back", "stopped"}


def beside(champion: int) -> str:
    """Return what a version is compared with; 0: no version."""
    return f"v{champion}" if champion else "the constant"


def in_words(trial: dict[str, Any]) -> str:
    """Return in one line what became of a version."""
    name, version, reason = trial["model"], trial["version"], trial["reason"]
    label = f"{name} v{version}"
    if trial["phase"] == "promoted":
        return f"{label} is current: {reason}"
    if is_waiting(trial):
        return _stayed(name, version, reason)
    if trial["phase"] not in ROLLOUT_ENDED:
        return f"{label} is being tried: glassfleet model rollout status {name} --wait"
    return f"{label} is not current: {trial['phase']}" + (f" ({reason})" if reason else "")


def _stayed(name: str, version: int, reason: str) -> str:
    rows = "Rows for scoring: a column split with train and test. " if "no test rows" in reason else ""
    return (
        f"{name} v{version} did not pass the gate, it stayed a candidate: {reason}. {rows}Make it current all the "
        f"same: glassfleet model promote {name}@{version} --reason TEXT"
    )


def rollout_lines(trial: dict[str, Any]) -> list[str]:
    """Return a rollout as lines of text."""
    lines = [
        f"{trial['rollout']}  {trial['model']} v{trial['version']} beside {beside(trial['champion'])}  {trial['phase']}"
        + (f"  ({trial['reason']})" if trial["reason"] else "")
    ]
    for number, stage in enumerate(trial["stages"], 1):
        text = stage["verdict"] or (
            f"open, {trial['needed']} needed, {trial['awaited']} still awaited"
            + ("" if trial["remaining"] is None else f", {trial['remaining']:.0f} s left")
        )
        cannot = f", {stage['cannot']} cannot" if stage["cannot"] else ""
        lines.append(
            f"  stage {number} of {len(trial['plan']['stages'])}  {stage['share']:.0%}  asked {len(stage['asked'])}, "
            f"reported {stage['reported']}{cannot}  {text}"
        )
    if trial["phase"] == "opening":
        lines.append(
            f"  stage {len(trial['stages']) + 1} of {len(trial['plan']['stages'])}  waits for vehicles that are up"
        )
    reasons: dict[str, list[str]] = {}
    for agent, why in trial["cannot"].items():
        reasons.setdefault(why, []).append(agent)
    for why, agents in reasons.items():
        more = f" and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
        lines.append(f"  cannot score it: {', '.join(agents[:_NAMED])}{more} ({why})")
    return lines
