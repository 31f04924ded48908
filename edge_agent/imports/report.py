"""What an import did: rows and cells that were left out or have no value, by reason, and what the table holds."""

# ruff: noqa: S608 - names and texts stand in SQL as name_sql and text_sql write them
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.engine import ImportDatabase, name_sql, text_sql
from edge_agent.imports.judge import Proposal
from edge_agent.imports.marks import FAR, is_sentinel
from edge_agent.imports.plan import PLAN_KEY, UNITS_KEY, ColumnPlan, Plan
from edge_agent.recordings.signals import Signal
from edge_agent.recordings.vss import Catalogue, fitted
from schemas.errors import DataError
from schemas.text import counted, printable

SOME: Final = 2048
"""First rows of a table, which mostly tell that no value is far from all others."""


@dataclass
class Holds:
    """What a column of the table holds.

    Attributes
    ----------
    name : str
    before, after : list
        Its first cells as they stand in the file, and as they are in the table.
    missing : int
        Cells without a value.
    low, high : float or None
        Of numbers.
    texts : int
        How many different ones there are; 0 of numbers.
    """

    name: str
    before: list[str] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    missing: int = 0
    low: float | None = None
    high: float | None = None
    texts: int = 0


@dataclass
class Report:
    """What was done.

    Attributes
    ----------
    plan : Plan
    why : dict of str to str
        What becomes of each column, in words.
    rows : int
        In the table.
    left_out : Counter of str
        Lines and rows that are not in it, by reason.
    missing : dict of str to Counter of str
        Cells without a value: column -> mark (empty: there is nothing) -> how many.
    columns : list of Holds
    notes, warnings : list of str
        What was done, and what to look at.
    units : dict of str to str
        Of the table's columns.
    """

    plan: Plan = field(default_factory=Plan)
    why: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    columns: list[Holds] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)

    def metadata(self) -> str:
        """Return what a Parquet file tells of itself, as DuckDB's COPY takes it."""
        units = json.dumps({name: unit for name, unit in self.units.items() if unit})
        return f"KV_METADATA {{{PLAN_KEY}: {text_sql(self.plan.to_toml())}, {UNITS_KEY}: {text_sql(units)}}}"

    def count_missing(self, counts: dict[str, Counter[str]]) -> None:
        """Add cells without a value."""
        for name, marks in counts.items():
            self.missing.setdefault(name, Counter()).update(marks)

    def marks(self) -> dict[str, str]:
        """Return in words the cells without a value of each column that has some."""
        each = {
            name: ", ".join(f"{n:,} {printable(repr(mark)) if mark else 'empty'}" for mark, n in marks.items() if n)
            for name, marks in self.missing.items()
        }
        return {name: words for name, words in each.items() if words}

    def line(self) -> str:
        """Return in one line what was done."""
        layout = self.plan.csv
        lines = [*dict.fromkeys(self.notes)]
        if layout.separator != ",":
            lines.append(f"columns separated by {layout.separator!r}")
        if layout.decimal != ".":
            lines.append(f"decimal {layout.decimal!r}")
        if layout.thousands:
            lines.append(f"{layout.thousands!r} between thousands")
        lines += [f"{name} {why}" for name, why in self.why.items() if why.startswith("left out")]
        lines += [f"{counted(count, reason)} left out" for reason, count in self.left_out.items() if count]
        empty = sum(sum(marks.values()) for marks in self.missing.values())
        if empty:
            lines.append(counted(empty, "cells without a value"))
        return counted(self.rows, "rows") + (f": {'; '.join(lines)}" if lines else "")

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "rows": self.rows,
            "plan": self.plan.model_dump(by_alias=True, exclude_defaults=True),
            "digest": self.plan.digest,
            "why": self.why,
            "left_out": dict(self.left_out),
            "missing": {name: dict(marks) for name, marks in self.missing.items() if marks},
            "columns": [asdict(column) for column in self.columns],
            "notes": self.notes,
            "warnings": self.warnings,
        }


def look(engine: ImportDatabase, table: Path, report: Report) -> None:
    """Add to a report what a table of Parquet holds, and what looks odd in it."""
    source = f"read_parquet({text_sql(str(table))})"
    kinds = {str(row[0]): str(row[1]) for row in engine.rows(f"DESCRIBE SELECT * FROM {source}")}
    parts = ["count(*)"]
    for name, kind in kinds.items():
        quoted = name_sql(name)
        parts.append(f"count(*) - count({quoted})")
        parts += (
            [f"min({quoted})", f"max({quoted})"] if kind != "VARCHAR" else [f"approx_count_distinct({quoted})", "NULL"]
        )
    found = engine.rows(f"SELECT {', '.join(parts)} FROM {source}")[0]
    report.rows = int(found[0])
    first = engine.rows(f"SELECT * FROM {source} LIMIT 3")
    known = {each.name: each for each in report.columns}
    report.columns = []
    times_of = report.plan.times
    for index, (name, kind) in enumerate(kinds.items()):
        missing, low, high = found[1 + 3 * index : 4 + 3 * index]
        holds = known.get(name, Holds(name))
        holds.missing, holds.after = int(missing), [row[index] for row in first]
        if kind == "VARCHAR":
            holds.texts = int(low or 0)
        elif low is not None:
            holds.low, holds.high = float(low), float(high)
            if name not in times_of and low == high and report.rows > 2:
                report.warnings.append(f"{name}: all values are {holds.low:g}")
        if holds.missing and name == report.plan.target:
            cells = counted(holds.missing, "cells")
            report.warnings.append(
                f"{name}: {cells} of the target without a value: remove such rows, no agent takes them"
            )
        report.columns.append(holds)
    _sentinels(engine, source, [each for each in report.columns if each.name not in times_of], report)


