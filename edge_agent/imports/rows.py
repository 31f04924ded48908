"""A text on its way into the table: cells are judged, rows stand as in the file or in time, parts become one table."""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.dialect import Dialect
from edge_agent.imports.engine import (
    SHOWN,
    CellTable,
    ImportDatabase,
    judge_rejects,
    lines_with,
    name_sql,
    refuse_unfit,
    text_sql,
    time_sql,
    unfit,
)
from edge_agent.imports.marks import is_mark
from edge_agent.imports.opened import Text
from edge_agent.imports.plan import CLOCK, Plan, Time
from edge_agent.imports.report import Holds, Report, fit_values
from edge_agent.recordings.vss import Catalogue
from glassfleet.data.alignment import Series, align
from glassfleet.data.clock import BACK, TICKS, Cleaned, cleaned, is_missing
from schemas.errors import DataError
from schemas.text import counted


def without_repeats(engine: ImportDatabase, cells: CellTable, dialect: Dialect, report: Report) -> None:
    """Leave the names out where they stand between rows: the logger began again."""
    names = [name for name in dialect.names if name][:3]
    same = " AND ".join(
        f"trim({cell}) = {text_sql(name)}"
        for name, cell in zip(dialect.names, cells.columns.values(), strict=False)
        if name in names
    )
    units = " AND ".join(
        f"coalesce(trim({cell}), '') IN ({text_sql(unit)}, {text_sql(f'[{unit}]')}, {text_sql(f'({unit})')})"
        for unit, cell in zip(dialect.units, cells.columns.values(), strict=False)
    )
    repeats = f"({same})" + (f" OR ({units})" if units else "")
    cells.without = f"AND NOT coalesce({repeats}, false)"
    count = engine.rows(f"SELECT count(*) FROM {cells.sql} WHERE {repeats}", cells.where)[0][0]
    report.left_out["lines of names between rows"] = int(count)


@dataclass
class Reading:
    """A text on its way into the table."""

    engine: ImportDatabase
    cells: CellTable
    text: Text
    dialect: Dialect
    is_proposed: bool
    report: Report
    catalogue: Catalogue | None = None

    @property
    def plan(self) -> Plan:
        """The plan, which may have got marks for no value that stand far down in the file."""
        return self.report.plan

    def check(self, names: Sequence[str], cells: CellTable | None = None, extra: str = "") -> bool:
        """Judge the cells without a value; return whether the names stood between the rows, and all is to be read anew.

        Raises
        ------
        DataError
            Some are no values by the plan.
        """
        cells = cells or self.cells
        found, missing = unfit(self.engine, cells, self.plan, names, extra)
        if found and not cells.without and any(self._is_title(each.column, each.texts) for each in found):
            without_repeats(self.engine, cells, self.dialect, self.report)
            return True
        left = []
        for each in found:
            marks = {text: count for text, count in each.texts.items() if self.is_proposed and is_mark(text)}
            missing[each.column].update(marks)
            self.report.plan = self.plan.with_csv(missing=map(str.lower, marks))
            odd = {text: count for text, count in each.texts.items() if text not in marks}
            if odd:
                left.append(replace(each, texts=odd))
        if left:
            raise refuse_unfit(left, self.text, self.dialect, self.plan)
        self.report.count_missing(missing)
        return False

    def _is_title(self, name: str, texts: dict[str, int]) -> bool:
        return (self.plan.columns[name].source or name) in texts

    def before(self, columns: dict[str, str]) -> None:
        """Note the first cells of columns as they stand in the file."""
        if not columns or self.report.columns:
            return
        listed = ", ".join(columns.values())
        rows = self.engine.rows(
            f"SELECT {listed} FROM {self.cells.sql} WHERE true {self.cells.without} LIMIT 3", self.cells.where
        )
        self.report.columns = [
            Holds(name, [str(row[index] or "") for row in rows]) for index, name in enumerate(columns)
        ]

    def aligned(self, signals: dict[str, Series], place: Path) -> RowFile:
        """Make a part of signals at their own times, as the catalogue has them."""
        report, where = self.report, self.text.source
        fit = {
            name: replace(each, value=fit_values(name, each.value, report, self.catalogue, where))
            for name, each in signals.items()
        }
        return aligned(self.engine, report, fit, place, where)

    def check_times(self) -> bool:
        """Judge the rows without a time: empty ones are left out, others a fault; True: all is to be read anew."""
        plan, cells = self.plan, self.cells
        assert plan.clock is not None
        cell = cells.columns[plan.clock.source]
        rows = self.engine.rows(
            f"SELECT trim({cell}), count(*) FROM {cells.sql} "
            f"WHERE ({time_sql(cells, plan)}) IS NULL {cells.without} GROUP BY 1 "
            "ORDER BY 2 DESC LIMIT 100",
            cells.where,
        )
        odd = [raw for raw, _ in rows if raw and not is_mark(raw)]
        if odd and not cells.without and plan.clock.source in odd:
            without_repeats(self.engine, cells, self.dialect, self.report)
            return True
        if odd:
            lines = lines_with(self.text, self.dialect, int(cell.removeprefix("c")), odd[0])
            place = f"the time {odd[0]!r} (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))})"
            what = f"{place} is not written as the plan says (form = {plan.clock.form!r}, under [clock])"
            raise DataError(what, "Correct the plan, or the file", self.text.source)
        cells.left_out["rows without a time"] = sum(count for _, count in rows)
        return False


