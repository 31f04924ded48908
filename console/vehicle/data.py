"""``glassfleet data``: look at a vehicle's rows before an agent does, and keep a window over a live stream."""

from __future__ import annotations

import datetime as dt
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import RowsFile, print_json, result_options, rows_place, table_lines
from console.tables import printable
from console.vehicle.collect import DAY, collect
from schemas.errors import UsageError
from schemas.private_files import replace_private
from schemas.text import counted

if TYPE_CHECKING:
    from edge_agent.sources.findings import Fault, Findings
    from edge_agent.sources.fit import Order
    from glassfleet.data.domain import Domain

_MARKS = {"error": ("error  ", "red"), "warning": ("warning", "yellow"), "note": ("note   ", "cyan")}


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
    """Look at a vehicle's rows, and collect a live stream into a window that an agent can learn from.

    \b
    Examples:
      glassfleet data prepare export.csv
      glassfleet data check vehicle-07.csv.gz
      glassfleet data describe "sqlite:///drives.db?query=SELECT speed, load, quality FROM rows"
      glassfleet data collect --source mqtt://127.0.0.1/vehicle/samples --store drive.window
    """


data.add_command(collect)

source_argument = click.argument(
    "source", envvar="GLASSFLEET_AGENT_DATA", callback=rows_place, required=True,
    type=click.Path(readable=False),  # that a file cannot be read is a fault of the data, told as an agent tells it
)  # fmt: skip


@data.command()
@source_argument
@click.option("--target", metavar="COLUMN", help="Target column. Default: the last one.")
@click.option("--labels", is_flag=True, help="The target is a class label, even when it is written as numbers.")
@click.option("--categories", is_flag=True, help="Columns of text are inputs, too, for the schemes that take such.")
@click.option("--missing", is_flag=True, help="Cells of inputs may be empty, for the schemes that take such.")
@click.option("--scheme", metavar="NAME", help="Judge for this scheme: whether it takes texts, empty cells, classes.")
@click.option(
    "--domain", "domain_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Judge for this domain, or for that of this model record: columns, limits, categories, lagged features.",
)  # fmt: skip
@result_options
@click.pass_context
def check(  # noqa: PLR0917 - click passes options by name
    ctx: click.Context,
    source: str,
    target: str | None,
    labels: bool,
    categories: bool,
    missing: bool,
    scheme: str | None,
    domain_file: Path | None,
    as_json: bool,
) -> None:
    """Say everything that is wrong with a vehicle's rows, where, and how to mend it.

    Exit code 0: an agent takes it, perhaps with warnings; 3: it does not. An agent itself stops at the first fault.

    \b
    Examples:
      glassfleet data check vehicle-07.csv.gz --target quality
      glassfleet data check vehicle-07.csv --scheme fedga --domain qoe.json --json
      glassfleet data check "postgresql://car@127.0.0.1/drives?table=rows"
    """
    from edge_agent.sources.check import examine  # numpy comes with it
    from edge_agent.sources.fit import fit

    domain = None if domain_file is None else _domain(domain_file)
    if domain is not None and target is None:
        target = domain.target_name
    texts, gaps, classes = _taken(scheme)
    categories, missing = categories or texts, missing or gaps
    labels = labels or classes or (domain is not None and domain.target is None)
    findings = examine(source, target=target, labels=labels, categories=categories, missing=missing)
    if domain is not None and findings.columns:
        fit(findings, source, domain, labels=labels, categories=categories, missing=missing)
    _say_flags(findings, labels=labels, categories=categories, missing=missing)
    order = _order(source, findings, domain)
    if as_json:
        print_json({**findings.to_document(), "order": None if order is None else order.to_document()})
    else:
        for line in (_headline(findings), *order_lines(order), *fault_lines(findings)):
            click.echo(line)
        errors = sum(fault.level == "error" for fault in findings.faults)
        refused = f"an agent refuses this: {errors} error{'s' if errors > 1 else ''}, see above"
        click.echo("an agent takes this" if findings.usable else refused)
    ctx.exit(0 if findings.usable else 3)


