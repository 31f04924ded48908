"""Recordings of buses and measuring systems on their way into the table: their signals, the plan, and rows in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.imports import judge
from edge_agent.imports.clocks import Ambiguity, age, gap_of
from edge_agent.imports.engine import ImportDatabase
from edge_agent.imports.marks import personal
from edge_agent.imports.plan import ColumnPlan, Plan, Time
from edge_agent.imports.report import Holds, Report, fit
from edge_agent.imports.rows import RowFile, aligned, tell_cuts
from edge_agent.recordings import RECORDINGS, Signal, units
from edge_agent.recordings.vss import Catalogue
from glassfleet.data.alignment import Series
from glassfleet.data.cells import truth_of
from glassfleet.data.clock import cleaned_together, is_missing
from glassfleet.data.timeplan import Input
from schemas.errors import DataError
from schemas.limits import MAX_CATEGORIES, MAX_FEATURES

_LOOK = 5_000
"""Samples by which it is judged how long a signal is held."""


@dataclass(frozen=True)
class Recorded:
    """A recording's signals by their names."""

    source: str
    signals: dict[str, Signal]
    left_out: Counter[str]


def is_recording(source: Path) -> bool:
    """Whether a file is a recording, by its name."""
    return source.suffix.lower() in RECORDINGS


def read(source: Path, databases: Sequence[Path]) -> Recorded:
    """Read a recording; raises DataError, and UsageError where a database is needed."""
    left_out: Counter[str] = Counter()
    signals = RECORDINGS[source.suffix.lower()](source, databases, left_out)
    return Recorded(str(source), {signal.name: signal for signal in signals}, left_out)


def propose(recorded: Recorded, target: str) -> judge.Proposal:
    """Return a plan for recordings like this one; raises DataError where it has no such target."""
    columns: dict[str, ColumnPlan] = {}
    why: dict[str, str] = {}
    for name, signal in recorded.signals.items():
        take, why[name] = _use(signal, is_target=target == name)
        true, false = _truth(signal) if take == "truth" else ((), ())
        columns[name] = ColumnPlan(take=take, unit=signal.unit, true=true, false=false)
    label = _target(recorded, columns, target)
    columns = {**{name: column for name, column in columns.items() if name != label}, label: columns[label]}
    times = {name: recorded.signals[name].time for name, column in columns.items() if column.take != "nothing"}
    gap = gap_of(times[label][:_LOOK].tolist())
    inputs = {name: Input(signal=name, seconds=age(at[:_LOOK].tolist(), gap)) for name, at in times.items()}
    plan = Plan(target=label, time=Time(rows=label, gap=gap, inputs=inputs), columns=columns)
    proposal = judge.Proposal(plan, why)
    if len(inputs) > MAX_FEATURES + 1:
        what = f"{len(inputs):,} signals; at most {MAX_FEATURES} inputs are allowed"
        mend = 'write take = "nothing" in the lines of [columns] that are not needed, and delete those of [time.inputs]'
        proposal.decisions.append(Ambiguity("", what, mend))
    return proposal


def _use(signal: Signal, *, is_target: bool) -> tuple[Any, str]:
    if is_missing(signal.value).all():
        return "nothing", "left out: no value in this recording"
    if signal.value.dtype != object:
        return "number", "numbers"
    words = list(dict.fromkeys(word for word in signal.value.tolist() if word is not None))
    if is_target:
        return "text", f"classes, {len(words)} different"
    who = personal(signal.name, words[:200])
    if who:
        return "nothing", f'left out: texts about persons or vehicles ({who}); take = "text" takes them'
    if len(words) > MAX_CATEGORIES:
        return "nothing", f"left out: {len(words)} different texts, like names or ids"
    if _truth(signal) != ((), ()):
        true, false = _truth(signal)
        return "truth", f"{true[0]} is 1, {false[0]} is 0"
    return "text", f"words, {len(words)} different"


def _truth(signal: Signal) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a signal's words for true and false, in lower case; empty where it has others, or one alone."""
    given = dict.fromkeys(word for word in signal.value.tolist() if word is not None)
    truth = truth_of(given)
    if truth is None or len({word.strip().lower() for word in given}) < 2:
        return (), ()
    true = next(word for word, value in truth.items() if value)
    return (true.strip().lower(),), (next(word for word, value in truth.items() if not value).strip().lower(),)


