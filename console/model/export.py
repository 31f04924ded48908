"""``glassfleet model export`` and ``glassfleet model report``: models and runs as files for elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import config_option, options_as, result_options, tell
from console.model.named import ModelOptions, load, model_options, rows_option, spoken, typical, words_option
from console.progress import progress
from console.run.connection import CoordinatorOptions, coordinator_options
from schemas.errors import StorageError, UsageError, os_faults_as

if TYPE_CHECKING:
    from glassfleet.model.protocol import Model
    from schemas.record import ModelRecord

FORMATS = ("json", "fml", "markdown", "html", "c", "python", "svg", "png", "mlflow")
PICTURES = ("tree", "rules", "partitions", "effects", "shares")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """Of ``glassfleet model export``."""

    kind: str
    out: Path | None
    picture: str | None
    structure: int | None
    data: str | None
    row: int
    prefix: str | None
    tracking_uri: str | None
    words: Path | None


@click.command("export")
@model_options
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="json", show_default=True, help="What to make of the model."
)
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Default: standard output."
)
@click.option(
    "--picture",
    type=click.Choice(PICTURES),
    help="For svg and png. Default: the tree, or the rules where there is none.",
)
@click.option(
    "--structure", type=click.IntRange(min=1), metavar="N", help="For the tree of a population: 1 is the fittest."
)
@rows_option("For pictures of a row", required=False)
@click.option("--row", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Which row, from 1.")
@click.option("--prefix", metavar="NAME", help="For c: what its names begin with. Default: model.")
@click.option(
    "--tracking-uri", envvar="MLFLOW_TRACKING_URI", metavar="URI", help="For mlflow: where to register the model."
)
@words_option
@config_option
@options_as(ExportOptions)
def export_model(options: ExportOptions) -> None:
    """Write a model for elsewhere: FML (IEEE 1855), C or Python for small devices, pages, pictures, MLflow.

    NAME is a published model; an existing file with a dot or slash in its name is read as one (record, document, json
    or fml export).

    \b
    Examples:
      glassfleet model export qoe --format c --prefix qoe -o qoe.h
    """
    name = options.name
    if name is not None and options.file is None and ("/" in name or "." in name) and Path(name).is_file():
        options = replace(options, file=Path(name), name=None)
    record, learned, _ = load(options)
    if record is not None:
        label = record.name
    else:
        assert options.file is not None, "a published model has a record"
        label = options.file.name.partition(".")[0]
    _export(options, record, spoken(learned, options.words), label)


def _export(options: ExportOptions, record: ModelRecord | None, model: Model, name: str) -> None:
    """Write a model in a format: to a file, or text to standard output."""
    from glassfleet.export.formats import FORMATS as KNOWN  # numpy comes with it
    from glassfleet.export.formats import export

    kind = options.kind
    title = f"{record.name} v{record.version}" if record is not None else name
    if kind == "mlflow":
        _to_mlflow(options, record, model, name)
        return
    if options.tracking_uri is not None:
        raise UsageError("--tracking-uri goes with --format mlflow")
    row = None
    if options.data is not None:
        from console.model.inputs import row_of  # numpy comes with it

        row = row_of(options.data, options.row, model)
    with progress(f"writing {kind}"):
        data = export(
            model,
            kind,
            title=title,
            prefix=options.prefix or "model",
            what=options.picture,
            row=row,
            reference=typical(options, record, model),
            structure=options.structure,
        )
    target = options.out
    if target is None and kind == "png" and sys.stdout.isatty():
        target = Path(f"{name}{KNOWN[kind].suffix}")
    if target is None or str(target) == "-":
        click.echo(data, nl=False)
        return
    write(target, data)
    click.echo(f"{target}: {KNOWN[kind].what}, {len(data)} bytes", err=True)


def write(path: Path, data: bytes) -> None:
    """Write a file; raises StorageError that says why not."""
    with os_faults_as(StorageError, f"cannot write {path}"):
        path.write_bytes(data)


def _to_mlflow(options: ExportOptions, record: ModelRecord | None, model: Model, name: str) -> None:
    from console.model.mlflow_model import register  # the extra `mlflow`
    from glassfleet.export import to_html

    uri = options.tracking_uri
    if not uri:
        raise UsageError("where is MLflow? Give --tracking-uri (or MLFLOW_TRACKING_URI), e.g. sqlite:///mlflow.db")
    tags = {}
    if record is not None:
        tags = {
            "glassfleet.run": record.run,
            "glassfleet.version": str(record.version),
            "glassfleet.cohort": ", ".join(record.cohort)[:4000],
        }
    with progress("registering the model"):
        made = register(model, name, uri, tags=tags, page=to_html(model, name))
    click.echo(f"registered as {made['model_uri']} (MLflow run {made['run_id']})")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CoordinatorOptions):
    """Of ``glassfleet model report``."""

    run_id: str
    out: Path | None
    kind: str
    leakage: Path | None
    as_json: bool


@click.command()
@click.argument("run_id", metavar="RUN")
@coordinator_options
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Where to write. Default: RUN.html (or .md) here; - is standard output.",
)  # fmt: skip
@click.option(
    "--format",
    "kind",
    type=click.Choice(["html", "markdown"]),
    default="html",
    show_default=True,
    help="Of the report.",
)
@click.option(
    "--leakage", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="What `lab audit leakage RUN --json` printed; it becomes a part of the report.",
)  # fmt: skip
@result_options
@options_as(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write the report of a run: one file with fleet, rounds, drops, scores, model, rules, and pictures inside.

    Scores are what the vehicles measured on their own test rows and sent, with central ones (CL) as far as they are
    known: as the dashboard shows them. `last` is the run that was started last.

    \b
    Examples:
      glassfleet model report run-1f2e3d4c5b6a -o report.html
      glassfleet model report last
    """
    from glassfleet.export.run_page import run_page
    from glassfleet.export.sheet import html_of, markdown_of

    api = options.api
    run_id = api.run_named(options.run_id)
    leakage = None if options.leakage is None else _audit_of(run_id, options.leakage)
    status = api.run(run_id)
    with progress("drawing the report"):
        record, model, scores, about = _learned(api, status)
        page = run_page(status, model, record, scores, about, leakage=leakage, pictures=options.kind == "html")
        text = html_of(page) if options.kind == "html" else markdown_of(page)
    suffix = ".html" if options.kind == "html" else ".md"
    target = options.out or Path(f"{run_id}{suffix}")
    if str(target) == "-":
        click.echo(text, nl=False)
        return
    write(target, text.encode("utf-8"))
    size = len(text.encode("utf-8"))
    tell(f"{target}: report of {run_id}", as_json=options.as_json, file=str(target), bytes=size, run=run_id)


