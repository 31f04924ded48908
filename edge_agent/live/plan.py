"""A fleet's plan on a live vehicle: what the importer does to files is done to samples, by the same file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from edge_agent.imports import clocks, numbers
from edge_agent.imports.marks import NO_WORDS
from edge_agent.imports.plan import CLOCK, ClockPlan, ColumnPlan, Csv, Plan, read_plan
from edge_agent.live.port import LiveSample, SampleRequest, seconds_of
from edge_agent.recordings.signals import Signal
from edge_agent.recordings.units import planned
from edge_agent.recordings.vss import Catalogue, Leaf, fitted
from glassfleet.data.timeplan import QOE, TimePlan, ready_plan
from schemas.errors import DataError, UsageError


@dataclass(frozen=True)
class LivePlan:
    """How samples become rows.

    Attributes
    ----------
    time : TimePlan or None
        How signals become rows; None: each sample is a row.
    columns : dict of str to ColumnPlan
        What the values of each signal are, by the plan's own names; empty: they are taken as they come.
    csv : Csv
        What texts mean, where a column does not say it.
    clock : str
        The field with a sample's time; empty: samples do not tell it so.
    of_day : str
        The field with the time of day, where `clock` has the date alone.
    form : str
        How it is written: ``number`` (ISO 8601 too), or one of `edge_agent.imports.plan.ORDERS`.
    scale : float
        How many seconds 1 is there.
    clock_cells : ColumnPlan
        How its numbers are written as texts.
    leaves : dict of str to Leaf
        What a catalogue says of columns: they get its units, words and limits.
    column : str
        Where each sample is a row: what its time is called there; empty: it is not told.
    target : str
        The column that stands last.
    plan : Plan or None
        The file's; None: there is none.
    """

    time: TimePlan | None = None
    columns: Mapping[str, ColumnPlan] = field(default_factory=dict)
    csv: Csv = field(default_factory=Csv)
    clock: str = ""
    of_day: str = ""
    form: str = "number"
    scale: float = 1.0
    clock_cells: ColumnPlan = field(default_factory=ColumnPlan)
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    column: str = ""
    target: str = ""
    plan: Plan | None = None

    @classmethod
    def read(cls, name: str, catalogues: Sequence[Path] = ()) -> LivePlan:
        """Read a plan's file, or take ``qoe``, the case study's.

        Parameters
        ----------
        name : str
        catalogues : sequence of Path
            Of VSS, which a plan with paths needs; what a later one says counts.

        Raises
        ------
        DataError
            The file cannot be read, or is no plan.
        UsageError
            It makes no rows of samples, or somebody has to decide a line of it.
        """
        if name == QOE:
            known = ready_plan(name)
            return cls(known, clock=known.column)
        plan = read_plan(Path(name))
        if plan.undecided:
            raise UsageError(f"--plan {name}: decide these lines first: {', '.join(plan.undecided)}")
        time = None if plan.time is None else plan.time.aligned
        stated = plan.clock or ClockPlan(source="time")
        if stated.form == CLOCK:
            what = f"--plan {name}: its clock tells no date (form = {stated.form!r}), and samples need one"
            raise UsageError(f"{what}: name a field with date and time, or with seconds, under [clock]")
        columns = {each: column for each, column in plan.columns.items() if column.take != "nothing"}
        absent = [] if time is None or not columns else [each for each in time.signals if each not in columns]
        if absent:
            raise UsageError(f"--plan {name}: [time] names the signal {absent[0]!r}, which [columns] does not take")
        paths = {each: column.vss for each, column in columns.items() if column.vss}
        if paths and not catalogues:
            raise UsageError(f"--plan {name}: it has paths of a catalogue: name that with --vss")
        catalogue = Catalogue(catalogues) if paths else None
        leaves = {} if catalogue is None else {each: catalogue.leaf(path) for each, path in paths.items()}
        if time is None and not columns:
            raise UsageError(f"--plan {name}: it names neither columns nor, under [time], where rows stand")
        column = "" if plan.time is None or plan.clock is None else plan.time.column
        return cls(
            time,
            columns,
            plan.csv,
            clock=stated.source if plan.clock is not None else "" if time is None else time.column,
            of_day=stated.of_day,
            form=stated.form,
            scale=stated.scale,
            clock_cells=ColumnPlan(cut=stated.cut, decimal=stated.decimal),
            leaves=leaves,
            column=column,
            target=plan.target,
            plan=plan,
        )

    @property
    def signals(self) -> tuple[str, ...]:
        """What a source is asked for, by the source's names."""
        names = self.columns if self.time is None else self.time.signals
        return tuple(self.columns[name].source or name if name in self.columns else name for name in names)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the rows, in their order, the target last."""
        if self.time is None:
            names = [*filter(None, (self.column,)), *self.columns]
        else:
            names = [*filter(None, (self.time.drive, self.time.column)), *self.time.inputs]
        return tuple(sorted(names, key=lambda name: name == self.target))

    def units_of(self, signals: Mapping[str, str]) -> dict[str, str]:
        """Return the units of the columns of the rows; `signals` are those of the source's signals."""
        known = {name: column.unit or signals.get(column.source or name, "") for name, column in self.columns.items()}
        known = {**(known or signals), **{name: leaf.unit for name, leaf in self.leaves.items() if leaf.unit}}
        return known if self.time is None else self.time.units_of(known)

    @cached_property
    def _sources(self) -> dict[str, str]:
        """The source's name of each column."""
        return {name: column.source or name for name, column in self.columns.items()}

    def request(self, source: str, **more: Any) -> SampleRequest:
        """Return the request for the samples of a source; `more` are its other fields."""
        return SampleRequest(
            source, signals=self.signals, time=self.clock, plan=self.plan, seconds=self.seconds, **more
        )

    def taken(self, sample: LiveSample, units: Mapping[str, str] = MappingProxyType({})) -> LiveSample:
        """Return a sample with its time in seconds, and its values by the plan's names, in its units.

        Parameters
        ----------
        sample : LiveSample
        units : mapping of str to str
            That the source tells of its signals.

        Raises
        ------
        ValueError
            A value is not what the plan says, or the time is none. The sample is not to be taken.
        """
        time, values = sample.time, sample.values
        if time is None and self.clock:
            if self.clock not in values:
                raise ValueError(f"the sample does not tell its time, {self.clock!r}")
            time = self.seconds(values)
        long = None if self.plan is None else self.plan.long
        if long is not None and sample.is_whole:
            if not {long.signal, long.value} <= values.keys():
                raise ValueError(f"the sample has no {long.signal!r} and {long.value!r}, as the plan says under [long]")
            sample, values = replace(sample, is_whole=False), {str(values[long.signal]): values[long.value]}
        if self.time is not None and sample.is_whole:
            # As in a table: an empty cell says nothing of its signal; a mark, or one value alone, that there is none.
            values = {name: value for name, value in values.items() if not _is_blank(value)}
        if self.columns:
            drive = (
                {} if self.time is None or self.time.drive not in values else {self.time.drive: values[self.time.drive]}
            )
            values = drive | {
                name: self._fitted(name, self._cell(name, values[source], units.get(source, "")))
                for name, source in self._sources.items()
                if source in values
            }
            if self.time is None and self.column:
                values = {self.column: time, **values}
        return replace(sample, time=time, values=values)

    def seconds(self, values: Mapping[str, Any]) -> float:
        """Return the time of fields by the plan's clock; raises ValueError."""
        at = values[self.clock]
        if self.form != "number":
            try:
                of_day = clocks.seconds(str(values[self.of_day]), CLOCK) if self.of_day else 0.0
                return clocks.seconds(str(at), self.form) + of_day
            except (KeyError, ValueError) as fault:
                words = f"{str(at)[:40]!r} is no time as the plan says (form = {self.form!r}, under [clock])"
                raise ValueError(words) from fault
        number = _number(at.strip(), self.clock_cells, self.csv) if isinstance(at, str) else at
        if self.scale != 1 and isinstance(number, int | float):
            return number * self.scale
        return seconds_of(at if number is None else number)

    def _fitted(self, name: str, cell: Any) -> Any:
        """Return a cell as the catalogue has it."""
        if cell is None or name not in self.leaves:
            return cell
        value = np.array([cell], dtype=object if isinstance(cell, str) else np.float64)
        unit = self.columns[name].unit
        try:
            (fit,) = fitted(Signal(name, unit, np.zeros(1), value), self.leaves[name], unit, name).value.tolist()
        except DataError as fault:
            raise ValueError(str(fault)) from fault
        return None if _is_blank(fit) else float(fit) if isinstance(fit, bool | int) else fit

    def _cell(self, name: str, value: Any, unit: str) -> Any:
        cell, column = self._value(name, value), self.columns[name]
        if column.take != "number" or not isinstance(cell, float):
            return cell
        try:
            factor, offset = planned(unit, column.unit, name)
        except DataError as fault:
            raise ValueError(str(fault)) from fault
        return cell * factor + offset

    def _value(self, name: str, value: Any) -> Any:
        column = self.columns[name]
        if _is_blank(value):
            return None
        if isinstance(value, list | dict):
            raise ValueError(f"{name!r} is neither a number nor a text")  # noqa: TRY004 - a fault of the sample
        if column.take == "text":
            value = str(value)
        if isinstance(value, bool | int | float):
            return float(value)
        text = value.strip(" \t\u00a0\u202f")
        marks = {mark for mark in self.csv.missing if column.take != "text" or mark not in NO_WORDS}
        if not text or text.lower() in marks | {mark.lower() for mark in column.missing} | {"nan"}:
            return None
        match column.take:
            case "text":
                return text
            case "truth" if text.lower() in (*column.true, *column.false):
                return float(text.lower() in column.true)
            case "hex" if re.fullmatch("(0[xX])?[0-9a-fA-F]{1,16}", text):
                return float(int(text, 16))
            case "number" if (number := _number(text, column, self.csv)) is not None:
                return number
        raise ValueError(f"{name!r} is {text[:40]!r}, no {column.take} as the plan says")


def _is_blank(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def _number(text: str, column: ColumnPlan, csv: Csv) -> float | None:
    decimal = column.decimal or csv.decimal
    thousands = csv.thousands if column.thousands is None else column.thousands
    if column.cut:
        text = text.removesuffix(column.cut) if text.endswith(column.cut) else text.removeprefix(column.cut)
        text = text.strip(" \u00a0\u202f")
    try:
        number = numbers.NumberMarks(decimal, "" if thousands == decimal else thousands).value(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