def _target(recorded: Recorded, columns: dict[str, ColumnPlan], target: str) -> str:
    usable = [name for name, column in columns.items() if column.take != "nothing"]
    found = [name for name in usable if name == target] if target else usable
    if not found:
        listed = ", ".join(usable[:20]) + (" ..." if len(usable) > 20 else "")
        what = f"there is no signal {target!r} with values" if target else "no signal has a value"
        mend = f"The signals are: {listed}. Name the target with --target" if listed else ""
        raise DataError(what, mend, recorded.source)
    return found[-1]


def part_of(
    engine: ImportDatabase, recorded: Recorded, report: Report, place: Path, catalogue: Catalogue | None
) -> RowFile:
    """Make a part of the signals that the plan takes, as it takes them; what is missing is counted.

    Raises
    ------
    DataError
        A signal is not what the plan says.
    """
    plan = report.plan
    taken: dict[str, Signal] = {}
    first = not report.columns
    for name, column in plan.columns.items():
        signal = recorded.signals.get(column.source or name)
        if column.take == "nothing":
            continue
        if signal is None:
            own = column.source or name
            if name == plan.target:
                raise DataError(f"the target {name!r} (signal {own!r}) is not in it", where=recorded.source)
            report.warnings.append(f"{recorded.source}: no signal {own!r}; {name} has no value in its rows")
            continue
        if first:
            report.columns.append(Holds(name, [_shown(value) for value in signal.value[:3].tolist()]))
        try:
            taken[name] = _as_planned(signal, name, column, report, catalogue)
        except DataError as fault:
            raise DataError(fault.what, fault.mend, recorded.source) from fault
    if plan.time is None:
        raise DataError("the plan does not say where rows stand", "Write rows = under [time]", recorded.source)
    try:
        cleaned = cleaned_together([signal.time for signal in taken.values()], plan.time.gap)
    except ValueError as fault:
        raise DataError(f"a time cannot be meant as written ({fault})", "It is damaged", recorded.source) from fault
    report.left_out.update(recorded.left_out)
    if cleaned:
        tell_cuts(report, [str(cut) for cut in cleaned[0].cuts], sum(each.late for each in cleaned))
    signals = {
        name: Series(clean.time, signal.value, clean.drive)
        for (name, signal), clean in zip(taken.items(), cleaned, strict=True)
    }
    return aligned(engine, report, signals, place, recorded.source)


def _as_planned(signal: Signal, name: str, column: ColumnPlan, report: Report, catalogue: Catalogue | None) -> Signal:
    value, missing = signal.value, Counter(signal.missing)
    is_text = value.dtype == object
    if is_text != (column.take in {"text", "truth"}) and not (column.vss or is_missing(value).all()):
        holds = "words" if is_text else "numbers"
        mend = "Give the database that the plan was made with, or correct the plan"
        raise DataError(f"signal {signal.name!r} holds {holds} here, and the plan says take = {column.take!r}", mend)
    nothing: Any = None if is_text else np.nan
    for mark in column.missing:
        gone = _equal(value, mark, is_text=is_text)
        if gone.any():
            missing[mark] += int(gone.sum())
            value = np.where(gone, nothing, value)
    report.count_missing({name: missing})
    unit = column.unit or signal.unit
    factor, offset = (1.0, 0.0) if is_text else units.planned(signal.unit, unit, signal.name)
    if (factor, offset) != units.SAME:
        report.notes.append(f"{name} converted from {signal.unit} to {unit}")
        low, high = (None if end is None else end * factor + offset for end in (signal.low, signal.high))
        signal, value = replace(signal, low=low, high=high), value * factor + offset
    signal = replace(signal, value=value, unit=unit)
    if column.vss:
        signal = fit(signal, column, name, catalogue)
    if signal.value.dtype == object and column.take == "truth":
        signal = replace(signal, value=_as_truth(signal, column))
    report.units[name] = signal.unit
    return signal


def _shown(value: float | str | None) -> str:
    return f"{value:.10g}" if isinstance(value, float) else value or ""


def _equal(value: Any, mark: str, *, is_text: bool) -> Any:
    if is_text:
        plain = mark.lower()
        return np.array([each is not None and each.strip().lower() == plain for each in value.tolist()], bool)
    try:
        return value == float(mark)
    except ValueError:
        return np.zeros(len(value), bool)


def _as_truth(signal: Signal, column: ColumnPlan) -> Any:
    known = {**dict.fromkeys(column.true, 1.0), **dict.fromkeys(column.false, 0.0)}
    words = [None if word is None else word.strip().lower() for word in signal.value.tolist()]
    strange = next((word for word in words if word is not None and word not in known), None)
    if strange is not None:
        raise DataError(f"signal {signal.name!r} holds {strange!r}, neither of the plan's words for true and false")
    return np.array([np.nan if word is None else known[word] for word in words])
