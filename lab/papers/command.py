"""``glassfleet lab papers``: compute what is missing, write the report."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import click

from console.common import folder_option, json_option, print_json
from console.progress import progress
from lab.datasets.known import NO_FOLDER, how_to_get
from lab.experiments.workers import jobs_option
from lab.papers.jobs import Chapter, results_of
from lab.papers.page import Report, Section, write_report
from schemas.errors import DataError, UsageError


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@folder_option(
    "--data-dir", envvar="GLASSFLEET_DATA",
    help="Folder of the datasets: weather_izmir.csv.gz, qoe/ and so on (see `glassfleet lab datasets list`).",
)  # fmt: skip
@folder_option(
    "--out", default="papers", show_default=True,
    help="Where report.md, report.html and pictures/ go; results/ in it keeps what was computed.",
)  # fmt: skip
@jobs_option
@click.option("--full", is_flag=True, help="The paper's number of splits for FedGA (10 instead of 3), and EBM.")
@click.option("--list", "list_", is_flag=True, help="List the tables and figures, and whether their data are there.")
@json_option
def papers(
    *,
    tables: tuple[str, ...],
    data_dir: Path | None,
    out: Path,
    jobs: int | None,
    full: bool,
    list_: bool,
    as_json: bool,
) -> None:
    """Make the papers' tables and figures, printed value beside ours.

    TABLE is one of the names of --list, or the beginning of some (frt, tsk, frbc, fedga); without it, everything that
    the data allow. A report that was interrupted goes on where it was: results are kept by the digest of their data,
    arguments and code.

    \b
    Examples:
      glassfleet lab papers --data-dir data
      glassfleet lab papers tsk frbc-1 --data-dir data --out tables
    """
    for package in ("sklearn", "matplotlib", "jinja2"):
        if importlib.util.find_spec(package) is None:  # the fault names the extra to install
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    chosen = choose(all_chapters(), tables)
    if list_:
        _list(chosen, data_dir, as_json=as_json)
        return
    if data_dir is None:
        raise UsageError(f"{NO_FOLDER}. An empty folder gives the tables of simulated vehicles")
    if not data_dir.is_dir():
        way = how_to_get(["weather_izmir.csv.gz"], data_dir)
        raise DataError(f"{data_dir} is not a folder: name that of the datasets with --data-dir, or begin one: {way}")
    missing = [chapter for chapter in chosen if not _there(chapter, data_dir)]
    for chapter in missing:
        click.echo(f"{chapter.key} is left out: {data_dir} has none of {', '.join(chapter.needs)}", err=True)
    todo = [chapter for chapter in chosen if chapter not in missing]
    way = how_to_get([name for chapter in missing for name in chapter.needs], data_dir)
    if not todo:
        raise DataError(f"{data_dir} has no data for what was asked: {way}  (see: glassfleet lab datasets list)")
    if missing:
        click.echo(f"what is left out needs: {way}", err=True)
    report = _compute(todo, missing, data_dir, out, jobs=jobs or os.cpu_count() or 1, full=full)
    _tell(report, out, as_json=as_json)


def _list(chosen: Sequence[Chapter], folder: Path | None, *, as_json: bool) -> None:
    facts = [
        {
            **{name: getattr(chapter, name) for name in ("key", "paper", "title", "aliases")},
            "data_there": None if folder is None else _there(chapter, folder),
        }
        for chapter in chosen
    ]
    if as_json:
        print_json(facts)
        return
    for each in facts:
        others = f" ({', '.join(each['aliases'])})" if each["aliases"] else ""
        mark = "  (its data are not there)" if each["data_there"] is False else ""
        click.echo(f"{each['key']:22}{each['paper']}: {each['title']}{others}{mark}")


def _compute(
    todo: Sequence[Chapter], missing: Sequence[Chapter], data: Path, out: Path, *, jobs: int, full: bool
) -> Report:
    asked = [(chapter, chapter.jobs(data, full)) for chapter in todo]
    every = {job.label: job for _, wanted in asked for some in wanted.values() for job in some}
    with progress("computing", len(every)) as work:
        results = results_of(every.values(), data, out / "results", processes=jobs, work=work)
    sections: dict[str, list[Section]] = {}
    for chapter, wanted in asked:
        found = {key: [results[job.label] for job in some] for key, some in wanted.items()}
        sections.setdefault(chapter.paper, []).append(Section(chapter.key, chapter.title, chapter.blocks(found)))
    left_out = [f"Left out, as its data are not there: {chapter.paper}, {chapter.title}." for chapter in missing]
    return Report(sections, left_out)


def _tell(report: Report, out: Path, *, as_json: bool) -> None:
    """Write the pages; name them on stdout, and what differs from the papers on stderr."""
    with progress("drawing pictures and pages"):
        pages = [str(page) for page in write_report(report, out)]
    same, differing = report.verdicts()
    if as_json:
        print_json({"pages": pages, "same": same, "differing": differing})
        return
    for page in pages:
        click.echo(page)
    if same or differing:
        click.echo(f"{same} of {same + len(differing)} printed values come out to the digit", err=True)
    for line in differing:
        click.echo(f"  differs: {line}", err=True)


def all_chapters() -> list[Chapter]:
    """Return every table and figure, in the order of the report."""
    from lab.papers import fedga, frbc, frt, qoe, sizes, tsk  # they need the extra

    return [chapter for part in (frt, qoe, tsk, frbc, fedga, sizes) for chapter in part.CHAPTERS]


def choose(chapters: Sequence[Chapter], names: Sequence[str]) -> list[Chapter]:
    """Return the chapters that are named: by key, alias, or the beginning of a key; all when none is named.

    Raises
    ------
    UsageError
        A name fits none.
    """
    if not names:
        return list(chapters)
    chosen = []
    for name in names:
        fitting = [chapter for chapter in chapters if name == chapter.key or name in chapter.aliases]
        fitting = fitting or [chapter for chapter in chapters if chapter.key.startswith(f"{name}-")]
        if not fitting:
            known = ", ".join(chapter.key for chapter in chapters)
            raise UsageError(f"no table or figure {name!r}; known: {known}, and their beginnings such as frt")
        chosen += fitting
    return [chapter for chapter in chapters if chapter in chosen]


def _there(chapter: Chapter, folder: Path) -> bool:
    return not chapter.needs or any((folder / name).is_file() for name in chapter.needs)
