"""Files for elsewhere: ``glassfleet model export``, ``model report`` and ``model week``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from console.common import file_option, json_option, options_as, print_json, tell
from console.operator.chosen import ModelOptions, load, model_options, spoken, words_option
from console.operator.connection import CoordinatorOptions, coordinator_options
from console.progress import progress
from schemas.errors import StorageError, os_faults_as
from schemas.text import counted, printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient


FORMATS = ("json", "fml", "c", "svg")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """Of ``glassfleet model export``."""

    kind: str
    out: Path | None
    prefix: str
    words: Path | None


@click.command("export")
@model_options
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="json", show_default=True, help="What to make of the model."
)
@file_option("--out", "-o", help="Default: standard output.")
@click.option("--prefix", default="model", show_default=True, metavar="NAME", help="For c: what its names begin with.")
@words_option
@options_as(ExportOptions)
def export_model(options: ExportOptions) -> None:
    """Write a model for elsewhere: C for small devices, FML (IEEE 1855), JSON that reads back, its tree as SVG.

    A FILE has a slash in its name or ends in .json: a record, a model document, or an export as json.

    \b
    Examples:
      glassfleet model export qoe --format c --prefix qoe -o qoe.h
    """
    from glassfleet.export.formats import FORMATS as KNOWN  # numpy comes with it
    from glassfleet.export.formats import export

    record, learned, _ = load(options)
    if record is not None:
        title = f"{record.name} v{record.version}"
    else:
        assert options.file is not None, "a published model has a record"
        title = options.file.name.partition(".")[0]
    kind, target = options.kind, options.out
    with progress(f"writing {kind}"):
        data = export(spoken(learned, options.words), kind, title=title, prefix=options.prefix)
    if target is None or str(target) == "-":
        click.echo(data, nl=False)
        return
    write(target, data)
    click.echo(f"{target}: {KNOWN[kind].what}, {len(data)} bytes", err=True)


def write(path: Path, data: bytes) -> None:
    """Write a file; raises StorageError that says why not."""
    with os_faults_as(StorageError, f"cannot write {path}"):
        path.write_bytes(data)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CoordinatorOptions):
    """Of ``glassfleet model report``."""

    run_id: str
    out: Path | None
    as_json: bool


@click.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@file_option("--out", "-o", help="Where to write. Default: RUN.html here; - is standard output.")
@json_option
@options_as(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write the report of a run: the pages of the run and of its model as one HTML file that needs nothing else.

    With rounds, who dropped and why, scores, tree, rules, and what `lab audit leakage RUN --save` has measured. `last`
    is the run that was started last.

    \b
    Examples:
      glassfleet model report run-1f2e3d4c5b6a -o report.html
      glassfleet model report last
    """
    api = options.api
    run_id = api.run_named(options.run_id)
    api.run(run_id)  # which names the others where there is none
    with progress("drawing the report"):
        data = api.page(f"/runs/{quote(run_id, safe='')}/report")
    target = options.out or Path(f"{run_id}.html")
    if str(target) == "-":
        click.echo(data, nl=False)
        return
    write(target, data)
    tell(f"{target}: report of {run_id}", as_json=options.as_json, file=str(target), bytes=len(data), run=run_id)


@click.command()
@coordinator_options
@file_option("--out", "-o", help="Write the page of the week there, as one HTML file. Default: text on stdout.")
@json_option
def week(api: CoordinatorClient, out: Path | None, *, as_json: bool) -> None:
    """Say what changed in the last seven days: is it better, what changed, who needs me.

    \b
    Examples:
      glassfleet model week
      glassfleet model week --out week.html
    """
    if out is not None:
        data = api.page("/week/report")
        write(out, data)
        tell(f"{out}: the last week", as_json=as_json, file=str(out), bytes=len(data))
        return
    known = api.get("/api/week")
    if as_json:
        print_json(known)
    else:
        click.echo("\n".join(map(printable, _lines(known))))


def _lines(week: Mapping[str, Any]) -> Iterator[str]:
    from glassfleet.explain.text import size  # numpy comes with it

    yield f"Fleet {week['fleet']}: the week to {week['end'][:10]}"
    yield "Is it better?"
    yield from (f"  {model['name']}: {model['headline']}" for model in week["models"])
    yield from () if week["models"] else ("  There is no model yet.",)
    yield "What changed?"
    yield f"  runs: {', '.join(f'{count} {outcome}' for outcome, count in week['runs'].items()) or 'none'}"
    each = size(week["to_each"] + week["from_each"])
    yield f"  bytes: {size(week['bytes'])} of answers; {each} for each vehicle, requests and answers"
    yield from (f"  run {run['run']} failed: {run['reason']}" for run in week["failed"])
    yield from (f"  {sentence}" for sentence in week["drift"])
    for model in week["models"]:
        for turn in model["turns"]:
            why = f": {turn['why']}" if turn["why"] else ""
            yield f"  {turn['when'][:16]}  {model['name']} version {turn['version']} {turn['what']}{why}"
        change = model["change"] or {}
        if change:
            name = model["name"]
            yield f"  {name}: glassfleet model diff {name}@{model['before']} {name}@{model['now']}"
        for kind, word in (("new", "came"), ("gone", "went"), ("changed", "says something else now")):
            yield from (f"  {model['name']}, rule {word}: {text}" for text in change.get(kind, ()))
    yield "Who needs me?"
    needs = counted(week["needs"], "vehicles") if week["needs"] else "none is known"
    yield f"  {week['up']} vehicles are up, {week['down']} down; {needs} to look at."
    yield from (f"  {vehicle['agent']}: {'; '.join(vehicle['causes'])}" for vehicle in week["vehicles"])
    left = week["needs"] - len(week["vehicles"])
    yield from (f"  and {left} more",) if left else ()
