"""Does what a plan says, with DuckDB, in the import process alone: cells become values, what does not fit is told.

Nothing is guessed here: a cell that is no value by the plan, and no mark for none either, refuses the file.
"""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.clocks import seconds_sql
from edge_agent.imports.dialect import Dialect, wrong_widths
from edge_agent.imports.marks import is_mark
from edge_agent.imports.opened import CUT, LONGEST_LINE, Text, lines_between
from edge_agent.imports.plan import CLOCK, ColumnPlan, Plan
from edge_agent.recordings.units import SAME
from schemas.errors import FREE, DataError, StorageError
from schemas.text import counted

FEW: Final = 30
MEMORY, LESS, EACH = 260, 140, 0.3
"""Megabytes that the engine may use at once, for `FEW` columns and for more, and the least for each of very many. It
writes few in two threads, if it may use so much, and takes less; of many it takes what it may. The process stays below
300 MB up to 450 columns."""

BUFFER: Final = 2 * LONGEST_LINE
"""Bytes that each thread reads at once: the least that the longest line allows."""

VECTOR: Final = 2048
"""Rows that the engine works on at once."""

GROUP: Final = 1 << 19
"""Cells that are written at once."""

REJECTS: Final = 10_000
"""Lines that are looked at one by one because they do not fit; more are no accident."""

SHOWN: Final = 3

POLL: Final = 0.25
"""Seconds between two looks at how far a query is."""

Progress = Callable[[float], None]
"""Is told a percentage now and then."""


class ImportDatabase:
    """A database in memory, with a folder for what does not fit into it."""

    def __init__(self, scratch: Path, progress: Progress | None = None, columns: int = 0) -> None:
        try:
            import duckdb  # noqa: PLC0415 - large, and an extra
        except ImportError as fault:
            mend = "Install it with: pip install 'glassfleet[import]'"
            raise DataError("this file has to be converted, which needs duckdb", mend) from fault
        self._errors = duckdb.Error
        self._progress = progress
        self.db: Any = duckdb.connect(
            config={
                "memory_limit": f"{MEMORY if columns <= FEW else max(LESS, round(EACH * columns))}MB",
                "threads": 2,
                "temp_directory": str(scratch / "spilled"),
            }
        )
        self.db.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")

    def forget_rejects(self) -> None:
        """Let the lines that do not fit be those of the next query alone."""
        self.db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")

    def rows(self, sql: str, where: str = "") -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return list(self._run(lambda: self.db.execute(sql).fetchall(), where))

    def arrays(self, sql: str, where: str = "") -> dict[str, NDArray[Any]]:
        """Return the columns of a query: float64 with NaN, or object with None."""
        found = self._run(lambda: self.db.execute(sql).fetchnumpy(), where)
        return {name: _filled(column) for name, column in found.items()}

    def copy(self, select: str, path: Path, metadata: str, *, columns: int = 0, where: str = "") -> None:
        """Write the rows of a query as Parquet; of so many `columns`, in groups that fit into the engine's memory."""
        size = f"ROW_GROUP_SIZE {max(VECTOR, GROUP // columns // VECTOR * VECTOR)}, " if columns else ""
        self.rows(f"COPY ({select}) TO {text_sql(str(path))} (FORMAT parquet, {size}{metadata})", where)

    def write(
        self,
        columns: Mapping[str, NDArray[Any]],
        path: Path,
        metadata: str,
        select: Callable[[str], str] = "SELECT {} FROM arrays".format,
    ) -> None:
        """Write arrays as Parquet: float64, where NaN is no value, or object of str and None.

        `select` puts the columns, of a table ``arrays``, into a query.
        """
        self.db.register("arrays", {f"c{index}": column for index, column in enumerate(columns.values())})
        listed = ", ".join(
            f"arrays.c{index}::VARCHAR AS {name_sql(name)}"
            if column.dtype == object
            else f"CASE WHEN isfinite(arrays.c{index}::DOUBLE) THEN arrays.c{index}::DOUBLE END AS {name_sql(name)}"
            for index, (name, column) in enumerate(columns.items())
        )
        self.copy(select(listed), path, metadata)
        self.db.unregister("arrays")

    def _run(self, work: Callable[[], Any], where: str) -> Any:
        """Do work in a thread, so that progress is told and Ctrl-C ends it."""
        result: list[Any] = []
        fault: list[BaseException] = []

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that waits
                fault.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL)
                if self._progress is not None and thread.is_alive():
                    self._progress(max(0.0, self.db.query_progress()))
        except BaseException:
            while thread.is_alive():  # a process that ends while the engine works in a thread is aborted
                self.db.interrupt()
                thread.join(POLL)
            raise
        if fault:
            raise self._explained(fault[0], where)
        return result[0]

    def _explained(self, fault: BaseException, where: str) -> BaseException:
        if not isinstance(fault, self._errors):
            return fault
        text = " ".join(str(fault).split())
        if "No space left" in text or ("disk" in text.lower() and "full" in text.lower()):
            return StorageError(f"No space left on device. {FREE}")
        if "Out of Memory" in text or "memory limit" in text:
            return DataError(
                "it does not fit into the memory of an import", "Leave columns out, or cut it into parts", where
            )
        return DataError(f"it cannot be read ({text[:300]})", "Copy it again, or look for a line that is no row", where)


