"""A plan: how the cells of a CSV file as people have them become the numbers and texts that an agent takes.

`edge_agent.sources.proposal` proposes one, a person may change it, and a file that ends in ``.plan`` is a source like
any other: each row that is read goes through it. It names its CSV file from its own folder, so the same plan serves
each vehicle whose file has that name.
"""

from __future__ import annotations

import csv
import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from edge_agent.sources.cells import SPLIT, check_widths, header, is_number, wrong_cell
from edge_agent.sources.files import in_blocks, opened
from edge_agent.sources.location import Location, Reader
from schemas.errors import DataError
from schemas.validation import first_fault

ENDING: Final = ".plan"

Cell = float | str


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Document):
    """What becomes of a column.

    Attributes
    ----------
    take : str
        ``number``; ``truth``: 1 for a word of `true`, 0 for one of `false`; ``hour``: of the day, [0, 24); ``seconds``:
        since 1970 (UTC where no zone is told); ``text``; or ``nothing``: it is left out.
    unit : str
        Of a number: cut off its cells.
    format : str
        Of a point in time: as `datetime.datetime.strptime` takes it; empty: ISO 8601.
    true, false : tuple of str
        In lower case.
    """

    take: Literal["number", "truth", "hour", "seconds", "text", "nothing"]
    unit: str = ""
    format: str = ""
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    @field_validator("format")
    @classmethod
    def _is_format(cls, form: str) -> str:
        if form:
            try:
                dt.datetime.strptime(dt.datetime(2001, 2, 3, 4, 5).strftime(form), form)  # noqa: DTZ001, DTZ007 - a try
            except (ValueError, re.error) as fault:
                raise ValueError(f"{form!r} is no format of a point in time") from fault
        return form


class Plan(_Document):
    """How a CSV file is read.

    Attributes
    ----------
    data : str
        The file, from the plan's folder.
    separator : str
        Between columns, one character.
    decimal, thousands : str
        Marks in numbers; `thousands` may be empty.
    missing : tuple of str
        Cells, in lower case, without a value. A row that has one in a column that is taken is left out.
    columns : dict
        By name. Columns of the file without a name are left out.
    """

    data: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    thousands: Annotated[str, Field(max_length=1)] = ""
    missing: tuple[str, ...] = ("",)
    columns: dict[str, Rule]

    @model_validator(mode="after")
    def _marks_differ(self) -> Plan:
        if self.thousands and (self.thousands == self.decimal or self.thousands in "+-" or self.thousands.isalnum()):
            raise ValueError(f"thousands {self.thousands!r}: write another mark than the decimal one")
        return self

    def converter(self, name: str) -> Callable[[str], Cell]:
        """Return the function that converts a cell of a column; it raises ValueError."""
        rule = self.columns[name]
        match rule.take:
            case "number":
                return partial(number, unit=rule.unit, decimal=self.decimal, thousands=self.thousands)
            case "truth":
                return partial(_truth, rule=rule)
            case "hour":
                return partial(hour, format=rule.format)
            case "seconds":
                return partial(seconds, format=rule.format)
            case _:
                return str

    def is_missing(self, cell: str) -> bool:
        """Whether a cell has no value."""
        return cell.lower() in self.missing


def number(cell: str, *, unit: str = "", decimal: str = ".", thousands: str = "") -> float:
    """Return the number of a cell; raises ValueError."""
    text = cell.removesuffix(unit).rstrip() if unit else cell
    if thousands and thousands in text:
        parted = rf"[+-]?\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+(?:{re.escape(decimal)}\d+)?"
        if not re.fullmatch(parted, text):
            raise ValueError(cell)
        text = text.replace(thousands, "")
    if decimal == ",":
        if "." in text:
            raise ValueError(cell)
        text = text.replace(",", ".")
    if not is_number(text) or not math.isfinite(value := float(text)):
        raise ValueError(cell)
    return value


