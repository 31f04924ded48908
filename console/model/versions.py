"""What a model's name stands for: ``model history|diff|promote|rollback``, and ``glassfleet rollout``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.broker_discovery import broker_url
from console.common import (
    broker_options,
    config_option,
    coordinator_options,
    count_or_share,
    json_option,
    print_json,
    security_options,
)
from console.run.follow import asked, coordinator_wait_option, follow_rollout, posted
from console.run.gate import beside, rollout_lines
from console.run.runspec import plan_of
from console.tables import printable
from schemas.errors import RunFailedError, UsageError
from schemas.trial import ALL

if TYPE_CHECKING:
    from console.client import Coordinator
    from glassfleet.scheme import Model
    from schemas.record import ModelRecord

_PAST = {"pause": "paused", "resume": "resumed", "stop": "stopped", "superseded": "superseded"}


@click.command()
@click.argument("name")
@coordinator_options
@json_option
@config_option
def history(name: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool) -> None:
    """Show what a name stood for, when and why: publications, promotions, rollbacks, rollouts.

    \b
    Examples:
      glassfleet model history qoe
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    told = _api(coordinator, token, state_dir).get(f"/api/models/{name}/history")
    if as_json:
        print_json(told)
        return
    from schemas.record import CENTRAL  # noqa: PLC0415 - loaded when used

    champion = "reference" if name.endswith(f".{CENTRAL}") else "champion"
    for alias, word in (("current", champion), ("candidate", "candidate")):
        pointer = told[alias]
        if pointer is not None:
            click.echo(
                f"{word}: {name} v{pointer['version']}  {pointer['digest'][:12]}  sequence {pointer['sequence']}"
            )
            for note in told.get("notes", {}).get(alias, []):
                click.echo(printable(f"  {note}"))
    for each in told["decisions"]:
        line = _line_of_decision(each)
        if line:
            click.echo(line)


@click.command()
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@broker_options
@security_options
@json_option
@config_option
def diff(old: str, new: str, broker: str | None, fleet: str, state_dir: Path, *, as_json: bool) -> None:
    """Show what differs between two models: rules added, gone and changed, parameters, limits, vehicles.

    A and B are NAME@VERSION, NAME (its current version), or files of records as `model show --json` writes them.

    \b
    Examples:
      glassfleet model diff qoe@3 qoe
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.model.difference import difference, difference_lines  # noqa: PLC0415 - numpy comes with it
    from console.model.published import read_record, read_registry  # noqa: PLC0415
    from console.model.signatures import Seals  # noqa: PLC0415
    from glassfleet import catalogue  # noqa: PLC0415

    paths = [Path(text) if ("/" in text or "." in text) and Path(text).is_file() else None for text in (old, new)]
    registry = None if all(paths) else read_registry(broker_url(broker, state_dir), fleet)

    def load(text: str, path: Path | None) -> tuple[ModelRecord, Model]:
        if path is not None:
            record = read_record(path)
            Seals.at_hand().judge(record)
        else:
            assert registry is not None
            name, _, version = text.partition("@")
            if version and not version.isdigit():
                raise UsageError(f"{text!r}: write NAME@VERSION, e.g. qoe@3, or the path of a file")
            record = registry.record(name, int(version) if version else None)
        return record, catalogue.load(record.scheme).from_document(record.document)

    told = difference(load(old, paths[0]), load(new, paths[1]))
    if as_json:
        print_json(told)
        return
    click.echo("\n".join(difference_lines(told)))


@click.command()
@click.argument("name")
@click.argument("version", type=int)
@click.option("--reason", default="", metavar="TEXT", help="Why; vehicles and auditors read it.")
@coordinator_options
@json_option
@config_option
def promote(  # noqa: PLR0917 - click calls it by name
    name: str, version: int, reason: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool
) -> None:
    """Make a version current at once, for the whole fleet; ends a rollout of this model.

    \b
    Examples:
      glassfleet model promote qoe 4 --reason "tried by hand on the test track"
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    api = _api(coordinator, token, state_dir)
    pointer = api.post(f"/api/models/{name}/promote", {"version": version, "reason": reason})
    if as_json:
        print_json(pointer)
        return
    click.echo(f"{name} v{pointer['version']} is current now (sequence {pointer['sequence']})")