_MIDNIGHT: Final = 43_200.0
_SINCE_1970: Final = 1e8
"""Seconds from which on a time is a date, and files can be put into its order."""


@dataclass(frozen=True)
class RowFile:
    """One file's rows, as Parquet.

    Attributes
    ----------
    path : Path
    time : str
        Column of its times; empty: it has none.
    where : str
        The file.
    drives : bool
        Whether it has the number of the drive of each row.
    """

    path: Path
    time: str
    where: str
    drives: bool = False


def aligned_wide(reading: Reading, place: Path) -> RowFile:
    """Make a part of a table whose signals have times of their own, with empty cells between."""
    plan, cells = reading.plan, reading.cells
    taken = plan.taken
    raw = {name: cells.columns[column.source or name] for name, column in taken.items()}
    listed = [f"{time_sql(cells, plan)} AS t"]
    for index, name in enumerate(taken):
        listed.append(f"{cells.value_sql(name, plan)} AS v{index}")
        listed.append(f"(coalesce(trim({raw[name]}), '') <> '')::DOUBLE AS s{index}")
    reading.engine.forget_rejects()
    arrays = reading.engine.arrays(
        f"SELECT {', '.join(listed)} FROM {cells.sql} WHERE true {cells.without}", cells.where
    )
    cells.left_out = Counter()
    judge_rejects(reading.engine, cells, reading.text, reading.dialect)
    odd = [
        name for index, name in enumerate(taken) if (is_missing(arrays[f"v{index}"]) & (arrays[f"s{index}"] > 0)).any()
    ]
    untimed = np.isnan(arrays["t"])
    if (untimed.any() and reading.check_times()) or reading.check(odd, extra=_filled(odd, raw)):
        return aligned_wide(reading, place)
    reading.before(raw)
    time = arrays["t"][~untimed]
    clean = _cleaned(time, plan, reading.report)
    signals = {}
    for index, name in enumerate(taken):
        here = (arrays[f"s{index}"][~untimed] > 0) & clean.is_new
        signals[name] = Series(clean.time[here], arrays[f"v{index}"][~untimed][here], clean.drive[here])
    return reading.aligned(signals, place)


def _filled(names: Sequence[str], raw: dict[str, str]) -> str:
    """Return a condition that leaves empty cells uncounted: they are no samples."""
    return f"AND ({' OR '.join(f'trim({raw[name]}) <> {text_sql(str())}' for name in names)})" if names else ""