def hour(cell: str, format: str = "") -> float:  # noqa: A002 - the plan's word
    """Return the hour of the day, [0, 24), as the clock showed it where it was written; raises ValueError."""
    at = _point(cell, format)
    return at.hour + at.minute / 60 + at.second / 3600


def seconds(cell: str, format: str = "") -> float:  # noqa: A002 - the plan's word
    """Return a point in time as seconds since 1970, UTC where no zone is told; raises ValueError."""
    at = _point(cell, format)
    return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp()


def _point(cell: str, form: str) -> dt.datetime:
    return dt.datetime.strptime(cell, form) if form else dt.datetime.fromisoformat(cell)  # noqa: DTZ007 - as it is written


def _truth(cell: str, rule: Rule) -> float:
    if cell.lower() in rule.true:
        return 1.0
    if cell.lower() in rule.false:
        return 0.0
    raise ValueError(cell)


def read_plan(path: Path) -> Plan:
    """Read a plan; raises DataError."""
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as fault:
        raise DataError(f"cannot be read ({fault.strerror})", where=str(path)) from fault
    except ValidationError as fault:
        what = first_fault(fault)
        raise DataError(f"not a plan ({what})", "Make one with glassfleet data prepare", str(path)) from fault


def behind(paths: Iterable[Path]) -> set[Path]:
    """Return the files that the plans among `paths` read: those rows are the plan's, and no vehicle's twice.

    Raises
    ------
    DataError
        As `read_plan`.
    """
    return {path.parent / read_plan(path).data for path in paths if path.suffix.lower() == ENDING}


@contextmanager
def cells_of(path: Path, separator: str) -> Iterator[tuple[list[str], Iterator[list[list[str]]]]]:
    """Open a CSV file; give the cells of its header, and blocks of rows; all cells stripped."""
    with opened(path) as text:
        reader = ([cell.strip() for cell in cells] for cells in csv.reader(text, delimiter=separator))
        yield next(reader, []), in_blocks(reader)


@contextmanager
def _rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Cell]]]]]:
    path = Path(place.text)
    plan = read_plan(path)
    with cells_of(path.parent / plan.data, plan.separator) as (cells, blocks):
        named = [index for index, name in enumerate(cells) if name]
        names = header(str(path), [cells[index] for index in named])
        unknown = [name for name in names if name not in plan.columns and name != SPLIT]
        gone = [name for name in plan.columns if name not in names]
        for which, says in ((unknown, "the plan says nothing of"), (gone, f"{plan.data} has not")):
            if which:
                raise DataError(f"{says} the column {which[0]!r}", "Prepare the file again", str(path))
        taken = [
            (index, name, str if name == SPLIT else plan.converter(name))
            for index, name in zip(named, names, strict=True)
            if name == SPLIT or plan.columns[name].take != "nothing"
        ]
        yield tuple(name for _, name, _ in taken), _converted(path, plan, len(cells), taken, blocks)


def _converted(
    path: Path,
    plan: Plan,
    width: int,
    taken: Sequence[tuple[int, str, Callable[[str], Cell]]],
    blocks: Iterator[list[list[str]]],
) -> Iterator[list[list[Cell]]]:
    row = 0
    for block in blocks:
        check_widths(str(path), block, width, row)
        converted: list[list[Cell]] = []
        for offset, cells in enumerate(block):
            if any(name != SPLIT and plan.is_missing(cells[index]) for index, name, _ in taken):
                continue
            line: list[Cell] = []
            for index, name, convert in taken:
                try:
                    line.append(convert(cells[index]))
                except (ValueError, OverflowError) as fault:
                    what = f"{cells[index][:40]!r} cannot be taken as {plan.columns[name].take}"
                    mend = "Correct it, add it to `missing` in the plan, or prepare again"
                    raise wrong_cell(str(path), name, row + offset, what, mend) from fault
            converted.append(line)
        row += len(block)
        yield converted


READER: Final = Reader("how to read a spreadsheet's CSV file; data prepare proposes it", _rows, endings=(ENDING,))