@click.command()
@click.argument("name")
@click.option("--to", type=int, metavar="VERSION", help="Default: the version that was current before.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; vehicles and auditors read it.")
@coordinator_options
@json_option
@config_option
def rollback(  # noqa: PLR0917 - click calls it by name
    name: str,
    to: int | None,
    reason: str,
    coordinator: str | None,
    token: str | None,
    state_dir: Path,
    *,
    as_json: bool,
) -> None:
    """Make a lower version current again; vehicles take it because its pointer is newer.

    \b
    Examples:
      glassfleet model rollback qoe --reason "false alarms in tunnels"
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    pointer = _api(coordinator, token, state_dir).post(f"/api/models/{name}/rollback", {"to": to, "reason": reason})
    if as_json:
        print_json(pointer)
        return
    click.echo(f"{name} v{pointer['version']} is current again (sequence {pointer['sequence']}): {reason}")


@click.group()
def rollout() -> None:
    """Try a model on a part of the fleet first; promote it or roll it back by what the vehicles report.

    \b
    Examples:
      glassfleet rollout start qoe 4 --share 0.2 --share 0.5 --share 1 --wait
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks


@rollout.command()
@click.argument("name")
@click.argument("version", type=int)
@click.option(
    "--share", "shares", type=float, multiple=True, metavar="SHARE",
    help="A stage: this share of the fleet tries it; repeatable, rising. Default: 0.2, 0.5, 1.",
)  # fmt: skip
@click.option("--min-reports", metavar="N", help="Reports a stage needs: a number, or a share like 0.5. Default: 0.5.")
@click.option("--max-worse", type=float, metavar="X", help="Error may grow so much on average. Default: 0.05.")
@click.option("--max-worse-share", type=float, metavar="Y", help="So many vehicles may be worse off. Default: 0.25.")
@click.option("--vehicle-worse", type=float, metavar="X", help="Worse off is a vehicle from here on. Default: 0.1.")
@click.option("--deadline", type=float, metavar="SECONDS", help="For each stage. Default: 3600.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="All of this, JSON or TOML.")
@click.option("--wait", is_flag=True, help="Follow it to its end; exit code 6 unless it was promoted.")
@coordinator_wait_option
@coordinator_options
@json_option
@config_option
def start(**options: Any) -> None:
    """Start trying a version that is registered already.

    \b
    Examples:
      glassfleet rollout start qoe 4 --share 0.1 --share 1 --deadline 600
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    plan = {} if options["plan_file"] is None else plan_of(str(options["plan_file"]))
    given = {key: options[key] for key in ("max_worse", "max_worse_share", "vehicle_worse", "deadline")}
    plan |= {key: value for key, value in given.items() if value is not None}
    if options["shares"]:
        plan["stages"] = list(options["shares"])
    if options["min_reports"] is not None:
        plan["min_reports"] = count_or_share(options["min_reports"], "--min-reports")
    api = _api(options["coordinator"], options["token"], options["state_dir"])
    name = options["name"]
    patience = options["coordinator_wait"] if options["wait"] else 0.0
    wanted = {"name": name, "version": options["version"], "plan": plan}
    started = posted(api, "/api/rollouts", wanted, patience)["rollout"]
    if not options["wait"]:
        if options["as_json"]:
            print_json({"rollout": started})
        else:
            click.echo(f"{started} started. Look at it: glassfleet rollout status {name}")
        return
    _finish(api, name, started, as_json=options["as_json"], patience=patience)


@rollout.command()
@click.argument("name", required=False)
@click.option("--wait", is_flag=True, help="Follow the newest to its end; exit code 6 unless it was promoted.")
@coordinator_wait_option
@coordinator_options
@json_option
@config_option
def status(
    name: str | None,
    coordinator: str | None,
    token: str | None,
    state_dir: Path,
    coordinator_wait: float,
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Show the rollouts of a model, or of all: stages, reports, verdicts.

    \b
    Examples:
      glassfleet rollout status qoe
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    api = _api(coordinator, token, state_dir)
    if wait:
        if name is None:
            raise UsageError("--wait follows one model's rollout: give its NAME")
        told = asked(api, f"/api/rollouts/{name}", coordinator_wait)
        if not told:
            raise UsageError(f"there is no rollout of {name} to wait for")
        _finish(api, name, told[-1]["rollout"], as_json=as_json, patience=coordinator_wait)
        return
    told = api.get("/api/rollouts" if name is None else f"/api/rollouts/{name}")
    if as_json:
        print_json(told)
        return
    if not told:
        click.echo("No rollouts yet. Start one: glassfleet rollout start NAME VERSION")
    for each in told:
        click.echo("\n".join(rollout_lines(each)))


@rollout.command()
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@coordinator_options
@json_option
@config_option
def pause(
    name: str, reason: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool
) -> None:
    """Let a rollout stand still: its deadline waits, reports are taken, nothing is judged.

    \b
    Examples:
      glassfleet rollout pause qoe --reason "roadworks"
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    _act(_api(coordinator, token, state_dir), name, "pause", {"reason": reason}, as_json=as_json)


@rollout.command()
@click.argument("name")
@coordinator_options
@json_option
@config_option
def resume(name: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool) -> None:
    """Let a paused rollout go on.

    \b
    Examples:
      glassfleet rollout resume qoe
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    _act(_api(coordinator, token, state_dir), name, "resume", None, as_json=as_json)


@rollout.command()
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@coordinator_options
@json_option
@config_option
def stop(name: str, reason: str, coordinator: str | None, token: str | None, state_dir: Path, *, as_json: bool) -> None:
    """End a rollout: the candidate is withdrawn, the current model stays.

    \b
    Examples:
      glassfleet rollout stop qoe --reason "a better one is coming"
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    _act(_api(coordinator, token, state_dir), name, "stop", {"reason": reason}, as_json=as_json)


def _finish(api: Coordinator, name: str, started: str, *, as_json: bool, patience: float) -> None:
    told = follow_rollout(api, name, started, as_json=as_json, patience=patience)
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['model']} v{told['version']}: {told['phase']} ({told['reason']})")
    if told["phase"] != "promoted":
        raise RunFailedError(f"{name} v{told['version']} was not promoted: {told['phase']} ({told['reason']})")


