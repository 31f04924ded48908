"""What a model's name stands for: ``glassfleet model history|diff|promote|rollback|sign``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.broker_discovery import broker_url
from console.common import (
    broker_options,
    json_option,
    print_json,
    reason_option,
    security_options,
    tell,
    version_argument,
    versioned,
)
from console.operator.chosen import file_of, read_model_file
from console.operator.connection import coordinator_options
from console.operator.rollouts import beside
from schemas.errors import DocumentError, NotFoundError, UsageError
from schemas.rounds import ALL
from schemas.text import printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient
    from glassfleet.model.protocol import Model
    from schemas.record import ModelRecord


_PAST = {"pause": "paused", "resume": "resumed", "stop": "stopped", "superseded": "superseded"}


@click.command()
@click.argument("name")
@coordinator_options
@json_option
def history(name: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Show what a name stood for, when and why: publications, promotions, rollbacks, rollouts.

    \b
    Examples:
      glassfleet model history qoe
    """
    result = api.get(f"/api/models/{name}/history")
    if as_json:
        print_json(result)
        return
    from schemas.record import CENTRAL

    champion = "reference" if name.endswith(f".{CENTRAL}") else "champion"
    for alias, word in (("current", champion), ("candidate", "candidate")):
        pointer = result[alias]
        if pointer is not None:
            click.echo(
                f"{word}: {name} v{pointer['version']}  {pointer['digest'][:12]}  sequence {pointer['sequence']}"
            )
            for note in result.get("notes", {}).get(alias, []):
                click.echo(printable(f"  {note}"))
    for each in result["decisions"]:
        line = _line_of_decision(each)
        if line:
            click.echo(line)


@click.command()
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@broker_options
@security_options
@json_option
def diff(old: str, new: str, broker: str | None, fleet: str, state_dir: Path, *, as_json: bool) -> None:
    """Show what differs between two models: rules added, gone and changed, parameters, limits, vehicles.

    A and B are NAME@VERSION, NAME (its current version), or files of records as `model show --json` writes them.

    \b
    Examples:
      glassfleet model diff qoe@3 qoe
    """
    from console.operator.published import Signatures, read_registry
    from console.operator.words import difference_lines  # numpy comes with it
    from glassfleet.contract import catalogue
    from glassfleet.explain import difference

    paths = [file_of(text) for text in (old, new)]
    registry = None if all(paths) else read_registry(broker_url(broker, state_dir), fleet)

    def load(text: str, path: Path | None) -> tuple[ModelRecord, Model]:
        if path is not None:
            stored, learned = read_model_file(path)
            if stored is None:
                raise DocumentError(f"{path} holds a model without a record: there is no version to compare")
            Signatures.at_hand().judge(stored)
            return stored, learned
        assert registry is not None
        record = registry.record(*versioned(text))
        return record, catalogue.model_of(record)

    result = difference(load(old, paths[0]), load(new, paths[1]))
    if as_json:
        print_json(result.to_dict())
        return
    click.echo("\n".join(difference_lines(result)))


@click.command()
@version_argument
@reason_option("Why; vehicles and auditors read it.")
@coordinator_options
@json_option
def promote(chosen: tuple[str, int], reason: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Make a version current at once, for the whole fleet; ends a rollout of this model.

    \b
    Examples:
      glassfleet model promote qoe@4 --reason "tried by hand on the test track"
    """
    name, version = chosen
    pointer = api.post(f"/api/models/{name}/promote", {"version": version, "reason": reason})
    text = f"{name} v{pointer['version']} is current now (sequence {pointer['sequence']})"
    tell(text, as_json=as_json, **pointer)


@click.command()
@click.argument("name")
@click.option("--to", type=int, metavar="VERSION", help="Default: the version that was current before.")
@reason_option("Why; vehicles and auditors read it.", required=True)
@coordinator_options
@json_option
def rollback(name: str, to: int | None, reason: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Make a lower version current again; vehicles take it because its pointer is newer.

    \b
    Examples:
      glassfleet model rollback qoe --reason "false alarms in tunnels"
    """
    pointer = api.post(f"/api/models/{name}/rollback", {"to": to, "reason": reason})
    text = f"{name} v{pointer['version']} is current again (sequence {pointer['sequence']}): {reason}"
    tell(text, as_json=as_json, **pointer)


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


_NAMED = 5


@click.command()
@click.argument("name", metavar="NAME[@VERSION]")
@click.option("--yes", is_flag=True, help="Do not ask: you have looked at it.")
@reason_option("Why; it stands in the history.")
@coordinator_options
@json_option
def sign(name: str, reason: str, api: CoordinatorClient, *, yes: bool, as_json: bool) -> None:
    """Let the coordinator sign a model that you checked, so that vehicles take it again.

    For models from before a theft: of the authority's key, or of the coordinator's. Look at it first: the
    dashboard shows it, and its run. Without a VERSION: the current one.

    \b
    Examples:
      glassfleet model sign qoe@3 --reason "compared with the copy of 2 March"
    """
    from schemas.codec import document_digest

    name, version = versioned(name)
    if version is None:
        current = api.get(f"/api/models/{name}/history")["current"]
        if current is None:
            raise NotFoundError(f"no version of model {name!r} is current: write {name}@VERSION")
        version = int(current["version"])
    rows = {each["version"]: each["digest"] for each in api.get(f"/api/models/{name}")}
    if version not in rows:
        raise NotFoundError(f"model {name!r} has no version {version}; it has {', '.join(map(str, sorted(rows)))}")
    digest = rows[version]
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("look at the model first (the dashboard shows it), then say --yes")
        record = api.get(f"/api/models/{name}/{version}")
        if document_digest(record.get("document")) != digest:
            raise DocumentError(f"{name} version {version} is not the document that was registered: it was changed")
        click.echo("\n".join(_about(record, digest)), err=True)
        click.confirm("Sign it in the fleet's name?", abort=True, err=True)
    result = api.post(f"/api/models/{name}/{version}/sign", {"digest": digest, "reason": reason})
    if as_json:
        print_json(result)
        return
    what = f"{name} v{result['version']}  {result['digest'][:12]}"
    if not result["signed"]:
        click.echo(f"{what}: its signature is good, nothing was done")
        return
    click.echo(f"{what}: signed by {result['signer']} (before: {result['former'] or 'good, under another authority'})")


def _about(record: dict[str, Any], digest: str) -> list[str]:
    """Return what is to be known before a record is signed again."""
    cohort = record.get("cohort") or []
    more = f", and {len(cohort) - _NAMED} more" if len(cohort) > _NAMED else ""
    signers = [str(each.get("key")) for each in record.get("signatures") or []]
    software = record.get("software") or "unknown software"
    lines = [
        f"{record.get('name')} v{record.get('version')}  {digest}",
        f"  from run {record.get('run')}, made {record.get('created')} by {software}",
        f"  learned from {', '.join(cohort[:_NAMED]) or 'nobody of the fleet'}{more}",
        f"  signed, as it says, by {', '.join(signers) or 'nobody'}",
    ]
    # Whoever wrote the record may have put control characters into it.
    return [line if line.isprintable() else ascii(line) for line in lines]
