"""Judges how a column's numbers are written, by all its cells; what two readings fit, is nobody's guess."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

SPACES: Final = "\u00a0\u2009\u202f\u2007 "
_MARKS: Final = f",.'\u2019{SPACES}"
_BODY: Final = re.compile(
    rf"(?P<pre>[€$£]?\s?)(?P<number>[+\-\u2212]?[\d{_MARKS}]*\d[\d{_MARKS}]*?(?:[eE][+-]?\d+)?)"
    r"[\s\u00a0\u202f]?(?P<unit>%|‰|°[CFK]?|[^\W\d_]{1,6}(?:[/·*][^\W\d_]{1,5}\d?)?|1/min)?$"
)
HEX: Final = re.compile(r"0[xX][0-9a-fA-F]+$")
_BARE_HEX: Final = re.compile(r"[0-9a-fA-F]{2,16}$")
POWER: Final = re.compile(r"\d+[eE]\d+$")
ENOUGH: Final = 20
"""So many cells with three digits behind a mark, beside some without it, are thousands and no decimals."""


@dataclass(frozen=True, order=True)
class NumberMarks:
    """What marks in numbers mean: the decimal one, and the one between thousands (empty: there is none)."""

    decimal: str
    thousands: str = ""

    @cached_property
    def _form(self) -> re.Pattern[str]:
        mark = re.escape(self.thousands)
        grouped = rf"|[1-9]\d{{0,2}}(?:{mark}\d{{3}})+" if mark else ""
        point = re.escape(self.decimal)
        return re.compile(rf"[+\-\u2212]?(?:\d+{grouped}|(?={point}\d))(?:{point}\d*)?(?:[eE][+-]?\d+)?$", re.ASCII)

    def value(self, number: str) -> float:
        """Return the number; raises ValueError where it is not written so."""
        if not self._form.match(number):
            raise ValueError(number)
        text = number.replace(self.thousands, "") if self.thousands else number
        return float(text.replace(self.decimal, ".").replace("\u2212", "-"))

    def words(self) -> str:
        """Return the lines of a plan that say so."""
        between = f', thousands = "{self.thousands}"' if self.thousands else ', thousands = ""'
        return f'decimal = "{self.decimal}"{between}'


@dataclass(frozen=True)
class NumberColumn:
    """A column's numbers.

    Attributes
    ----------
    readings : tuple of NumberMarks
        All that fit each cell, and differ; empty: none does.
    unit : str
        Behind each number.
    example : str
        A cell on which the readings differ, or that fits none.
    """

    readings: tuple[NumberMarks, ...]
    unit: str = ""
    example: str = ""


def body(cell: str) -> tuple[str, str] | None:
    """Return the number in a cell and the unit behind it, as written; None: it holds none."""
    match = _BODY.match(cell)
    if match is None:
        return None
    return match["number"].rstrip(SPACES), match["unit"] or match["pre"].strip()


def judge(cells: Sequence[str], separator: str) -> NumberColumn:
    """Return how numbers are written; each cell must have a `body`."""
    parts = [part for part in map(body, cells) if part is not None]
    units = {unit for _, unit in parts}
    unit = units.pop() if len(units) == 1 else ""
    if len(units) >= 1:
        odd = next((cell for cell, (_, each) in zip(cells, parts, strict=True) if each), "")
        return NumberColumn((), "", odd)
    numbers = [number for number, _ in parts]
    marks = {sign for number in numbers for sign in number if sign in _MARKS}
    decimals = [mark for mark in (".", ",") if mark in marks] or ["."]
    between = ["", *(mark for mark in _MARKS if mark in marks and not (mark == "." and separator == ","))]
    if len(marks & {".", ","}) == 1:
        decimals = [".", ","]
    fitting: dict[tuple[float, ...], NumberMarks] = {}
    for decimal in decimals:
        for thousands in between:
            if thousands == decimal:
                continue
            reading = NumberMarks(decimal, thousands)
            try:
                values = tuple(reading.value(number) for number in numbers)
            except ValueError:
                continue
            fitting.setdefault(values, reading)
    readings = tuple(fitting.values())
    if len(readings) == 2 and (sure := _thousands(numbers, readings)):
        readings = (sure,)
    if len(readings) == 1:
        return NumberColumn(readings, unit)
    if readings:
        one, two = list(fitting)[:2]
        differs = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        return NumberColumn(readings, unit, numbers[differs])
    return NumberColumn((), unit, _misfit(numbers))


def _thousands(numbers: Sequence[str], readings: Sequence[NumberMarks]) -> NumberMarks | None:
    """Return the reading with thousands where cells below 1,000 have no mark, and all the others exactly three digits.

    Decimals would be written with the mark in each cell, or with fewer digits where these end in zeros.
    """
    reading = next((each for each in readings if each.thousands), None)
    if reading is None:
        return None
    marked = [number for number in numbers if reading.thousands in number]
    bare = [number for number in numbers if reading.thousands not in number]
    sure = len(marked) >= ENOUGH and len(bare) >= 3 and all(len(number.lstrip("+-")) <= 3 for number in bare)
    return reading if sure else None


def _misfit(numbers: Sequence[str]) -> str:
    """Return a number that differs in its marks from the first one with a mark."""
    first = next((number for number in numbers if any(sign in _MARKS for sign in number)), numbers[0])
    shape = re.sub(r"\d+", "0", first)
    return next(
        (number for number in numbers if any(s in _MARKS for s in number) and re.sub(r"\d+", "0", number) != shape),
        first,
    )


def settled(
    readings: Sequence[NumberMarks], decimal_marks: set[str], thousands_marks: set[str]
) -> tuple[NumberMarks, ...]:
    """Return the readings that do not give a mark two meanings in one file.

    Parameters
    ----------
    readings : sequence of NumberMarks
    decimal_marks, thousands_marks : set of str
        What other columns of the file prove.
    """
    left = [each for each in readings if each.thousands not in decimal_marks and each.decimal not in thousands_marks]
    return tuple(left) or tuple(readings)


def is_power(cells: Sequence[str]) -> bool:
    """Whether cells such as 1E5 may be hexadecimal as well: there is no sign, no point in any."""
    powers = [cell for cell in cells if POWER.match(cell)]
    return bool(powers) and all(cell.isalnum() for cell in cells)


def is_bare_hex(cells: Sequence[str]) -> bool:
    """Whether cells are hexadecimal digits without the mark 0x, some with letters."""
    return (
        all(_BARE_HEX.match(cell) for cell in cells)
        and any(cell.isdigit() for cell in cells)
        and any(not cell.isdigit() for cell in cells)
    )