def aligned_long(reading: Reading, place: Path) -> RowFile:
    """Make a part of a table with one signal a row."""
    plan, cells, engine = reading.plan, reading.cells, reading.engine
    assert plan.long is not None
    signal, value = cells.columns[plan.long.signal], cells.columns[plan.long.value]
    engine.forget_rejects()
    engine.rows(
        f"CREATE OR REPLACE TABLE samples AS SELECT row_number() OVER () AS i, {time_sql(cells, plan)} AS t, "
        f"trim({signal}) AS signal, {value} AS raw FROM {cells.sql} WHERE true {cells.without}",
        cells.where,
    )
    cells.left_out = Counter()
    judge_rejects(engine, cells, reading.text, reading.dialect)
    untimed = engine.rows("SELECT count(*) FROM samples WHERE t IS NULL")[0][0]
    if untimed and reading.check_times():
        return aligned_long(reading, place)
    time = engine.arrays("SELECT t FROM samples WHERE t IS NOT NULL ORDER BY i")["t"]
    clean = _cleaned(time, plan, reading.report)
    order = engine.arrays("SELECT i FROM samples WHERE t IS NOT NULL ORDER BY i")["i"].astype(np.int64)
    signals = {}
    for name, column in plan.taken.items():
        of_signal = f"(SELECT * FROM samples WHERE signal = {text_sql(column.source or name)} AND t IS NOT NULL)"
        own = CellTable(of_signal, {column.source or name: "raw"}, cells.where, without=cells.without and "AND true")
        reading.check([name], own)
        found = engine.arrays(f"SELECT i, {own.value_sql(name, plan)} AS v FROM {of_signal} ORDER BY i")
        at = np.searchsorted(order, found["i"].astype(np.int64))
        signals[name] = Series(clean.time[at], found["v"], clean.drive[at])
    known = ", ".join(text_sql(column.source or name) for name, column in plan.columns.items())
    others = engine.rows(f"SELECT count(*) FROM samples WHERE coalesce(signal, '') NOT IN ({known})")[0][0]
    if others:
        cells.left_out["samples of signals that the plan does not name"] = int(others)
    engine.db.execute("DROP TABLE samples")
    return reading.aligned(signals, place)


def _cleaned(time: NDArray[np.float64], plan: Plan, report: Report) -> Cleaned:
    assert plan.time is not None
    try:
        clean = cleaned(_unwrapped(time, plan), plan.time.gap)
    except ValueError as fault:
        raise DataError(
            f"a time cannot be meant as written ({fault})", "Correct form and scale under [clock]"
        ) from fault
    tell_cuts(report, [str(cut) for cut in clean.cuts], clean.late)
    return clean


def tell_cuts(report: Report, cuts: Sequence[str], late: int) -> None:
    """Warn of what the clock did wrong."""
    if cuts:
        more = f", and {counted(len(cuts) - SHOWN, 'times')} more" if len(cuts) > SHOWN else ""
        report.warnings.append(f"{'; '.join(cuts[:SHOWN])}{more}: a new drive begins there")
    if late:
        come = "1 time comes" if late == 1 else f"{late:,} times come"
        report.warnings.append(f"{come} after a later one, by at most {BACK // TICKS} s, and counts as that one")


def _unwrapped(time: NDArray[np.float64], plan: Plan) -> NDArray[np.float64]:
    """Let a clock without a date go on past midnight."""
    if plan.clock is None or plan.clock.form != CLOCK or not time.size:
        return time
    return time + 86_400.0 * np.cumsum(np.diff(time, prepend=time[0]) < -_MIDNIGHT)


def aligned(engine: ImportDatabase, report: Report, signals: dict[str, Series], place: Path, where: str) -> RowFile:
    """Make a part whose rows stand where the plan says."""
    time = report.plan.time
    assert time is not None
    plan = time.aligned
    if plan is None:
        raise DataError(
            "signals have times of their own, and the plan does not say where rows stand",
            "Write rows = or every_ms = under [time]",
        )
    taken = report.plan.taken
    absent = [part.signal for part in plan.inputs.values() if part.signal not in taken]
    if absent:
        what = f"[time.inputs] names the signal {absent[0]!r}, which [columns] does not take"
        raise DataError(what, "Correct the plan", where)
    try:
        rows = align(signals, plan)
    except ValueError as fault:
        raise DataError(str(fault), "Correct [time.inputs] in the plan", where) from fault
    report.units = plan.units_of(report.units)
    stands = f"a row at each time of {plan.rows!r}" if plan.rows else f"a row every {plan.every_ms} ms"
    report.notes.append(f"{stands}, the others as [time.inputs] says")
    for name, column in rows.columns.items():
        gone, part = int(is_missing(column).sum()), plan.inputs[name]
        if gone and (part.signal, part.take) != (plan.rows, "last"):  # whose cells without a value are counted already
            report.count_missing({name: Counter({f"nothing heard for {part.seconds:g} s": gone})})
    columns: dict[str, Any] = {
        time.column: rows.time,
        **({time.drive: rows.drive + 1.0} if time.drive else {}),
        **rows.columns,
    }
    path = place / "part.parquet"
    engine.write(columns, path, report.metadata())
    return RowFile(path, time.column, where, drives=bool(time.drive))


