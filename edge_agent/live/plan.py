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
from edge_agent.imports.dialect import split_unit
from edge_agent.imports.plan import CLOCK, ClockPlan, ColumnPlan, Plan, read_plan
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
    plan : Plan or None
        The file's; None: there is none, and values are taken as they come.
    clock : str
        The field with a sample's time; empty: samples do not tell it so.
    leaves : dict of str to Leaf
        What a catalogue says of columns: they get its units, words and limits.
    """

    time: TimePlan | None = None
    plan: Plan | None = None
    clock: str = ""
    leaves: Mapping[str, Leaf] = field(default_factory=dict)

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
        time, columns = plan.aligned, plan.taken
        if plan.clock is not None and plan.clock.form == CLOCK:
            what = f"--plan {name}: its clock tells no date (form = {CLOCK!r}), and samples need one"
            raise UsageError(f"{what}: name a field with date and time, or with seconds, under [clock]")
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
        clock = plan.clock.source if plan.clock is not None else "" if time is None else time.column
        return cls(time, plan, clock, leaves)

    @cached_property
    def _stated(self) -> Plan:
        """The file's plan, or one that states nothing."""
        return self.plan or Plan()

    @cached_property
    def _clock(self) -> tuple[ClockPlan, ColumnPlan]:
        """How a sample's time is written, and its numbers."""
        clock = self._stated.clock or ClockPlan(source=self.clock)
        return clock, clock.cells

    @cached_property
    def columns(self) -> Mapping[str, ColumnPlan]:
        """What the values of each signal are, by the plan's own names."""
        return self._stated.taken

    @cached_property
    def column(self) -> str:
        """What a sample's time is called where each sample is a row; empty: it is not told."""
        plan = self._stated
        return "" if plan.time is None or plan.clock is None else plan.time.column

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
        return tuple(sorted(names, key=lambda name: name == self._stated.target))

    def units_of(self, signals: Mapping[str, str]) -> dict[str, str]:
        """Return the units of the columns of the rows; `signals` are those of the source's signals."""
        known = {name: column.unit or signals.get(column.source or name, "") for name, column in self.columns.items()}
        known = {**(known or signals), **{name: leaf.unit for name, leaf in self.leaves.items() if leaf.unit}}
        return known if self.time is None else self.time.units_of(known)

    @cached_property
    def _sources(self) -> dict[str, tuple[str, str]]:
        """The source's name of each column, and the unit in brackets behind it."""
        return {name: (each.source or name, split_unit(each.source or name)[1]) for name, each in self.columns.items()}

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
            That the source tells of its signals; else it may stand in brackets behind their names.

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
        long = self._stated.long
        if long is not None and sample.is_whole:
            if not {long.signal, long.value} <= values.keys():
                raise ValueError(f"the sample has no {long.signal!r} and {long.value!r}, as the plan says under [long]")
            sample, values = replace(sample, is_whole=False), {str(values[long.signal]): values[long.value]}
        if self.time is not None and sample.is_whole:
            # As in a table: an empty cell says nothing of its signal; a mark, or one value alone, that there is none.
            values = {name: value for name, value in values.items() if not _is_blank(value)}
        if self.columns:
            drive = "" if self.time is None else self.time.drive
            values = ({drive: values[drive]} if drive and drive in values else {}) | {
                name: self._fitted(name, self._cell(name, values[source], units.get(source, unit)))
                for name, (source, unit) in self._sources.items()
                if source in values
            }
            if self.time is None and self.column:
                values = {self.column: time, **values}
        return replace(sample, time=time, values=values)

    def seconds(self, values: Mapping[str, Any]) -> float:
        """Return the time of fields by the plan's clock; raises ValueError."""
        at, (clock, cells) = values[self.clock], self._clock
        if clock.form != "number":
            try:
                of_day = clocks.seconds(str(values[clock.of_day]), CLOCK) if clock.of_day else 0.0
                return clocks.seconds(str(at), clock.form) + of_day
            except (KeyError, ValueError) as fault:
                words = f"{str(at)[:40]!r} is no time as the plan says (form = {clock.form!r}, under [clock])"
                raise ValueError(words) from fault
        number = _number(at.strip(), cells, self._stated) if isinstance(at, str) else at
        if clock.scale != 1 and isinstance(number, int | float):
            return number * clock.scale
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
        column, plan = self.columns[name], self._stated
        if _is_blank(value):
            return None
        if isinstance(value, list | dict):
            raise ValueError(f"{name!r} is neither a number nor a text")  # noqa: TRY004 - a fault of the sample
        if column.take == "text":
            value = str(value)
        if isinstance(value, bool | int | float):
            return float(value)
        text = value.strip(" \t\u00a0\u202f")
        if not text or text.lower() in plan.missing_of(column):
            return None
        match column.take:
            case "text":
                return text
            case "truth" if text.lower() in (*column.true, *column.false):
                return float(text.lower() in column.true)
            case "hex" if re.fullmatch("(0[xX])?[0-9a-fA-F]{1,16}", text):
                return float(int(text, 16))
            case "number" if (number := _number(text, column, plan)) is not None:
                return number
        raise ValueError(f"{name!r} is {text[:40]!r}, no {column.take} as the plan says")


def _is_blank(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, float) and math.isnan(value))
    )


def _number(text: str, column: ColumnPlan, plan: Plan) -> float | None:
    if column.cut:
        text = text.removesuffix(column.cut) if text.endswith(column.cut) else text.removeprefix(column.cut)
        text = text.strip(" \u00a0\u202f")
    try:
        number = numbers.NumberMarks(*plan.marks_of(column)).value(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
