"""A plan: how a fleet's files become tables. Proposed by `judge`, changed by a person, the same for each vehicle.

It names no file, and says all that was decided: what cells mean, which column tells the time, where rows stand.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_agent.imports.marks import NO_WORDS
from glassfleet.data.timeplan import Input, TimePlan
from schemas.errors import DataError, UsageError
from schemas.text import first_fault

UNDECIDED: Final = "?"
CLOCK: Final = "clock"
"""A time of day without a date."""

ORDERS: Final = (CLOCK, "ymd", "dmy", "mdy", "month", "compact", "date ymd", "date dmy", "date mdy", "date month")
"""How points in time are written: the order of year, month and day, behind ``date`` where there is no time of day;
``month``: its name, as in 08-Nov-2026; ``compact``: 20261108 131143."""
PLAN_KEY: Final = "glassfleet"
"""Under which a Parquet file has the plan that it was made by."""
UNITS_KEY: Final = "glassfleet_units"
"""Under which it has the units of its columns, as JSON."""
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Csv(_Table):
    """How texts are laid out.

    Attributes
    ----------
    encoding : str
        Of a file that does not tell it by a mark at its begin; empty: UTF-8, or cp1252 where it is none.
    separator : str
        Between columns, one character.
    decimal, thousands : str
        Marks in numbers; no mark between thousands where it is empty.
    missing : tuple of str
        Cells that stand for no value, in lower case, beside empty ones.
    """

    encoding: str = ""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ",", "?"] = "."
    thousands: Annotated[str, Field(max_length=1)] = ""
    missing: tuple[str, ...] = ()


class ColumnPlan(_Table):
    """What becomes of a column.

    Attributes
    ----------
    source : str
        Its name in the files, ``from`` in the plan; empty: its name here.
    take : str
        ``number``; ``hex``: a hexadecimal number; ``truth``: 1 for a word of `true`, 0 for one of `false`; ``text``;
        ``nothing``: it is left out; ``?``: somebody has to decide.
    unit : str
        Of its numbers, in the files.
    vss : str
        Its path in a catalogue of the Vehicle Signal Specification, which has the unit that it gets.
    cut : str
        What stands at each number, and is cut off: a unit, a currency.
    decimal, thousands : str or None
        Marks in its numbers; None: those of the files.
    true, false : tuple of str
        Words, in lower case.
    missing : tuple of str
        Cells that stand for no value in this column alone.
    """

    source: str = Field(default="", alias="from")
    take: Literal["number", "hex", "truth", "text", "nothing", "?"] = "number"
    unit: str = ""
    vss: str = ""
    cut: str = ""
    decimal: Literal[".", ",", "?"] | None = None
    thousands: Annotated[str, Field(max_length=1)] | None = None
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Long(_Table):
    """Of tables with one signal a row: the columns of its name and of its value."""

    signal: Name
    value: Name


class ClockPlan(_Table):
    """Where the files tell the time.

    Attributes
    ----------
    source : str
        Column, ``from`` in the plan.
    of_day : str
        Column of the time of day, where `source` has the date alone.
    form : str
        ``number``, or one of `ORDERS`; ``?``: somebody has to decide.
    scale : float
        Of a number: how many seconds 1 is.
    cut : str
        What stands at each number, and is cut off.
    decimal : str or None
        Mark in its numbers; None: that of the files.
    """

    source: Name = Field(alias="from")
    of_day: str = ""
    form: str = "number"
    cut: str = ""
    decimal: Literal[".", ",", "?"] | None = None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @property
    def cells(self) -> ColumnPlan:
        """How its numbers are written."""
        return ColumnPlan(cut=self.cut, decimal=self.decimal)

    @model_validator(mode="after")
    def _consistent(self) -> ClockPlan:
        if self.form not in ("number", UNDECIDED, *ORDERS):
            raise ValueError(f"form {self.form!r} is none of number, {', '.join(ORDERS)}")
        return self


class Time(_Table):
    """Where rows stand in time: the fields of `glassfleet.data.timeplan.TimePlan`, which has their words.

    Without `rows` and `every_ms` the rows stay as they are in the files, and there are no `inputs`.
    """

    column: str = "time"
    drive: str = "drive"
    rows: str = ""
    every_ms: int | None = None
    gap: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    start: float | None = None
    inputs: dict[str, Input] = {}

    @property
    def aligned(self) -> TimePlan | None:
        """How signals become rows; None: rows stay as they are."""
        return TimePlan.from_document(self.model_dump()) if self.rows or self.every_ms is not None else None

    @model_validator(mode="after")
    def _consistent(self) -> Time:
        try:
            _ = self.aligned
        except UsageError as fault:
            raise ValueError(str(fault)) from fault
        return self


class Plan(_Table):
    """How files become tables.

    Attributes
    ----------
    target : str
        The column that is to be forecast; it is the last of the table.
    csv : Csv
    long : Long or None
    clock : ClockPlan or None
    time : Time or None
    columns : dict of str to ColumnPlan
        By the names that the table gets, in its order.
    """

    target: str = ""
    csv: Csv = Csv()
    long: Long | None = None
    clock: ClockPlan | None = None
    time: Time | None = None
    columns: dict[Name, ColumnPlan] = {}

    @property
    def digest(self) -> str:
        """What two vehicles compare: equal where their plans say the same."""
        return hashlib.sha256(self.model_dump_json(by_alias=True).encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that the files must have."""
        if self.long is not None:
            time = () if self.clock is None else (self.clock.source,)
            return (self.long.signal, self.long.value, *time)
        times = () if self.clock is None else tuple(filter(None, (self.clock.source, self.clock.of_day)))
        return (*times, *(column.source or name for name, column in self.columns.items() if column.take != "nothing"))

    @property
    def aligned(self) -> TimePlan | None:
        """How signals become rows; None: rows stay as they are."""
        return None if self.time is None else self.time.aligned

    @property
    def times(self) -> tuple[str, ...]:
        """Columns of the table that tell when a row was, and of which drive."""
        return () if self.time is None else (self.time.column, self.time.drive)

    @property
    def has_paths(self) -> bool:
        """Whether columns are signals of a catalogue."""
        return any(column.vss for column in self.columns.values())

    @property
    def taken(self) -> dict[str, ColumnPlan]:
        """The columns that are not left out."""
        return {name: column for name, column in self.columns.items() if column.take != "nothing"}

    def marks_of(self, column: ColumnPlan) -> tuple[str, str]:
        """Return the decimal mark of a column's numbers, and the one between thousands; empty: there is none."""
        decimal = column.decimal or self.csv.decimal
        thousands = self.csv.thousands if column.thousands is None else column.thousands
        return decimal, "" if thousands == decimal else thousands

    def missing_of(self, column: ColumnPlan) -> frozenset[str]:
        """Return the cells of a column, in lower case, that stand for no value."""
        common = {mark for mark in self.csv.missing if column.take != "text" or mark not in NO_WORDS}
        return frozenset(map(str.lower, {*common, *column.missing, "nan"}))

    def with_csv(self, *, encoding: str = "", missing: Iterable[str] = ()) -> Plan:
        """Return a plan with another encoding, and with more cells that stand for no value."""
        marks = tuple(sorted({*self.csv.missing, *missing}))
        csv = self.csv.model_copy(update={"encoding": encoding or self.csv.encoding, "missing": marks})
        return self.model_copy(update={"csv": csv})

    @property
    def undecided(self) -> list[str]:
        """The lines of the plan that somebody has to decide."""
        lines = ["csv: decimal"] if self.csv.decimal == UNDECIDED else []
        if self.clock is not None and UNDECIDED in (self.clock.form, self.clock.decimal):
            lines.append("clock")
        return lines + [
            f"columns.{_key(name)}"
            for name, column in self.columns.items()
            if UNDECIDED in (column.take, column.decimal)
        ]

    def to_toml(self, why: Mapping[str, str] | None = None) -> str:
        """Return it as a file, with the reason behind each column."""
        given = self.model_dump(by_alias=True, exclude_defaults=True)
        if self.time is not None:  # said, also where it is the default: a person may want to change it
            given["time"] = {"column": self.time.column, "gap": self.time.gap, **given["time"]}
        lines = [
            "# How the files of this fleet become tables: glassfleet data import FILE --plan THIS --out drive.parquet"
        ]
        if self.target:
            lines.append(f"target = {_value(self.target)}")
        for part in ("csv", "long", "clock", "time"):
            if given.get(part) or part == "csv":
                lines += ["", f"[{part}]"]
                lines += [
                    f"{_key(key)} = {_value(value)}" for key, value in given.get(part, {}).items() if key != "inputs"
                ]
        if self.time is not None and self.time.inputs:
            lines += ["", "[time.inputs]"]
            lines += [
                f"{_key(name)} = {_value(part.model_dump(exclude_none=True))}"
                for name, part in self.time.inputs.items()
            ]
        lines += ["", "[columns]"]
        for name, column in self.columns.items():
            pairs = {"take": column.take, **column.model_dump(by_alias=True, exclude_defaults=True)}
            reason = " ".join((why or {}).get(name, "").split())
            inline = ", ".join(f"{key} = {_value(value)}" for key, value in pairs.items())
            lines.append(f"{_key(name)} = {{ {inline} }}{'  # ' + _shown(reason) if reason else ''}")
        return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def read_plan(path: Path) -> Plan:
    """Read a plan; raises DataError that names the line or the field."""
    mend = "Let one be proposed: glassfleet data import FILE --plan NEW.toml"
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        return Plan.model_validate(given)
    except OSError as fault:
        raise DataError(f"cannot be read ({fault.strerror})", where=str(path)) from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise DataError(f"not a plan ({fault})", mend, str(path)) from fault
    except ValidationError as fault:
        raise DataError(f"not a plan ({first_fault(fault)})", mend, str(path)) from fault
