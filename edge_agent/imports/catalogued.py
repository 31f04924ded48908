"""Columns as a VSS catalogue has them: its unit, its limits, its words; and the units that the table tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.engine import ImportDatabase, name_sql, text_sql
from edge_agent.imports.judge import Proposal
from edge_agent.imports.plan import ColumnPlan
from edge_agent.imports.report import Report
from edge_agent.recordings.signals import Signal
from edge_agent.recordings.vss import Catalogue, fitted
from schemas.errors import DataError


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
    columns = report.plan.columns
    named = [name for name, column in columns.items() if column.vss and column.take != "nothing"]
    for name, column in columns.items():
        report.units.setdefault(name, column.unit)
    if not named:
        return
    source = f"read_parquet({text_sql(str(part))})"
    arrays = {}
    for index, name in enumerate(named):
        values = engine.arrays(f"SELECT {name_sql(name)} AS v FROM {source}")["v"]  # noqa: S608 - quoted
        arrays[f"c{index}"] = fit_values(name, values, report, catalogue, where)
    engine.db.register("fitted", arrays)
    new = ", ".join(
        f"fitted.c{index}::VARCHAR AS {name_sql(name)}"
        if arrays[f"c{index}"].dtype == object
        else f"CASE WHEN isfinite(fitted.c{index}::DOUBLE) THEN fitted.c{index}::DOUBLE END AS {name_sql(name)}"
        for index, name in enumerate(named)
    )
    copy = part.with_suffix(".fitted")
    rows = f"SELECT part.* REPLACE ({new}) FROM {source} AS part POSITIONAL JOIN fitted"  # noqa: S608 - quoted
    engine.rows(f"COPY ({rows}) TO {text_sql(str(copy))} (FORMAT parquet, {report.metadata()})")
    engine.db.unregister("fitted")
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