def joined(engine: ImportDatabase, parts: Sequence[RowFile], report: Report, scratch: Path) -> Path:
    """Return one table of all parts, in the order of time, with the number of the drive where there are several."""
    time, table = report.plan.time, scratch / "table.parquet"
    if time is None or not parts[0].time:
        if len(parts) == 1:
            return parts[0].path
        selects = [f"SELECT * FROM read_parquet({text_sql(str(part.path))})" for part in parts]
        engine.copy(" UNION ALL ".join(selects), table, report.metadata())
        return table
    if not parts[0].drives and len(parts) == 1 and _is_steady(engine, parts[0], time):
        return parts[0].path
    parts = _in_order(engine, parts)
    drive, newest = 0, None
    selects = []
    for number, part in enumerate(parts):
        source = f"read_parquet({text_sql(str(part.path))})"
        at = engine.arrays(f"SELECT {name_sql(part.time)} AS t FROM {source}")["t"]
        known = ~np.isnan(at)
        if part.drives:
            of_row = engine.arrays(f"SELECT {name_sql(time.drive)} AS d FROM {source}")["d"].astype(np.int64) - 1
            fixed = at
        else:
            clean = _cleaned(at[known], report.plan, report)
            of_row, fixed = np.zeros(at.size, np.int64), at.copy()
            of_row[known], fixed[known] = clean.drive, clean.time
            repeats = int((~clean.is_new).sum())
            if repeats:
                rows = "1 row has" if repeats == 1 else f"{repeats:,} rows have"
                report.warnings.append(f"{rows} the time of the row before")
        if newest is not None and at.size and not 0 < at[known][0] - newest <= time.gap:
            drive += 1
        of_row = of_row + drive
        drive, newest = int(of_row.max(initial=drive)), float(at[known][-1]) if known.any() else newest
        engine.db.register(f"fixed{number}", {"t": fixed, "d": of_row + 1.0})
        kept = f"part.* EXCLUDE ({name_sql(part.time)}{', ' + name_sql(time.drive) if part.drives else ''})"
        numbered = f", fixed.d AS {name_sql(time.drive)}" if time.drive else ""
        selects.append(
            f"SELECT fixed.t AS {name_sql(time.column)}{numbered}, {kept} FROM {source} AS part "
            f"POSITIONAL JOIN fixed{number} AS fixed WHERE NOT isnan(fixed.t)"
        )
    if drive == 0 and time.drive:
        selects = [f"SELECT * EXCLUDE ({name_sql(time.drive)}) FROM ({select})" for select in selects]
    engine.copy(" UNION ALL ".join(selects), table, report.metadata())
    return table


def _is_steady(engine: ImportDatabase, part: RowFile, time: Time) -> bool:
    """Whether time goes on from row to row, without a step that begins a new drive."""
    quoted = name_sql(part.time)
    least, most, missing = engine.rows(
        "SELECT min(s), max(s), count(*) FILTER (t IS NULL) FROM "
        f"(SELECT {quoted} AS t, {quoted} - lag({quoted}) OVER () AS s "
        f"FROM read_parquet({text_sql(str(part.path))}))"
    )[0]
    return not missing and (least is None or (least > 0 and most <= time.gap))


def _in_order(engine: ImportDatabase, parts: Sequence[RowFile]) -> list[RowFile]:
    """Return parts by their first times where these are dates; else as they were given."""
    first = []
    for part in parts:
        quoted = name_sql(part.time)
        first.append(engine.rows(f"SELECT min({quoted}) FROM read_parquet({text_sql(str(part.path))})")[0][0] or 0.0)
    if min(first) < _SINCE_1970:
        return list(parts)
    return [part for _, _, part in sorted(zip(first, range(len(parts)), parts, strict=True))]