def _act(api: Coordinator, name: str, action: str, body: dict[str, Any] | None, *, as_json: bool) -> None:
    told = api.post(f"/api/rollouts/{name}/{action}", body)
    if as_json:
        print_json(told)
        return
    click.echo(f"rollout of {name}: {told['phase']}")


def _line_of_decision(each: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(each["wall"], tz=UTC).isoformat(timespec="seconds") if each["wall"] else ""
    why = f": {each['reason']}" if each.get("reason") else ""
    match each["kind"]:
        case "current":
            return f"{when}  v{each['version']} current ({each['cause']}{why})"
        case "candidate":
            below = each["trial"]["below"]
            tried = f"tried by {'all' if below == ALL else 'a part'} of the fleet" if below else "stays a candidate"
            return f"{when}  v{each['version']} {tried}{why}"
        case "no-candidate":
            return f"{when}  candidate withdrawn{why}" if why != ": promoted" else ""
        case "signed":
            return f"{when}  v{each['version']} signed by {each['signer']} on an operator's word{why}"
        case "rollout.started":
            return f"{when}  rollout of v{each['version']} beside {beside(each['champion'])} started"
        case "rollout.pause" | "rollout.resume" | "rollout.stop" | "rollout.superseded":
            return f"{when}  rollout {_PAST[each['kind'].removeprefix('rollout.')]}{why}"
    return ""


def _api(coordinator: str | None, token: str | None, state_dir: Path) -> Coordinator:
    from console.client import Coordinator  # noqa: PLC0415 - the extra `operator` is asked for when it is used

    return Coordinator(coordinator, token, state_dir)