def _filled(column: NDArray[Any]) -> NDArray[Any]:
    data = np.ma.getdata(column)
    if data.dtype == object:
        mask = np.ma.getmaskarray(column)
        return np.array([None if gone else value for gone, value in zip(mask, data, strict=True)], dtype=object)
    return np.asarray(np.ma.filled(column.astype(np.float64), np.nan))


def text_sql(value: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def name_sql(value: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + value.replace('"', '""') + '"'


def _list(values: Sequence[str]) -> str:
    return f"({', '.join(map(text_sql, values))})"


@dataclass
class CellTable:
    """A table of cells that the engine can ask for, and what became of the lines that are no rows.

    Attributes
    ----------
    sql : str
        The table.
    columns : dict of str to str
        Name in the file -> expression.
    where : str
        For messages.
    left_out : Counter of str
        Lines, by reason.
    without : str
        Condition that leaves rows out.
    scales : dict of str to (float, float)
        Name in the file -> factor and offset that make the plan's unit of the file's.
    has_low_lines : bool
        Whether a cell may have a ``_``, with which the engine would take an id for a number.
    """

    sql: str
    columns: dict[str, str]
    where: str
    left_out: Counter[str] = field(default_factory=Counter)
    without: str = ""
    scales: dict[str, tuple[float, float]] = field(default_factory=dict)
    has_low_lines: bool = True

    def value_sql(self, name: str, plan: Plan) -> str:
        """Return the expression of a column of the plan, in the plan's unit."""
        column = plan.columns[name]
        source = column.source or name
        value = value_sql(self.columns[source], column, plan, has_low_lines=self.has_low_lines)
        factor, offset = self.scales.get(source, SAME)
        return value if (factor, offset) == SAME else f"({value}) * {factor!r} + {offset!r}"


def cells_of(text: Text, dialect: Dialect, names: Sequence[str]) -> CellTable:
    """Return a text's table; `names` are those of its columns, all different."""
    width = max(dialect.width, len(names))
    layout = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width))
    sql = (
        f"read_csv({text_sql(str(text.path))}, delim={text_sql(dialect.separator)}, quote='\"', escape='\"', "
        f"header=false, skip={dialect.data - 1}, auto_detect=false, columns={{{layout}}}, store_rejects=true, "
        f"rejects_limit={REJECTS}, max_line_size={LONGEST_LINE}, buffer_size={BUFFER}, parallel=true)"
    )
    columns = {name: f"c{index}" for index, name in enumerate(names)}
    return CellTable(sql, columns, text.source, has_low_lines=text.has_low_lines)


def value_sql(cell: str, column: ColumnPlan, plan: Plan, *, has_low_lines: bool = True) -> str:
    """Return the expression of a cell's value: DOUBLE, or VARCHAR of words; NULL where it has none."""
    raw = f"trim({cell}, ' \t\u00a0\u202f')"
    gone = f"lower({raw}) IN {_list(sorted(plan.missing_of(column)))}"
    match column.take:
        case "text":
            return f"CASE WHEN {gone} OR {raw} = '' THEN NULL ELSE {raw} END"
        case "truth":
            true, false = _list(column.true or ("",)), _list(column.false or ("",))
            return (
                f"CASE WHEN lower({raw}) IN {true} THEN 1.0::DOUBLE WHEN lower({raw}) IN {false} THEN 0.0::DOUBLE END"
            )
        case "hex":
            digits = f"CASE WHEN lower({raw}[1:2]) = '0x' THEN {raw} ELSE '0x' || {raw} END"
            return f"CASE WHEN {gone} THEN NULL ELSE try_cast({digits} AS UBIGINT)::DOUBLE END"
    return _number_sql(cell, raw, gone, column, plan, has_low_lines)