@data.command()
@source_argument
@click.option("--target", metavar="COLUMN", help="Target column. Default: the last one.")
@result_options
@click.pass_context
def describe(ctx: click.Context, source: str, target: str | None, as_json: bool) -> None:
    """Say what a vehicle's rows hold: columns, ranges, missing cells, categories, drives and their order.

    It judges nothing, and ends with exit code 3 only when there is nothing to read.

    \b
    Examples:
      glassfleet data describe vehicle-07.csv.gz
      glassfleet data describe drive.window --json
    """
    from edge_agent.sources.check import examine  # numpy comes with it
    from edge_agent.sources.readers import locate
    from edge_agent.sources.window import READER, WindowStore

    findings = examine(source, target=target, labels=False, categories=True)
    order = _order(source, findings, None)
    window: dict[str, Any] | None = None
    if locate(source).reader is READER and findings.rows:
        with closing(WindowStore.open(Path(source))) as store:
            rows, seconds = store.limits
            _, first, last = store.span()
        window = {"max_rows": rows, "max_days": seconds / DAY, "oldest": first, "newest": last}
    if as_json:
        document = findings.to_document()
        del document["faults"], document["usable"]
        print_json({**document, "order": None if order is None else order.to_document(), "window": window})
    elif not findings.columns:
        for line in fault_lines(findings):
            click.echo(line, err=True)
    else:
        click.echo(_headline(findings))
        for line in (*column_lines(findings), *order_lines(order), *_window_lines(window)):
            click.echo(line)
    ctx.exit(0 if findings.columns else 3)


@data.command()
@click.argument("file", type=RowsFile(dir_okay=False), metavar="FILE")
@click.option("--target", metavar="COLUMN", help="Target column, which is never left out. Default: the last one.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="PLAN",
    help="Where the plan is written, in FILE's folder; ends in .plan. Default: FILE.plan.",
)  # fmt: skip
@result_options
def prepare(file: Path, target: str | None, out: Path | None, *, as_json: bool) -> None:
    """Propose how a CSV file as people have them is read, and write that down as a plan.

    Semicolons, decimal commas, marks between thousands, units, yes and no, dates and times, cells without a value: the
    plan says what becomes of each column. Change it as you like, then name it in place of the file: --data FILE.plan.
    It is applied to each row that is read. Give the same plan to all vehicles, each beside its own file of that name.

    \b
    Examples:
      glassfleet data prepare export.csv --target quality
    """
    from edge_agent.sources.plan import ENDING  # numpy comes with it
    from edge_agent.sources.proposal import SEPARATORS, propose
    from edge_agent.sources.readers import kind_of

    out = file.with_name(f"{kind_of(file.name)[0]}{ENDING}") if out is None else out
    if out.suffix != ENDING or out.parent.resolve() != file.parent.resolve():
        raise UsageError(f"--out {out}: a plan ends in {ENDING} and lies beside its file")
    if out.exists():
        raise UsageError(f"{out} is there already: remove it, or name another --out")
    proposal = propose(file, target)
    plan = proposal.plan
    replace_private(out, f"{plan.model_dump_json(indent=2, exclude_defaults=True)}\n".encode(), 0o644)
    texts = {name: rule for name, rule in plan.columns.items() if rule.take == "text"}
    flags = "".join(
        [
            "" if target is None else f" --target {shlex.quote(target)}",
            " --labels" if texts.pop(proposal.target, None) else "",
            " --categories" if texts else "",
        ]
    )
    if as_json:
        document = {"plan": str(out), "rows": proposal.rows, "usable": proposal.usable, "reasons": proposal.reasons}
        print_json(document)
        return
    between = f", {plan.thousands!r} between thousands" if plan.thousands else ""
    click.echo(f"{file}: columns separated by {SEPARATORS[plan.separator]}, decimal {plan.decimal!r}{between}")
    cells = [[printable(name), printable(reason)] for name, reason in proposal.reasons.items()]
    for line in table_lines([["column", "what becomes of it"], *cells], left=(0, 1)):
        click.echo(f"  {line}")
    click.echo(f"{counted(proposal.rows, 'rows')}, {proposal.usable:,} with a value in each column that is taken")
    click.echo(f"written: {out}. Next: glassfleet data check {shlex.quote(str(out))}{flags}")


def _taken(scheme: str | None) -> tuple[bool, bool, bool]:
    """Return whether a scheme takes columns of text, whether it takes empty cells, and whether it only classifies."""
    if scheme is None:
        return False, False, False
    from glassfleet import catalogue
    from glassfleet.traits import is_label_scheme, takes_categories, takes_missing

    loaded = catalogue.load(scheme)
    return takes_categories(loaded), takes_missing(loaded), is_label_scheme(loaded)


