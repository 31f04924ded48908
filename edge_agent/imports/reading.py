"""A text on its way into the table: cells without a value and rows without a time are judged, by the plan."""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_agent.imports.dialect import Dialect
from edge_agent.imports.engine import Cells, Engine, lines_with, refuse_unfit, text_sql, time_sql, unfit
from edge_agent.imports.marks import is_mark
from edge_agent.imports.opened import Text
from edge_agent.imports.plan import Plan
from edge_agent.imports.report import Holds, Report
from edge_agent.recordings.vss import Catalogue
from schemas.errors import DataError


def without_repeats(engine: Engine, cells: Cells, dialect: Dialect, report: Report) -> None:
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

    engine: Engine
    cells: Cells
    text: Text
    dialect: Dialect
    is_proposed: bool
    report: Report
    catalogue: Catalogue | None = None

    @property
    def plan(self) -> Plan:
        """The plan, which may have got marks for no value that stand far down in the file."""
        return self.report.plan

    def check(self, names: Sequence[str], cells: Cells | None = None, extra: str = "") -> bool:
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
