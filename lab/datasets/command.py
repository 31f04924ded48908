"""``glassfleet lab datasets``: list, fetch and verify the papers' datasets."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from console.common import folder_option, json_option, print_json
from console.progress import progress
from lab.datasets.fetch import fetch as fetch_one
from lab.datasets.fetch import verify
from lab.datasets.known import DATASETS, NO_FOLDER, Known
from schemas.errors import DataError, UsageError, VerificationError


def _named(ctx: click.Context, _parameter: click.Parameter, folder: Path | None) -> Path | None:
    """Say more than that an option is missing."""
    if folder is None and not ctx.resilient_parsing:
        raise UsageError(NO_FOLDER)
    return folder


_data_dir = folder_option(
    "--data-dir", envvar="GLASSFLEET_DATA", callback=_named, help="Folder of the datasets.  [required]"
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
@json_option
def fetch(*, names: tuple[str, ...], data_dir: Path, as_json: bool) -> None:
    """Fetch datasets into DIR, as csv.gz with the target last.

    diabetes, wine and breast_cancer come with scikit-learn and need no network. What is fetched is compared with the
    known shape and digest of the values, and written only when it is the same. Mind the licences: see `glassfleet
    lab datasets list`.

    \b
    Examples:
      glassfleet lab datasets fetch diabetes wine breast_cancer --data-dir data
      glassfleet lab datasets fetch mortgage california --data-dir data
    """
    result = []
    for known in [_known(name) for name in names]:
        with progress(f"fetching {known.name}", unit="bytes") as work:
            there = verify(known, data_dir).state == "same"
            path = data_dir / known.file if there else fetch_one(known, data_dir, work.at)
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

    Exit code 8: one differs or cannot be read, or one that was named is not there.

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


def _known(name: str) -> Known:
    if name not in DATASETS:
        raise UsageError(f"no dataset {name!r}; known: {', '.join(DATASETS)}")
    return DATASETS[name]
