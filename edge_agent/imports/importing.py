"""Imports files: each becomes a part by the plan, the parts become one table in the order of time."""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from edge_agent.imports import catalogued, judge, opened, recorded
from edge_agent.imports.catalogued import fit_part
from edge_agent.imports.dialect import Dialect
from edge_agent.imports.engine import (
    Engine,
    Progress,
    cells_of,
    judge_rejects,
    name_sql,
    text_sql,
    time_sql,
    value_sql,
)
from edge_agent.imports.inputs import as_text
from edge_agent.imports.opened import Text
from edge_agent.imports.plan import Plan
from edge_agent.imports.reading import Reading, without_repeats
from edge_agent.imports.report import Report, look
from edge_agent.imports.rows import Part, aligned, aligned_long, aligned_wide, joined
from edge_agent.recordings.vss import Catalogue
from schemas.errors import DataError
from schemas.limits import MAX_FEATURES

@dataclass
class Job:
    """What is asked for.

    Attributes
    ----------
    sources : sequence of Path
    out : Path or None
        None: the table is looked at, and nothing is written.
    plan : Plan or None
        None: one is proposed.
    target : str
    progress : callable or None
    databases : sequence of Path
        What the frames of recordings mean.
    catalogues : sequence of Path
        Of VSS: names, units and limits of columns.
    """

    sources: Sequence[Path]
    out: Path | None = None
    plan: Plan | None = None
    target: str = ""
    progress: Progress | None = None
    databases: Sequence[Path] = ()
    catalogues: Sequence[Path] = ()
    report: Report = field(default_factory=Report)

    @cached_property
    def catalogue(self) -> Catalogue | None:
        """The catalogues as one, if there are any."""
        return Catalogue(self.catalogues) if self.catalogues else None


def import_files(job: Job) -> Report:
    """Import files into one table; nothing is left half-written.

    Raises
    ------
    DataError
        A file cannot be used as it is; the text names file, line, column and the way out.
    StorageError
        The table cannot be written.
    """
    if job.plan is not None and job.plan.undecided:
        raise DataError(f"the plan has lines to decide ({', '.join(job.plan.undecided)})", 'Write what is so for "?"')
    folder = None if job.out is None else job.out.absolute().parent
    with tempfile.TemporaryDirectory(prefix=".glassfleet-import-", dir=folder) as scratch:
        given = []
        for number, source in enumerate(job.sources):
            place = Path(scratch) / str(number)
            place.mkdir()
            judged = _recorded if recorded.is_recording(source) else _judged
            given.append(judged(job, source, place))
        engine = Engine(Path(scratch), job.progress)  # only now: a refusal need not wait for it
        parts = [part(engine) for part in given]
        table = joined(engine, parts, job.report, Path(scratch))
        look(engine, table, job.report)
        if not job.report.rows:
            raise DataError("no row is left", "Look at what was left out above, and at the plan", str(job.sources[0]))
        if job.out is not None:
            _write(engine, table, job.out)
    return job.report


def _write(engine: Engine, table: Path, out: Path) -> None:
    if out.suffix == ".parquet":
        table.replace(out)
        return
    copy = table.with_name("table.csv")
    engine.rows(
        f"COPY (SELECT * FROM read_parquet({text_sql(str(table))})) TO {text_sql(str(copy))} (FORMAT csv, HEADER)"
    )
    copy.replace(out)


def _recorded(job: Job, source: Path, place: Path) -> Callable[[Engine], Part]:
    """Return what makes a part of a recording; the first one's plan counts for all."""
    found, report = recorded.read(source, job.databases), job.report
    if job.plan is not None:
        report.plan = job.plan
    elif not report.plan.columns:
        proposal = recorded.propose(found, job.target)
        catalogued.propose(proposal, job.catalogue)
        if proposal.decisions:
            raise judge.UndecidedError(proposal, str(source))
        report.plan, report.why = proposal.plan, proposal.why

    def part(engine: Engine) -> Part:
        return aligned(engine, recorded.series(found, report, job.catalogue), report, place, str(source))

    return part