def _say_flags(findings: Findings, *, labels: bool, categories: bool, missing: bool) -> None:
    """Add what an agent must be told, so that it reads the table as it was judged here."""
    from edge_agent.sources.findings import Fault

    flags = ["--labels"] if labels else []
    if categories and any(column.role == "input" and column.kind == "text" for column in findings.columns):
        flags.append("--categories")
    if missing and any(column.role == "input" and column.missing for column in findings.columns):
        flags.append("--missing")
    if flags:
        findings.faults.append(Fault("note", f"judged as an agent reads it with {' and '.join(flags)}"))


def _domain(path: Path) -> Domain:
    from pydantic import ValidationError

    from console.common import json_file
    from glassfleet.data.domain import Domain
    from schemas.validation import first_fault

    given = json_file(path, "domain")
    if isinstance(given, dict) and isinstance(given.get("document"), dict):
        given = given["document"].get("domain")
    try:
        return Domain.model_validate(given)
    except ValidationError as fault:
        raise UsageError(f"--domain {path}: {first_fault(fault)}") from fault


def _order(source: str, findings: Findings, domain: Domain | None) -> Order | None:
    """Return how the rows lie in time, when they can be read at all."""
    from edge_agent.sources.fit import order_of
    from edge_agent.sources.table import read_table
    from schemas.errors import DataError

    if not findings.rows:
        return None
    try:
        return order_of(read_table(source), None if domain is None else domain.memory)
    except DataError:
        return None  # among the findings


def _headline(findings: Findings) -> str:
    from edge_agent.sources.judge import many  # numpy comes with it

    if not findings.columns:
        return findings.source
    split = "" if findings.train is None else f" ({findings.train} train, {findings.rows - findings.train} test)"
    inputs = many(sum(column.role == "input" for column in findings.columns), "input")
    target = next((column.name for column in findings.columns if column.role == "target"), "none")
    return f"{findings.source}: {many(findings.rows, 'row')}{split}, {inputs}, target {target}"


def fault_lines(findings: Findings) -> list[str]:
    """Return what was found, each with its place and how to mend it."""
    lines = []
    for fault in findings.faults:
        mark, colour = _MARKS[fault.level]
        column = f"{fault.column}: " if fault.column else ""
        lines.append(f"{click.style(mark, fg=colour)} {column}{fault.what}{_places(fault, findings.place)}")
        if fault.mend:
            lines.append(f"        -> {fault.mend}")
    return lines


def _places(fault: Fault, place: str) -> str:
    if not fault.lines:
        return ""
    more = ", ..." if fault.count > len(fault.lines) else ""
    word = place if fault.count == 1 else f"{place}s"
    return f" ({word} {', '.join(map(str, fault.lines))}{more})"


def column_lines(findings: Findings) -> list[str]:
    """Return the columns as a table."""
    rows = [["column", "role", "kind", "missing", "different", "low", "mean", "high", "most frequent"]]
    for column in findings.columns:
        numbers = ["" if value is None else f"{value:.6g}" for value in (column.low, column.mean, column.high)]
        common = ", ".join(f"{text[:20]} {times}" for text, times in column.common.items())
        sizes = [str(column.missing), str(column.different)]
        rows.append([column.name[:40], column.role, column.kind, *sizes, *numbers, common])
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    return table_lines(rows, left=(0, 1, 2, 8))


def order_lines(order: Order | None) -> list[str]:
    """Return how the rows lie in time, for lagged features."""
    from edge_agent.sources.judge import many  # numpy comes with it

    if order is None:
        return []
    words = []
    if order.drive:
        words.append(f"{many(order.drives, 'drive')} by {order.drive!r} of {order.shortest} to {order.longest} rows")
    if order.time:
        text = "" if order.sorted is None else ", in order" if order.sorted else ", not in order (lagged features sort)"
        step = "" if order.step is None else f", step {order.step:g}, {many(order.gaps, 'gap')}"
        doubles = f", {many(order.doubles, 'row')} at the time of another: no lagged features" if order.doubles else ""
        words.append(f"time {order.time!r}{text}{step}{doubles}")
    return [f"order: {'; '.join(words)}"]


def _window_lines(window: dict[str, Any] | None) -> list[str]:
    if window is None:
        return []
    days = f", {window['max_days']:g} days" if window["max_days"] else ""
    ends = " to ".join(
        f"{dt.datetime.fromtimestamp(window[end], dt.UTC):%Y-%m-%d %H:%M:%S}" for end in ("oldest", "newest")
    )
    return [f"window: at most {window['max_rows']} rows{days}; collected from {ends} (UTC)"]
