"""``glassfleet model sign``: sign again a model whose signature the fleet cannot verify."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from console.common import json_option, print_json, versioned
from console.operator.connection import coordinator_options
from schemas.errors import DocumentError, NotFoundError, UsageError

if TYPE_CHECKING:
    from console.client import CoordinatorClient

_NAMED = 5


@click.command()
@click.argument("name", metavar="NAME[@VERSION]")
@click.option("--yes", is_flag=True, help="Do not ask: you have looked at it.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the history.")
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
    from schemas.documents import document_digest

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