def _audit_of(run: str, path: Path) -> dict[str, Any]:
    """Return a leakage report that was kept as JSON; raises UsageError unless it is one of this run."""
    from glassfleet.audit.saved import read_report

    try:
        return read_report(path.read_bytes(), run).model_dump()
    except OSError as fault:
        raise UsageError(f"--leakage: cannot read {path}: {fault.strerror}") from fault
    except ValueError as fault:
        raise UsageError(
            f"--leakage: {path} is no leakage report of run {run!r}: glassfleet lab audit leakage {run} --json"
        ) from fault


def _learned(
    api: Any, status: dict[str, Any]
) -> tuple[dict[str, Any] | None, Model | None, list[dict[str, Any]], list[str]]:
    """Return record, model and scores of a run, and what is to be said about them; nothing where it made no model."""
    from glassfleet.contract import catalogue  # numpy comes with it
    from schemas.record import ModelRecord

    made = status.get("model")
    if not made:
        return None, None, [], []
    where = f"/api/models/{made['name']}/{made['version']}"
    result = api.get(where)
    record = ModelRecord.load(json.dumps(result).encode("utf-8"))
    model = catalogue.model_of(record)
    sent = api.get(f"{where}/scores")
    scores = [{"vehicle": agent, "metric": sent["metric"], **each} for agent, each in sent["vehicles"].items()]
    return result, model, scores, [sent["about"]] if scores else ["No vehicle has sent scores of this model."]