def _number_sql(cell: str, raw: str, gone: str, column: ColumnPlan, plan: Plan, has_low_lines: bool) -> str:  # noqa: PLR0917
    decimal, thousands = plan.marks_of(column)
    marked = f"CASE WHEN {gone} THEN NULL ELSE " if column.missing else ""
    end = " END" if marked else ""
    if decimal == "." and not thousands and not column.cut:
        plain = f"try_cast({cell} AS DOUBLE)"
        minus = f"try_cast(replace({cell}, '\u2212', '-') AS DOUBLE)"
        no_id = f" AND NOT contains({cell}, '_')" if has_low_lines else ""
        usual = f"WHEN isfinite({plain}){no_id} THEN {plain}"
        return f"{marked}CASE {usual} WHEN {plain} IS NULL AND contains({cell}, '\u2212') THEN {minus} END{end}"
    text = f"replace({raw}, '\u2212', '-')"
    if column.cut:
        cut = text_sql(column.cut)
        text = (
            f"trim(CASE WHEN ends_with({text}, {cut}) THEN left({text}, length({text}) - {len(column.cut)}) "
            f"WHEN starts_with({text}, {cut}) THEN substr({text}, {len(column.cut) + 1}) ELSE {text} END, "
            "' \u00a0\u202f')"
        )
    point = "\\" + decimal
    between = f"|[1-9]\\d{{0,2}}(\\x{{{ord(thousands):x}}}\\d{{3}})+" if thousands else ""
    form = f"[+-]?(\\d+{between})?({point}\\d*)?([eE][+-]?\\d+)?"
    number = f"replace({text}, {text_sql(thousands)}, '')" if thousands else text
    number = f"replace({number}, ',', '.')" if decimal == "," else number
    value = f"try_cast({number} AS DOUBLE)"
    return f"{marked}CASE WHEN regexp_full_match({text}, {text_sql(form)}) AND isfinite({value}) THEN {value} END{end}"


def time_sql(cells: CellTable, plan: Plan) -> str:
    """Return the expression of a row's time in seconds."""
    clock = plan.clock
    assert clock is not None
    cell = cells.columns[clock.source]
    if clock.form == "number":
        value = value_sql(cell, clock.cells, plan)
        scale = "" if clock.scale == 1.0 else f" * {clock.scale!r}"
        return f"round(({value}){scale}, 9)" if scale else value
    of_day = f" + {seconds_sql(cells.columns[clock.of_day], CLOCK)}" if clock.of_day else ""
    return f"{seconds_sql(cell, clock.form)}{of_day}"


def judge_rejects(engine: ImportDatabase, cells: CellTable, text: Text, dialect: Dialect) -> None:
    """Count the lines that are no rows by their reason; raises DataError for those without an excuse."""
    found = engine.rows(
        f"SELECT DISTINCT line_byte_position, error_type FROM reject_errors ORDER BY 1 LIMIT {REJECTS + 1}"
    )
    if len(found) >= REJECTS:
        what = f"{REJECTS:,} lines and more do not have {len(dialect.names)} cells"
        raise DataError(what, "Name a file with a table, or correct the separator in the plan", text.source)
    wrong: list[tuple[int, int]] = []
    head = _head(text, dialect)
    with text.path.open("rb") as raw:
        size = raw.seek(0, 2)
        for position, kind in found:
            begin = max(0, (position or 1) - 1)
            raw.seek(begin)
            whole = raw.readline()
            follows = raw.readline()
            stripped = whole.decode("utf-8", "replace").strip()
            reason = _reason(stripped, follows.decode("utf-8", "replace").strip(), head, dialect)
            if not reason and begin + len(whole) >= size and not whole.endswith(b"\n"):
                reason = CUT
            if reason:
                cells.left_out[reason] += 1
            elif kind in ("UNQUOTED VALUE", "LINE SIZE OVER MAXIMUM", "INVALID ENCODING"):
                number = lines_between(raw, 0, begin) + 1
                what = f"line {number}: {str(kind).lower()}, in {stripped[:60]!r}"
                raise DataError(what, "Look for a quote that is not closed, and correct the line", text.source)
            else:
                width = len(next(csv.reader([stripped], delimiter=dialect.separator), []))
                wrong.append((lines_between(raw, 0, begin) + 1, width))
                if len(wrong) > 20:
                    break
    if wrong:
        raise wrong_widths(dialect.header, len(dialect.names), wrong, dialect.separator, text.source)


