"""Recordings of buses and measuring systems on their way into a table, and columns as a catalogue has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.imports.clocks import age, gap_of
from edge_agent.imports.engine import Engine
from edge_agent.imports.judge import Proposal
from edge_agent.imports.plan import Column, Plan, Time
from edge_agent.imports.report import Report
from edge_agent.imports.rows import Part, aligned, tell_cuts, write_arrays
from edge_agent.recordings import RECORDINGS, Options, Signal
from edge_agent.recordings.vss import Catalogue, fitted
from glassfleet.data.alignment import Series
from glassfleet.data.clock import cleaned_together
from glassfleet.data.timeplan import Input
from schemas.errors import DataError

_LISTED = 20


def is_recording(source: Path) -> bool:
    """Whether a file's name says that it is a recording."""
    return source.suffix.lower() in RECORDINGS


def signals_of(source: Path, databases: Sequence[Path], left_out: Counter[str]) -> dict[str, Signal]:
    """Return a recording's signals by name; raises DataError and UsageError as its reader does."""
    reader = RECORDINGS[source.suffix.lower()]
    signals = {signal.name: signal for signal in reader(source, Options(tuple(databases)), left_out)}
    if not signals:
        raise DataError(
            "there is no signal in it that the databases know", "Name the databases of its bus", str(source)
        )
    return signals


def propose(signals: dict[str, Signal], target: str, where: str) -> Proposal:
    """Return a plan for a recording: a row at each time of the target, the others as last known."""
    listed = ", ".join(list(signals)[:_LISTED]) + (", ..." if len(signals) > _LISTED else "")
    if not target:
        raise DataError("a recording does not say which signal is forecast", f"Name it with --target: {listed}", where)
    if target not in signals:
        raise DataError(f"there is no signal {target!r}", f"The signals are: {listed}", where)
    order = {**{name: signal for name, signal in signals.items() if name != target}, target: signals[target]}
    gap = gap_of(signals[target].time.tolist())
    columns, inputs, why = {}, {}, {}
    for name, signal in order.items():
        take = "text" if signal.value.dtype == object else "number"
        columns[name] = Column.model_validate({"take": take, "unit": signal.unit})
        inputs[name] = Input(signal=name, seconds=age(signal.time.tolist(), gap))
        why[name] = f"{take}s" if take == "number" else "words"
    time = Time(rows=target, gap=gap, inputs=inputs)
    return Proposal(Plan(target=target, time=time, columns=columns), why)


def part_of(engine: Engine, signals: dict[str, Signal], report: Report, place: Path, where: str) -> Part:
    """Make a part of a recording's signals."""
    plan = report.plan
    if plan.time is None:
        raise DataError("the plan does not say where rows stand", "Write rows = or every_ms = under [time]", where)
    taken = {name: column.source or name for name, column in plan.columns.items() if column.take != "nothing"}
    absent = [source for source in taken.values() if source not in signals]
    if absent:
        mend = "Correct the plan, or name the database that knows it"
        raise DataError(f"there is no signal {absent[0]!r}, which the plan takes", mend, where)
    chosen = [signals[source] for source in taken.values()]
    clean = cleaned_together([signal.time for signal in chosen], plan.time.gap)
    tell_cuts(report, [str(cut) for cut in clean[0].cuts], sum(each.late for each in clean))
    series = {}
    for name, signal, each in zip(taken, chosen, clean, strict=True):
        series[name] = Series(each.time, signal.value, each.drive)
        report.count_missing({name: Counter(signal.missing)})
    return aligned(engine, report, series, place, where)


def with_paths(plan: Plan, catalogue: Catalogue) -> Plan:
    """Return a proposed plan with the columns that a catalogue knows under its paths."""
    names = {}
    for name, column in plan.columns.items():
        path = catalogue.find(column.source or name)
        names[name] = path if path and column.take in ("number", "text", "truth") else ""
    if not any(names.values()):
        return plan
    columns = {
        names[name] or name: column.model_copy(update={"source": column.source or name, "vss": names[name]})
        if names[name]
        else column
        for name, column in plan.columns.items()
    }
    time = plan.time
    if time is not None and time.inputs:
        inputs = {
            names.get(name) or name: part.model_copy(update={"signal": names.get(part.signal) or part.signal})
            for name, part in time.inputs.items()
        }
        time = time.model_copy(update={"inputs": inputs, "rows": names.get(time.rows) or time.rows})
    return plan.model_copy(update={"columns": columns, "time": time, "target": names.get(plan.target) or plan.target})


def fit(engine: Engine, table: Path, plan: Plan, catalogue: Catalogue, metadata: str) -> Path:
    """Write a table anew with the units of a catalogue; raises DataError where a column cannot be its path."""
    arrays = engine.arrays(f"SELECT * FROM read_parquet('{table}')")  # noqa: S608 - a path of our own
    for name, column in plan.columns.items():
        if column.vss and name in arrays:
            signal = Signal(name, column.unit, np.zeros(0), arrays[name])
            arrays[name] = _plain(fitted(signal, catalogue.leaf(column.vss), column.unit, name).value)
    path = table.with_name("fitted.parquet")
    write_arrays(engine, arrays, path, f", {metadata}")
    return path


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype == object else values.astype(np.float64)