def _judged(job: Job, source: Path, place: Path) -> Callable[[Engine], Part]:
    """Return what makes a part of a text; the first one's plan counts for all."""
    text = as_text(source, place, job.plan)
    report = job.report
    known = job.plan or (report.plan if report.plan.columns else None)
    dialect = judge.layout(text, known)
    given = judge.sample(text, dialect)
    if known is None:
        report.plan, report.why = _proposed(job, text, dialect, given)
    elif job.plan is not None:
        report.plan = job.plan
    report.notes += [*text.notes, *dialect.notes]
    report.left_out.update(text.left_out)
    inputs = sum(column.take != "nothing" for column in report.plan.columns.values()) - 1
    if inputs > MAX_FEATURES:
        mend = 'Leave columns out in the plan: take = "nothing"'
        raise DataError(f"{inputs:,} input columns; at most {MAX_FEATURES} are allowed", mend, str(source))
    _torn_end(text, dialect, place, report)
    return lambda engine: _part(engine, job, text, dialect, given, place)


def _part(engine: Engine, job: Job, text: Text, dialect: Dialect, given: judge.Sample, place: Path) -> Part:
    report = job.report
    cells = cells_of(engine, text, dialect, given.names)
    if given.repeated:
        without_repeats(engine, cells, dialect, report)
    reading = Reading(engine, cells, text, dialect, job.plan is None, report, job.catalogue)
    if report.plan.long is not None:
        part = aligned_long(reading, place)
    elif report.plan.time is not None and report.plan.time.aligned is not None:
        part = aligned_wide(reading, place)
    else:
        part = _dense(reading, place)
        fit_part(engine, part.path, report, job.catalogue, text.source)
    report.left_out.update(cells.left_out)
    return part


def _proposed(job: Job, text: Text, dialect: Dialect, given: judge.Sample) -> tuple[Plan, dict[str, str]]:
    proposal = judge.propose_for(given, dialect, job.target, text.source)
    if text.encoding == "cp1252":
        csv = proposal.plan.csv.model_copy(update={"encoding": text.encoding})
        proposal.plan = proposal.plan.model_copy(update={"csv": csv})
    catalogued.propose(proposal, job.catalogue)
    if proposal.decisions:
        raise judge.UndecidedError(proposal, text.source)
    return proposal.plan, proposal.why


def _torn_end(text: Text, dialect: Dialect, place: Path, report: Report) -> None:
    """Leave a last line out that has no line end, unless it is whole beyond doubt."""
    if not text.is_torn:
        return
    with text.path.open("rb") as raw:
        raw.seek(max(0, raw.seek(0, 2) - (1 << 16)))
        *others, last = raw.read().decode("utf-8", "replace").split("\n")
    cells = judge.parse_line(last, dialect.separator)
    whole = len(cells) == len(dialect.names) and (
        (len(others) > 1 and opened.is_unbroken(last, others[-8:]))
        or last.rstrip().endswith('"')
        or (cells[-1] and not cells[-1][-1:].isdigit() and sum(line.endswith(cells[-1]) for line in others) > 1)
    )
    if whole:
        return
    opened.without_last_line(text, place)
    report.left_out["last lines without a line end, which may be cut"] += 1


def _dense(reading: Reading, place: Path) -> Part:
    """Make a part whose rows are those of the file."""
    plan, cells = reading.plan, reading.cells
    taken = {name: column for name, column in plan.columns.items() if column.take != "nothing"}
    columns = {name: value_sql(cells.columns[column.source or name], column, plan) for name, column in taken.items()}
    time = ""
    if plan.clock is not None and plan.time is not None:
        time = plan.time.column
        columns = {time: time_sql(cells, plan), **columns}
    part = place / "part.parquet"
    reading.report.units |= {name: column.unit for name, column in taken.items()}
    listed = ", ".join(f"{value} AS {name_sql(name)}" for name, value in columns.items())
    reading.engine.db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
    reading.engine.rows(
        f"COPY (SELECT {listed} FROM {cells.sql} WHERE true {cells.without}) TO {text_sql(str(part))} "
        f"(FORMAT parquet, {reading.report.metadata()})",
        cells.where,
    )
    cells.left_out = Counter()
    judge_rejects(reading.engine, cells, reading.text, reading.dialect)
    nulls = _nulls(reading.engine, part)
    if time and nulls.get(time):
        if reading.check_times():
            return _dense(reading, place)
    if reading.check([name for name in taken if nulls.get(name)]):
        return _dense(reading, place)
    reading.before({name: cells.columns[column.source or name] for name, column in taken.items()})
    return Part(part, time, reading.text.source)


def _nulls(engine: Engine, part: Path) -> dict[str, int]:
    found = engine.rows(
        f"SELECT path_in_schema, sum(stats_null_count), sum(num_values) FROM parquet_metadata({text_sql(str(part))}) GROUP BY 1"
    )
    return {str(name): int(nulls if nulls is not None else 1) for name, nulls, _ in found}
