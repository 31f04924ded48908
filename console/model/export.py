"""``glassfleet model export`` and ``glassfleet report``: models and runs as files for elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import config_option, coordinator_options, json_option, print_json
from console.progress import progress
from schemas.errors import DocumentError, StorageError, UsageError, VerificationError

if TYPE_CHECKING:
    from glassfleet.scheme import Model
    from schemas.record import ModelRecord

FORMATS = ("json", "fml", "markdown", "html", "c", "python", "svg", "png", "mlflow")
PICTURES = ("tree", "rules", "partitions", "shares")


def read_model_file(path: Path) -> tuple[ModelRecord | None, Model]:
    """Read a model from a record, a bare document, an export in JSON, or FML.

    Raises
    ------
    DocumentError, VerificationError
        It is none of these, or was changed.
    """
    from glassfleet import catalogue  # noqa: PLC0415 - numpy comes with it
    from glassfleet.export.fml import from_fml  # noqa: PLC0415
    from schemas.documents import document_digest  # noqa: PLC0415
    from schemas.record import ModelRecord  # noqa: PLC0415

    try:
        data = path.read_bytes()
    except OSError as fault:
        raise DocumentError(f"cannot read {path}: {fault.strerror}") from fault
    if data.lstrip()[:1] == b"<":
        try:
            return None, from_fml(data.decode("utf-8"))
        except UnicodeDecodeError as fault:
            raise DocumentError(f"{path} is not UTF-8: {fault}") from fault
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or "cohort" in whole or not ({"document", "model"} & set(whole)):
        record = ModelRecord.load(data)  # which says what is wrong with a file that is no record
        return record, catalogue.load(record.scheme).from_document(record.document)
    document = whole.get("document", whole)
    if not isinstance(document, dict):
        raise DocumentError(f"{path}: `document` is not a JSON object")
    if "digest" in whole and document_digest(document) != whole["digest"]:
        raise VerificationError(f"{path}: the document is not that of its digest; it was changed")
    return None, catalogue.load(str(document.get("scheme"))).from_document(document)


def run_export(options: dict[str, Any], record: ModelRecord | None, model: Model, name: str) -> None:
    """Write a model in a format: to a file, or text to standard output."""
    from glassfleet.export.formats import FORMATS as KNOWN  # noqa: PLC0415 - numpy comes with it
    from glassfleet.export.formats import export  # noqa: PLC0415

    kind = options["kind"]
    title = f"{record.name} v{record.version}" if record is not None else name
    if kind == "mlflow":
        _to_mlflow(options, record, model, name)
        return
    if options["tracking_uri"] is not None:
        raise UsageError("--tracking-uri goes with --format mlflow")
    row = None
    if options["data"] is not None:
        from console.model.inputs import row_of  # noqa: PLC0415 - numpy comes with it

        row = row_of(options["data"], options["row"], model)
    prefix = options["prefix"] or "model"
    with progress(f"writing {kind}"):
        data = export(
            model, kind, title=title, prefix=prefix, what=options["picture"], row=row, structure=options["structure"]
        )
    target = options["out"]
    if target is None and kind == "png" and sys.stdout.isatty():
        target = Path(f"{name}{KNOWN[kind].suffix}")
    if target is None or str(target) == "-":
        click.echo(data, nl=False)
        return
    write(target, data)
    click.echo(f"{target}: {KNOWN[kind].what}, {len(data)} bytes", err=True)


def write(path: Path, data: bytes) -> None:
    """Write a file; raises StorageError that says why not."""
    try:
        path.write_bytes(data)
    except OSError as fault:
        raise StorageError(f"cannot write {path}: {fault.strerror}") from fault


def _to_mlflow(options: dict[str, Any], record: ModelRecord | None, model: Model, name: str) -> None:
    from console.model.mlflow_model import register  # noqa: PLC0415 - the extra `mlflow`
    from glassfleet.export import to_html  # noqa: PLC0415

    uri = options["tracking_uri"]
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
@json_option
@config_option
def report(run_id: str, **options: Any) -> None:
    """Write the report of a run: one file with fleet, rounds, drops, scores, model, rules, and pictures inside.

    Scores are what the vehicles measured on their own test rows and sent, with central ones (CL) as far as they are
    known: as the dashboard shows them. `last` is the run that was started last.

    \b
    Examples:
      glassfleet report run-1f2e3d4c5b6a -o report.html
      glassfleet report last
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from console.client import Coordinator  # noqa: PLC0415 - the extra `operator` is asked for when it is used
    from glassfleet.export.run_page import run_page  # noqa: PLC0415
    from glassfleet.export.sheet import html_of, markdown_of  # noqa: PLC0415

    api = Coordinator(options["coordinator"], options["token"], options["state_dir"])
    run_id = api.run_named(run_id)
    status = api.run(run_id)
    with progress("drawing the report"):
        record, model, scores, about = _learned(api, status)
        page = run_page(status, model, record, scores, about, pictures=options["kind"] == "html")
        text = html_of(page) if options["kind"] == "html" else markdown_of(page)
    suffix = ".html" if options["kind"] == "html" else ".md"
    target = options["out"] or Path(f"{run_id}{suffix}")
    if str(target) == "-":
        click.echo(text, nl=False)
        return
    write(target, text.encode("utf-8"))
    if options["as_json"]:
        print_json({"file": str(target), "bytes": len(text.encode("utf-8")), "run": run_id})
    else:
        click.echo(f"{target}: report of {run_id}")


def _learned(
    api: Any, status: dict[str, Any]
) -> tuple[dict[str, Any] | None, Model | None, list[dict[str, Any]], list[str]]:
    """Return record, model and scores of a run, and what is to be said about them; nothing where it made no model."""
    from glassfleet import catalogue  # noqa: PLC0415 - numpy comes with it
    from schemas.record import ModelRecord  # noqa: PLC0415

    made = status.get("model")
    if not made:
        return None, None, [], []
    where = f"/api/models/{made['name']}/{made['version']}"
    told = api.get(where)
    record = ModelRecord.load(json.dumps(told).encode("utf-8"))
    model = catalogue.load(record.scheme).from_document(record.document)
    told_scores = api.get(f"{where}/scores")
    scores = [
        {"vehicle": agent, "metric": told_scores["metric"], **each} for agent, each in told_scores["vehicles"].items()
    ]
    since = f"{str(told_scores['since'])[:19].replace('T', ' ')} UTC"
    if scores:
        return told, model, scores, [told_scores["about"], f"Sent since the coordinator started, {since}."]
    return told, model, [], [f"No vehicle has sent scores of this model since the coordinator started, {since}."]
