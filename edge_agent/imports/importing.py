"""Imports files: each becomes a part by the plan, the parts become one table in the order of time."""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_agent.imports import judge, opened
from edge_agent.imports.clocks import TextRows
from edge_agent.imports.dialect import Dialect, rows_of, split_unit
from edge_agent.imports.engine import (
    CellTable,
    ImportDatabase,
    Progress,
    cells_of,
    judge_rejects,
    name_sql,
    text_sql,
    time_sql,
)
from edge_agent.imports.inputs import as_text
from edge_agent.imports.opened import Text
from edge_agent.imports.plan import Plan
from edge_agent.imports.recorded import Recorded, is_recording, part_of, propose, read
from edge_agent.imports.report import Report, fit_part, look, with_paths
from edge_agent.imports.rows import Reading, RowFile, aligned_long, aligned_wide, joined, without_repeats
from edge_agent.recordings import units
from edge_agent.recordings.vss import Catalogue
from schemas.errors import FREE, DataError, GlassfleetError, StorageError, UsageError, os_faults_as
from schemas.limits import MAX_FEATURES


@dataclass
class ImportJob:
    """What is asked for.

    Attributes
    ----------
    sources : sequence of Path
    out : Path or None
        None: the table is looked at, and nothing is written.
    plan : Plan or None
        None: one is proposed.
    target : str
    databases : sequence of Path
        What the frames of buses mean.
    catalogue : Catalogue or None
        Names, units and limits of signals.
    progress : callable or None
    """

    sources: Sequence[Path]
    out: Path | None = None
    plan: Plan | None = None
    target: str = ""
    databases: Sequence[Path] = ()
    catalogue: Catalogue | None = None
    progress: Progress | None = None
    report: Report = field(default_factory=Report)


def import_files(job: ImportJob) -> Report:
    """Import files into one table; nothing is left half-written.

    Raises
    ------
    DataError
        A file cannot be used as it is; the text names file, line, column and the way out.
    StorageError
        The table cannot be written.
    """
    if job.plan is not None and job.plan.has_paths and job.catalogue is None:
        raise UsageError("the plan has paths of a catalogue: name it with --vss")
    if job.plan is not None and job.plan.undecided:
        raise DataError(f"the plan has lines to decide ({', '.join(job.plan.undecided)})", 'Write what is so for "?"')
    folder = None if job.out is None else job.out.absolute().parent
    with (
        os_faults_as(StorageError, "the table cannot be written", f". {FREE}"),
        tempfile.TemporaryDirectory(prefix=".glassfleet-import-", dir=folder) as scratch,
    ):
        given = []
        for number, source in enumerate(job.sources):
            place = Path(scratch) / str(number)
            place.mkdir()
            judged = _recorded(job, source) if is_recording(source) else _judged(job, source, place)
            given.append((judged, place))
        # Only now: a refusal need not wait for it.
        plan = job.report.plan
        engine = ImportDatabase(Path(scratch), job.progress, columns=len(plan.taken))
        parts = [
            part_of(engine, judged, job.report, place, job.catalogue)
            if isinstance(judged, Recorded)
            else _part(engine, job, judged, place)
            for judged, place in given
        ]
        table = joined(engine, parts, job.report, Path(scratch))
        look(engine, table, job.report)
        if not job.report.rows:
            raise DataError("no row is left", "Look at what was left out above, and at the plan", str(job.sources[0]))
        if job.out is not None:
            _write(engine, table, job.out)
    return job.report


def _write(engine: ImportDatabase, table: Path, out: Path) -> None:
    if out.suffix == ".parquet":
        table.replace(out)
        return
    copy = table.with_name("table.csv")
    engine.rows(
        f"COPY (SELECT * FROM read_parquet({text_sql(str(table))})) TO {text_sql(str(copy))} (FORMAT csv, HEADER)"
    )
    copy.replace(out)


def _recorded(job: ImportJob, source: Path) -> Recorded:
    """Return a recording's signals; the first one's plan counts for all."""
    found = read(source, job.databases)
    if job.plan is not None:
        job.report.plan = job.plan
    elif job.report.plan == Plan():
        _accept(job, propose(found, job.target), str(source))
    return found


def _accept(job: ImportJob, proposal: judge.Proposal, where: str) -> None:
    """Take a proposed plan, with the names of the catalogue; raises UndecidedError."""
    if job.catalogue is not None:
        with_paths(proposal, job.catalogue)
    if proposal.decisions:
        raise judge.UndecidedError(proposal, where)
    job.report.plan, job.report.why = proposal.plan, proposal.why


def _judged(job: ImportJob, source: Path, place: Path) -> tuple[Text, Dialect, TextRows]:
    """Return a file's text and layout; the first one's plan counts for all."""
    text = as_text(source, place, job.plan)
    report = job.report
    known = job.plan or (None if report.plan == Plan() else report.plan)
    dialect = judge.layout(text, known)
    given = judge.sample(text, dialect)
    if known is None:
        proposal = judge.propose_for(given, dialect, job.target, text.source)
        if text.encoding == "cp1252":
            proposal.plan = proposal.plan.with_csv(encoding=text.encoding)
        _accept(job, proposal, text.source)
    elif job.plan is not None:
        report.plan = job.plan
    report.notes += [*text.notes, *dialect.notes]
    report.left_out.update(text.left_out)
    inputs = len(report.plan.taken) - 1
    if inputs > MAX_FEATURES:
        mend = 'Leave columns out in the plan: take = "nothing"'
        raise DataError(f"{inputs:,} input columns; at most {MAX_FEATURES} are allowed", mend, str(source))
    _torn_end(text, dialect, place, report)
    return text, dialect, given


