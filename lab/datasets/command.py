"""``glassfleet lab datasets``: list, fetch and verify the papers' datasets, and prepare the QoE set."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Any

import click

from console.common import RowsFile, json_option, print_json
from console.progress import progress
from lab.datasets.fetch import fetch as fetch_one
from lab.datasets.fetch import put, verify
from lab.datasets.formats import as_csv_gz
from lab.datasets.known import DATASETS, NO_FOLDER, Known
from lab.datasets.qoe_export import Form, Layout, prepare, read_export
from lab.qoe.windows import METRICS
from schemas.errors import DataError, UsageError, VerificationError


def _named(ctx: click.Context, _parameter: click.Parameter, folder: Path | None) -> Path | None:
    """Say more than that an option is missing."""
    if folder is None and not ctx.resilient_parsing:
        raise UsageError(NO_FOLDER)
    return folder


_data_dir = click.option(
    "--data-dir",
    envvar="GLASSFLEET_DATA",
    callback=_named,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the datasets.  [required]",
)


@click.group()
def datasets() -> None:
    """List, fetch and verify the papers' datasets.

    \b
    Examples:
      glassfleet lab datasets fetch mortgage weather_izmir --data-dir data
      glassfleet lab datasets verify --data-dir data
    """


@datasets.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List what is known: shape, target, home, licence, and which papers use it.

    \b
    Examples:
      glassfleet lab datasets list --json
    """
    if as_json:
        print_json([_facts(known) for known in DATASETS.values()])
        return
    for known in DATASETS.values():
        click.echo(f"{known.name}: {known.task}, {known.rows} rows, {known.features} inputs, target {known.target}")
        click.echo(f"  used by  {known.used_by}")
        click.echo(f"  home     {known.home}")
        click.echo(f"  licence  {known.licence}")
        places = known.source and (", ".join(known.source.urls) or "scikit-learn")
        click.echo(f"  fetched  {'from ' + places if places else 'no'}")
        if known.note:
            click.echo(f"  note     {known.note}")


def _facts(known: Known) -> dict[str, Any]:
    urls = list(known.source.urls) if known.source else []
    facts = {name: value for name, value in vars(known).items() if name != "source"}
    return {**facts, "file": known.file, "urls": urls}