def _reason(line: str, follows: str, head: set[str], dialect: Dialect) -> str:
    """Return why a line may be left out; empty: there is no excuse."""
    if not line.strip(dialect.separator + " "):
        return "empty lines"
    if line.startswith(("#", "%", "//")):
        return "comments between rows"
    if line in head:
        return "lines above the names, again"
    return "lines cut before a restart" if follows in head else ""


def _head(text: Text, dialect: Dialect) -> set[str]:
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        return {line.strip() for line in islice(opened, dialect.data - 1) if line.strip()}


@dataclass
class Unfit:
    """A column's cells that are no values by the plan: each text, and how often it occurs."""

    column: str
    texts: dict[str, int]


def unfit(
    engine: ImportDatabase, cells: CellTable, plan: Plan, names: Sequence[str], extra: str = ""
) -> tuple[list[Unfit], dict[str, Counter[str]]]:
    """Look at the cells of columns that have no value: marks for none are counted, all the others returned."""
    found, missing = [], {}
    for name in names:
        column = plan.columns[name]
        cell = cells.columns[column.source or name]
        rows = engine.rows(
            f"SELECT trim({cell}, ' \t\u00a0\u202f') AS raw, count(*) FROM {cells.sql} "
            f"WHERE ({cells.value_sql(name, plan)}) IS NULL {extra} {cells.without} "
            "GROUP BY raw ORDER BY 2 DESC, 1 LIMIT 1000",
            cells.where,
        )
        marks = plan.missing_of(column)
        counts: Counter[str] = Counter()
        odd = {}
        for raw, count in rows:
            if not raw:
                counts[""] += count
            elif raw.lower() in marks:
                counts[raw] += count
            else:
                odd[raw] = count
        missing[name] = counts
        if odd:
            found.append(Unfit(name, odd))
    return found, missing


def lines_with(text: Text, dialect: Dialect, index: int, cell: str) -> list[int]:
    """Return the first lines whose row has this cell in a column."""
    lines = []
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        rows = csv.reader(islice(opened, dialect.data - 1, None), delimiter=dialect.separator)
        begins = dialect.data
        try:
            for cells in rows:
                if index < len(cells) and cells[index].strip(" \t\u00a0\u202f") == cell:
                    lines.append(begins)
                    if len(lines) >= SHOWN:
                        break
                begins = dialect.data + rows.line_num
        except csv.Error:
            pass
    return lines


def refuse_unfit(found: Sequence[Unfit], text: Text, dialect: Dialect, plan: Plan) -> DataError:
    """Say which cells are no values by the plan, where, and what the plan may say of them."""
    each = found[0]
    column = plan.columns[each.column]
    name = (column.source or each.column) if plan.long is None else plan.long.value
    index = list(dialect.names).index(name) if name in dialect.names else len(dialect.names)
    cell, _ = next(iter(each.texts.items()))
    places = lines_with(text, dialect, index, cell)
    lines = f"line{'s' * (len(places) > 1)} {', '.join(map(str, places))}"
    total = sum(each.texts.values())
    kind = {"number": "no number", "hex": "no hexadecimal number", "truth": "neither of its words"}.get(
        column.take, "no value"
    )
    by = ' (the plan says decimal = "{}", thousands = "{}")'.format(*plan.marks_of(column))
    what = f"column {each.column!r}: {cell[:60]!r} ({lines}) is {kind}{by if column.take == 'number' else ''}"
    if total > 1:
        what += f"; {total} such cells"
    if len(found) > 1:
        what += f"; and in {counted(len(found) - 1, 'more columns')}"
    mark = is_mark(cell)
    mend = (
        f'If it means that there is no value, say so in the plan: missing = ["{cell.lower() if mark else cell}"] '
        f"{'under [csv]' if mark else f'in the line of columns.{each.column}'}; else correct the file, or the plan"
    )
    return DataError(what, mend, text.source)
