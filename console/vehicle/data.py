"""``glassfleet data``: files as loggers write them become one table; a window over a live stream."""

from __future__ import annotations

import csv
import math
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import file_option, json_option, options_as, print_json, rows_place, table_lines
from console.progress import progress
from console.vehicle.collect import collect
from schemas.errors import UsageError
from schemas.private_files import replace_private
from schemas.text import counted, printable, without_password

if TYPE_CHECKING:
    from edge_agent.imports.report import Report


class _Data(click.Group):
    """The group, whose help lists the kinds of sources."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from edge_agent.sources.readers import READERS  # numpy comes with it

        super().format_help_text(ctx, formatter)
        with formatter.section("SOURCE"):
            names = (", ".join((*each.endings, *(f"{scheme}://" for scheme in each.schemes))) for each in READERS)
            formatter.write_dl([(name, each.help) for name, each in zip(names, READERS, strict=True)])


@click.group(cls=_Data)
def data() -> None:
    """Make a table of a vehicle's files, and collect a live stream into a window that an agent can learn from.

    \b
    Examples:
      glassfleet data import export.csv --out drive.parquet
      glassfleet data collect --source mqtt://127.0.0.1/vehicle/samples --store drive.window
    """


data.add_command(collect)

_SHOWN = 24
_FIRST = 3.0
"""Seconds after which it is said how far the import is, where there is no bar."""


def _rows_places(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(rows_place(ctx, parameter, each)) for each in given)


@dataclass(frozen=True, kw_only=True)
class _Options:
    sources: tuple[str, ...]
    out: Path | None
    plan_file: Path | None
    target: str | None
    databases: tuple[Path, ...]
    catalogues: tuple[Path, ...]
    as_json: bool

    def check(self) -> None:
        """Raise UsageError for what cannot be meant."""
        if self.out is not None and self.out.suffix not in (".parquet", ".csv"):
            raise UsageError(f"--out {self.out}: a table ends in .parquet or .csv")
        if self.out is not None and any(self.out.absolute() == Path(source).absolute() for source in self.sources):
            raise UsageError(f"--out {self.out} is one of the files that are read")


@data.command("import")
@click.argument("sources", nargs=-1, required=True, callback=_rows_places, metavar="SOURCE...")
@file_option(
    "--out",
    help="The table, .parquet or .csv; one that is there is replaced. Default: nothing is written, only looked at.",
)
@file_option(
    "--plan", "plan_file",
    help="How the files are read. One that is not there is proposed and written, with the lines that are to decide.",
)  # fmt: skip
@click.option("--target", metavar="COLUMN", help="The column to forecast, the last one of the table.")
@file_option(
    "--database", "databases", multiple=True,
    help="What the frames of a bus mean: DBC, ARXML, KCD or SYM. May be given several times.",
)  # fmt: skip
@file_option(
    "--vss", "catalogues", multiple=True,
    help="Catalogue of the Vehicle Signal Specification as JSON, and overlays: names, units and limits of columns.",
)  # fmt: skip
@json_option
@options_as(_Options)
def import_(given: _Options) -> None:
    """Make one table of a vehicle's files, as loggers, recorders and spreadsheets write them.

    Separators, encodings, lines above the names, units, marks for no value, dates and times, one signal a row: what is
    certain is done, and said. What can be read in two ways is refused, with both readings, until a plan decides it.
    Give the same plan to all vehicles: it names no file. Exit code 3: a file cannot be used as it is.

    \b
    Examples:
      glassfleet data import export.csv
      glassfleet data import monday.csv.gz tuesday.csv.gz --plan fleet.toml --out drive.parquet
      glassfleet data import "sqlite:///drives.db?query=SELECT speed, load, quality FROM rows"
      glassfleet data import drive.blf --database car.dbc --target FuelRate --out drive.parquet
    """
    from edge_agent.imports.importing import ImportJob, import_files  # numpy comes with it
    from edge_agent.imports.judge import UndecidedError
    from edge_agent.imports.plan import read_plan
    from edge_agent.recordings.vss import Catalogue

    given.check()
    plan_file = given.plan_file
    plan = read_plan(plan_file) if plan_file is not None and plan_file.exists() else None
    if plan is not None and given.target is not None and given.target != plan.target:
        raise UsageError(f"--target {given.target}: the plan says {plan.target!r}. Change it there")
    catalogue = Catalogue(given.catalogues) if given.catalogues else None
    with progress("import", 100, "percent", silence=_FIRST) as work, tempfile.TemporaryDirectory() as folder:
        sources = [_as_file(source, Path(folder)) for source in given.sources]
        job = ImportJob(sources, given.out, plan, given.target or "", given.databases, catalogue)
        job.progress = work.at
        try:
            report = import_files(job)
        except UndecidedError as fault:
            if plan_file is not None and plan is None:
                replace_private(plan_file, fault.proposal.plan.to_toml(fault.proposal.why).encode(), 0o644)
                click.echo(f"written: {plan_file}, with the lines to decide", err=True)
            raise
    if plan_file is not None and plan is None:
        replace_private(plan_file, report.plan.to_toml(report.why).encode(), 0o644)
    if given.as_json:
        print_json(report.to_document())
        return
    names = ", ".join(without_password(source) for source in given.sources[:3]) + (
        ", ..." if len(given.sources) > 3 else ""
    )
    click.echo(f"{names}: {report.line()}")
    for line in (*(f"  {line}" for line in _columns(report)), *_counts(report)):
        click.echo(line)
    if plan_file is not None and plan is None:
        click.echo(f"written: {plan_file}, the plan")
    if given.out is None:
        click.echo("nothing is written: name a table with --out drive.parquet")
        return
    agent = " ".join(["glassfleet agent --id ID --data", shlex.quote(str(given.out)), *_kinds(report)])
    click.echo(f"written: {given.out}, target {report.plan.target}. Next: {agent}")


def _kinds(report: Report) -> list[str]:
    """Return the options with which an agent takes such a table."""
    inputs = [holds for holds in report.columns if holds.name != report.plan.target]
    texts = any(holds.texts for holds in inputs)
    labels = any(holds.texts for holds in report.columns if holds.name == report.plan.target)
    found = {"--categories": texts, "--missing": any(holds.missing for holds in inputs), "--labels": labels}
    return [option for option, is_so in found.items() if is_so]


def _as_file(source: str, folder: Path) -> Path:
    """Return a file; the rows of a database or a window are written into one."""
    from edge_agent.sources.readers import locate  # numpy comes with it

    place = locate(source)
    if place.reader.is_text or place.reader.columns is not None:
        return Path(source)
    path = folder / f"{len(list(folder.iterdir()))}-{Path(source).name[:40] if '://' not in source else 'query'}"
    with place.reader.rows(place) as (names, blocks), path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(names)
        for block in blocks:
            out.writerows(block)
    return path


def _columns(report: Report) -> list[str]:
    """Return the plan as a table, with values before and after."""
    rows = [["column", "what becomes of it", "before", "after", "low", "high", "no value"]]
    columns = report.plan.columns
    for holds in report.columns:
        column = columns.get(holds.name)
        unit = f" in {column.unit}" if column is not None and column.unit else ""
        why = report.why.get(holds.name, column.take if column is not None else "time in seconds")
        if holds.name in report.plan.times[1:]:
            why = "number of the drive"
        if holds.name == report.plan.target:
            why += " (the target)"
        ends = ["" if value is None else f"{value:.6g}" for value in (holds.low, holds.high)]
        before, after = (" | ".join(_short(value) for value in values) for values in (holds.before, holds.after))
        rows.append(
            [printable(holds.name)[:40], f"{printable(why)}{unit}", before, after, *ends, str(holds.missing or "")]
        )
    for name, column in columns.items():
        if column.take == "nothing":
            rows.append(
                [printable(name)[:40], printable(report.why.get(name, "left out by the plan")), "", "", "", "", ""]
            )
    return table_lines(rows, left=(0, 1, 2, 3))


def _short(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    text = f"{value:.10g}" if isinstance(value, float) else printable(str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _counts(report: Report) -> list[str]:
    """Return what was left out and has no value, by reason, and what to look at."""
    lines = [f"left out: {counted(count, reason)}" for reason, count in report.left_out.items() if count]
    lines += [f"no value: {printable(name)}: {marks}" for name, marks in report.marks().items()]
    lines += [f"{click.style('warning', fg='yellow')} {printable(warning)}" for warning in report.warnings]
    return [*lines, f"{counted(report.rows, 'rows')}, {sum(report.left_out.values()):,} left out"]