def _sentinels(engine: ImportDatabase, source: str, columns: Sequence[Holds], report: Report) -> None:
    """Warn of values far outside all the others that are there more than once: they may mean that there is none."""
    some = engine.arrays(f"SELECT * FROM {source} LIMIT {SOME}")
    for each in columns:
        if each.low is None or each.high is None or _is_spread(some[each.name], each.low, each.high):
            continue
        name, low, high = name_sql(each.name), each.low, each.high
        near, below, lows, highs = engine.rows(
            f"SELECT min({name}) FILTER ({name} > {low!r}), max({name}) FILTER ({name} < {high!r}), "
            f"count(*) FILTER ({name} = {low!r}), count(*) FILTER ({name} = {high!r}) FROM {source}"
        )[0]
        for value, next_value, other, count in ((high, below, low, highs), (low, near, high, lows)):
            if is_sentinel(value, next_value, other, count, report.rows):
                report.warnings.append(
                    f"{each.name}: {value:g} is in {counted(count, 'rows')}, far from all other values "
                    f'(up to {next_value:g}): it may mean "no value". Then say so in the plan: missing = ["{value:g}"] '
                    f"in the line of columns.{each.name}"
                )


def _is_spread(some: NDArray[np.float64], low: float, high: float) -> bool:
    """Whether some values lie so far from both ends that neither is far from all others (`is_sentinel`)."""
    third = (high - low) / (1.0 + FAR)
    return bool(((some - low > third) & (high - some > third)).any())


# --- columns as a VSS catalogue has them: its unit, its limits, its words; and the units that the table tells ---------


def fit(signal: Signal, column: ColumnPlan, name: str, catalogue: Catalogue | None) -> Signal:
    """Return a signal as the catalogue has it; raises DataError where there is no catalogue, or it cannot be that."""
    if not column.vss:
        return signal
    if catalogue is None:
        raise DataError(f"the plan names {column.vss} of a catalogue", "Give the catalogue: --vss FILE")
    return fitted(signal, catalogue.leaf(column.vss), column.unit, name)


def fit_values(
    name: str, values: NDArray[Any], report: Report, catalogue: Catalogue | None, where: str
) -> NDArray[Any]:
    """Return a text's column as the catalogue has it, and note its unit."""
    column = report.plan.columns[name]
    try:
        signal = fit(Signal(column.source or name, column.unit, np.empty(0), values), column, name, catalogue)
    except DataError as fault:
        raise DataError(fault.what, fault.mend, where) from fault
    report.units[name] = signal.unit
    return signal.value


def fit_part(engine: ImportDatabase, part: Path, report: Report, catalogue: Catalogue | None, where: str) -> None:
    """Rewrite the columns of a part that a catalogue knows."""
    named = [name for name, column in report.plan.taken.items() if column.vss]
    for name, column in report.plan.columns.items():
        report.units.setdefault(name, column.unit)
    if not named:
        return
    source, fitted_columns = f"read_parquet({text_sql(str(part))})", {}
    for name in named:
        values = engine.arrays(f"SELECT {name_sql(name)} AS v FROM {source}")["v"]
        fitted_columns[name] = fit_values(name, values, report, catalogue, where)
    copy = part.with_suffix(".fitted")
    engine.write(
        fitted_columns,
        copy,
        report.metadata(),
        lambda listed: f"SELECT part.* REPLACE ({listed}) FROM {source} AS part POSITIONAL JOIN arrays",
    )
    copy.replace(part)


def with_paths(proposal: Proposal, catalogue: Catalogue) -> None:
    """Give columns that a catalogue knows the names that it has for them; short ones are a person's choice."""
    plan = proposal.plan
    known = {name: (column.source or name, name) for name, column in plan.columns.items()}
    paths = {name: catalogue.find(first) or catalogue.find(second) for name, (first, second) in known.items()}
    new = {name: path or name for name, path in paths.items()}
    if len(set(new.values())) < len(new):
        twice = next(path for path in new.values() if list(new.values()).count(path) > 1)
        raise DataError(f"more than one column is {twice}", "Correct the overlay of the catalogue")

    def named(name: str, column: ColumnPlan) -> ColumnPlan:
        source = column.source or (name if new[name] != name else "")
        return column.model_copy(update={"vss": paths[name] or "", "source": source})

    columns = {new[name]: named(name, column) for name, column in plan.columns.items()}
    time = plan.time
    if time is not None:
        inputs = {new[name]: part.model_copy(update={"signal": new[part.signal]}) for name, part in time.inputs.items()}
        time = time.model_copy(update={"rows": new.get(time.rows, ""), "inputs": inputs})
    proposal.plan = plan.model_copy(update={"columns": columns, "time": time, "target": new.get(plan.target, "")})
    proposal.why = {new.get(name, name): why for name, why in proposal.why.items()}