def _part(engine: ImportDatabase, job: ImportJob, judged: tuple[Text, Dialect, TextRows], place: Path) -> RowFile:
    text, dialect, given = judged
    report = job.report
    cells = cells_of(text, dialect, given.names)
    cells.has_low_lines |= any("_" in cell for row in given.rows[: given.head] for cell in row)
    _convert(cells, dialect, report)
    if given.repeated:
        without_repeats(engine, cells, dialect, report)
    reading = Reading(engine, cells, text, dialect, job.plan is None, report, job.catalogue)
    if report.plan.long is not None:
        part = aligned_long(reading, place)
    elif report.plan.aligned is not None:
        part = aligned_wide(reading, place)
    else:
        part = _dense(reading, place)
        fit_part(engine, part.path, report, job.catalogue, text.source)
    report.left_out.update(cells.left_out)
    return part


def _convert(cells: CellTable, dialect: Dialect, report: Report) -> None:
    """Let numbers whose unit stands in or under their name get the plan's; raises DataError where they cannot."""
    stated = dict(zip(cells.columns, dialect.units, strict=False))
    for name, column in report.plan.taken.items():
        source = column.source or name
        if column.take != "number" or source not in cells.columns:
            continue
        given = stated.get(source) or split_unit(source)[1]
        try:
            scale = units.planned(given, column.unit, name)
        except DataError as fault:
            raise DataError(fault.what, fault.mend, cells.where) from fault
        if scale != units.SAME:
            cells.scales[source] = scale
            report.notes.append(f"{name} converted from {given} to {column.unit}")


def _torn_end(text: Text, dialect: Dialect, place: Path, report: Report) -> None:
    """Leave a last line out that has no line end, unless it is whole beyond doubt."""
    if not text.is_torn:
        return
    with text.path.open("rb") as raw:
        raw.seek(max(0, raw.seek(0, 2) - (1 << 16)))
        *others, last = raw.read().decode("utf-8", "replace").split("\n")
    cells = next((cells for _, cells in rows_of([last], 0, dialect.separator)), [])
    whole = len(cells) == len(dialect.names) and (
        (len(others) > 1 and opened.is_unbroken(last, others[-8:]))
        or last.rstrip().endswith('"')
        or (cells[-1] and not cells[-1][-1:].isdigit() and sum(line.endswith(cells[-1]) for line in others) > 1)
    )
    if whole:
        return
    opened.without_last_line(text, place)
    report.left_out["lines without a line end, perhaps cut"] += 1


def _dense(reading: Reading, place: Path) -> RowFile:
    """Make a part whose rows are those of the file."""
    plan, cells = reading.plan, reading.cells
    taken = plan.taken
    columns = {name: cells.value_sql(name, plan) for name in taken}
    time = ""
    if plan.clock is not None and plan.time is not None:
        time = plan.time.column
        columns = {time: time_sql(cells, plan), **columns}
    part = place / "part.parquet"
    reading.report.units |= {name: column.unit for name, column in taken.items()}
    listed = ", ".join(f"{value} AS {name_sql(name)}" for name, value in columns.items())
    reading.engine.forget_rejects()
    select = f"SELECT {listed} FROM {cells.sql} WHERE true {cells.without}"
    reading.engine.copy(select, part, reading.report.metadata(), columns=len(columns), where=cells.where)
    cells.left_out = Counter()
    judge_rejects(reading.engine, cells, reading.text, reading.dialect)
    nulls = _nulls(reading.engine, part)
    if time and nulls.get(time) and reading.check_times():
        return _dense(reading, place)
    if reading.check([name for name in taken if nulls.get(name)]):
        return _dense(reading, place)
    clock = {time: cells.columns[plan.clock.source]} if time and plan.clock is not None else {}
    reading.before({**clock, **{name: cells.columns[column.source or name] for name, column in taken.items()}})
    return RowFile(part, time, reading.text.source)


def _nulls(engine: ImportDatabase, part: Path) -> dict[str, int]:
    found = engine.rows(
        "SELECT path_in_schema, sum(stats_null_count), sum(num_values) "
        f"FROM parquet_metadata({text_sql(str(part))}) GROUP BY 1"
    )
    return {str(name): int(nulls if nulls is not None else 1) for name, nulls, _ in found}


def main() -> int:
    """Import one file for an agent: ``python -m edge_agent.imports.importing SOURCE OUT TARGET`` prints what it did.

    The engine's memory is gone when this process ends.
    """
    source, out, target = sys.argv[1:4]
    try:
        report = import_files(ImportJob([Path(source)], Path(out), target=target))
    except GlassfleetError as fault:
        fields = {name: getattr(fault, name, "") for name in ("mend", "where", "tells")}
        sys.stdout.write(json.dumps({"fault": {**fields, "what": getattr(fault, "what", str(fault))}}))
        return fault.exit_code
    sys.stdout.write(json.dumps({"line": report.line(), "warnings": report.warnings, "marks": report.marks()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