@datasets.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_data_dir
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="Fetch from here instead; repeatable where files belong together.",
)
@click.option("--force", is_flag=True, help="Fetch it although the file is there.")
@json_option
def fetch(*, names: tuple[str, ...], data_dir: Path, urls: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Fetch datasets into DIR, as csv.gz with the target last.

    diabetes, wine and breast_cancer come with scikit-learn and need no network. What is fetched is compared with the
    known shape and digest of the values, and written only when it is the same. Mind the licences: see `glassfleet
    datasets list`.

    \b
    Examples:
      glassfleet lab datasets fetch diabetes wine breast_cancer --data-dir data
      glassfleet lab datasets fetch mortgage california --data-dir data
    """
    chosen = [_known(name) for name in names]
    if urls and len(chosen) > 1:
        raise UsageError("--url goes with one NAME")
    result = []
    for known in chosen:
        with progress(f"fetching {known.name}", unit="bytes") as work:
            there = not force and verify(known, data_dir).state == "same"
            path = data_dir / known.file if there else fetch_one(known, data_dir, urls, work.at)
        result.append({"name": known.name, "fetched": not there, "path": str(path)})
    if as_json:
        print_json(result)
        return
    for item in result:
        how = f"fetched, verified, written to {item['path']}" if item["fetched"] else "is there, and is the known one"
        click.echo(f"{item['name']}: {how}")


@datasets.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_data_dir
@json_option
def verify_(*, names: tuple[str, ...], data_dir: Path, as_json: bool) -> None:
    """Compare files in DIR with the known shape and values; without NAME, those that are there.

    Leaves with code 8 when one differs or cannot be read, or when one that was named is not there.

    \b
    Examples:
      glassfleet lab datasets verify --data-dir data
    """
    chosen = [_known(name) for name in names] or list(DATASETS.values())
    checks = []
    with progress("comparing", len(chosen)) as work:
        for known in chosen:
            work.at(doing=known.name)
            checks.append(verify(known, data_dir))
            work()
    if as_json:
        print_json([{"name": check.known.name, "state": check.state, "words": check.words} for check in checks])
    else:
        for check in checks:
            click.echo(f"{check.known.name}: {check.state}  {check.words}")
    wrong = [check for check in checks if check.state in ("differs", "unreadable") or (names and check.state != "same")]
    if wrong:
        raise VerificationError(f"{wrong[0].known.name} is {wrong[0].state}: {wrong[0].words}")
    if all(check.state == "missing" for check in checks):
        way = f"glassfleet lab datasets fetch diabetes --data-dir {quote(str(data_dir))} (no download), or another NAME"
        raise DataError(f"{data_dir} holds none of the known datasets; fetch some: {way}")


@datasets.command("qoe")
@click.argument("exports", nargs=-1, required=True, type=RowsFile(), metavar="EXPORT...")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Where to.")
@click.option("--form", default="15", show_default=True, type=click.Choice(["15", "30"]), help="Number of inputs.")
@click.option("--labels", is_flag=True, help="The target is Good or Poor (more than 0.8 of the frames displayed).")
@click.option(
    "--test-runs", default=4, show_default=True, type=click.IntRange(0), help="Last runs of a vehicle, for testing."
)
@click.option("--column", "columns", multiple=True, metavar="OURS=THEIRS", help="A column's name in the export.")
@click.option("--metric", "metrics", multiple=True, metavar="THEIRS=OURS", help="A metric's name in the export.")
@json_option
def qoe(
    *,
    exports: tuple[Path, ...],
    out: Path,
    form: Form,
    labels: bool,
    test_runs: int,
    columns: tuple[str, ...],
    metrics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Prepare the quality-of-experience set: windows of 10 s, forecast 3 s ahead, one file per vehicle.

    EXPORT is a CSV table with one measurement a line: vehicle, run, time (s), metric, value. The 15-input form needs
    the nine metrics of the simulator once a second; the 30-input form needs sinr_db, occupied_blocks and distance_m
    whenever they were measured, and displayed_share.

    \b
    Examples:
      glassfleet lab datasets qoe export.csv --out data/qoe --form 30 --metric rcvdSinr=sinr_db --column run=repetition
    """
    layout = _layout(columns, metrics)
    texts = [(str(path), _text(path)) for path in exports]
    tables, lost = prepare(read_export(texts, layout), form, test_runs=test_runs, labels=labels)
    result = []
    for vehicle, table in tables.items():
        safe = re.sub(r"[^A-Za-z0-9._-]", "-", vehicle)
        path = out / f"vehicle_{safe}.csv.gz"
        put(path, as_csv_gz(table))
        result.append({"vehicle": vehicle, "path": str(path), "rows": len(table.rows), "inputs": table.features - 1})
        if not as_json:
            click.echo(f"{path}: {len(table.rows)} rows, {table.features - 1} inputs")
    if as_json:
        print_json({"files": result, "seconds_left_out": lost})
    elif lost:
        click.echo(f"{lost} seconds were left out: not everything was measured around them", err=True)


def _known(name: str) -> Known:
    if name not in DATASETS:
        raise UsageError(f"no dataset {name!r}; known: {', '.join(DATASETS)}")
    return DATASETS[name]


def _layout(columns: tuple[str, ...], metrics: tuple[str, ...]) -> Layout:
    roles = ("vehicle", "run", "time", "metric", "value")
    named = dict(_pair(text, "--column", "OURS=THEIRS") for text in columns)
    for role in named:
        if role not in roles:
            raise UsageError(f"--column {role}=...: ours are {', '.join(roles)}")
    translated = {name: name for name in METRICS} | dict(_pair(text, "--metric", "THEIRS=OURS") for text in metrics)
    for ours in translated.values():
        if ours not in METRICS:
            raise UsageError(f"--metric ...={ours}: ours are {', '.join(METRICS)}")
    return Layout(**named, metrics=translated)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise UsageError(f"{option} {text!r}: write {form}")
    return left, right


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as fault:
        raise DataError("there is no such file", "Check its name and its folder", str(path)) from fault
    except OSError as fault:
        raise DataError(f"{path}: cannot be read ({fault.strerror})") from fault
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}: not UTF-8 text (byte {fault.start})") from fault
