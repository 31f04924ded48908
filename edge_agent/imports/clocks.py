"""Judges which column tells the time, how, and where rows stand in it."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeVar

from edge_agent.imports import numbers
from edge_agent.imports.dialect import Dialect, split_unit
from edge_agent.imports.marks import words, words_of
from edge_agent.imports.numbers import NumberMarks
from edge_agent.imports.plan import CLOCK, ORDERS, UNDECIDED, ClockPlan, ColumnPlan, Time
from glassfleet.data.timeplan import Input

T = TypeVar("T")

SPLIT: Final = "split"
"""Name of the column that says which rows train and which test."""

OWN: Final = 0.4
"""Share of empty cells from which a signal has times of its own."""


@dataclass
class TextRows:
    """Some of a text's rows."""

    names: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]
    head: int
    repeated: bool = False

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column stands in a row."""
        return {name: index for index, name in enumerate(self.names)}

    def cells(self, name: str) -> list[str]:
        """Return the cells of a column."""
        index = self.places[name]
        return [row[index] for row in self.rows]


@dataclass(frozen=True)
class Ambiguity:
    """Something that cells do not tell: what it is, with its readings, and the line of the plan."""

    column: str
    what: str
    plan: str


def clock_of(given: TextRows, dialect: Dialect) -> tuple[ClockPlan | None, list[Ambiguity]]:
    """Return which column tells the time and how, and what of it is to decide."""
    found: list[tuple[int, ClockPlan, list[Ambiguity]]] = []
    clocks: list[str] = []
    dates: list[tuple[str, tuple[str, ...]]] = []
    for index, name in enumerate(given.names):
        cells = [cell for cell in given.cells(name)[: given.head] if cell]
        bare, unit = split_unit(name)
        unit = unit or (dialect.units[index] if index < len(dialect.units) else "")
        orders = orders_of(cells) if cells else ()
        if orders == (CLOCK,):
            clocks.append(name)
        elif orders and orders[0].startswith("date"):
            dates.append((name, orders))
        if orders:
            rank = 1 if orders[0].startswith("date") else 0
            found.append((rank, ClockPlan(source=name, form=orders[0]), _undecided(name, given, orders)))
        elif is_time_name(bare) and (values := _rising(cells, dialect.separator)):
            cut = (numbers.body(cells[-1]) or ("", ""))[1]
            scale, _ = scale_of(bare, unit or cut, values)
            found.append((2 if bare.lower() in NAMES else 3, ClockPlan(source=name, scale=scale, cut=cut), []))
    if dates and clocks:
        name, orders = dates[0]
        clock = ClockPlan(source=name, of_day=clocks[0], form=orders[0])
        return _decided(clock, _undecided(name, given, orders))
    if not found:
        return None, []
    _, clock, decisions = min(found, key=lambda each: each[0])
    return _decided(clock, decisions)


def _decided(clock: ClockPlan, decisions: list[Ambiguity]) -> tuple[ClockPlan, list[Ambiguity]]:
    return (clock.model_copy(update={"form": UNDECIDED}) if decisions else clock), decisions


def _undecided(name: str, given: TextRows, orders: Sequence[str]) -> list[Ambiguity]:
    if len(orders) < 2:
        return []
    cells = given.cells(name)
    at = next(at for at, cell in enumerate(cells) if cell and seconds(cell, orders[0]) != seconds(cell, orders[1]))
    read = " or ".join(
        f"day {each}" for each in (" and month ".join(_day_month(cells[at], order)) for order in orders[:2])
    )
    lines = " or ".join(f'form = "{order}"' for order in orders)
    return [Ambiguity(name, f"{name}: line {given.lines[at]} has {cells[at]!r}: {read}", f"clock: {lines}")]


def _day_month(cell: str, order: str) -> tuple[str, str]:
    at = dt.datetime.fromtimestamp(seconds(cell, order), dt.UTC)
    return f"{at.day}", f"{at.month}"


def _rising(cells: Sequence[str], separator: str) -> list[float]:
    """Return a column's numbers where nearly all of them rise from row to row; else none."""
    if not all(numbers.body(cell) for cell in cells):
        cells = [cell for cell in cells if numbers.body(cell)]
    if not cells:
        return []
    read = numbers.judge(cells, separator)
    if not read.readings:
        return []
    values = [read.readings[0].value(numbers.body(cell)[0]) for cell in cells]  # type: ignore[index]
    falls = sum(second < first for first, second in pairwise(values))
    return values if falls <= 0.05 * len(values) else []


def time_of(
    given: TextRows,
    clock: ClockPlan | None,
    kept: dict[str, ColumnPlan],
    target: str,
    *,
    shown: dict[str, tuple[str, str]],
    marks: NumberMarks,
) -> Time | None:
    """Return where rows stand: as they are, or at the target's times where signals have times of their own.

    In that case a signal is held for three times its usual distance, and never across a gap.
    """
    if clock is None:
        return None
    rows = given.rows[: given.head]
    at = row_times(given, clock, marks)
    gap = gap_of(at)
    time = Time(column=shown[clock.source][0], drive="" if "drive" in kept else "drive", gap=gap)
    used = {
        name: shown[name][0] for name, each in kept.items() if each.take not in ("nothing", UNDECIDED) and name != SPLIT
    }
    empty = {name: given.cells(name)[: given.head].count("") for name in used}
    if len(at) != len(rows) or len(rows) < 4 or not any(count >= OWN * len(rows) for count in empty.values()):
        return time
    inputs = {}
    for name, bare in used.items():
        index = given.places[name]
        own = [when for when, row in zip(at, rows, strict=True) if row[index]]
        inputs[bare] = Input(signal=bare, seconds=age(own, gap))
    return time.model_copy(update={"rows": target, "inputs": last(inputs, target)}) if target in inputs else time


def last(given: dict[str, T], name: str) -> dict[str, T]:
    """Return entries with one of them at the end."""
    return {**{each: value for each, value in given.items() if each != name}, name: given[name]}


def gap_of(at: Sequence[float]) -> float:
    """Return how long nothing has to come for a new drive to begin: a minute, or a hundred usual steps."""
    steps = sorted(second - first for first, second in pairwise(at) if second > first)
    return min(86_400.0, max(60.0, rounded(100 * steps[len(steps) // 2]))) if steps else 60.0


def age(times_of: Sequence[float], gap: float) -> float:
    """Return how long a signal's value is held: three times the distance that few of its samples exceed."""
    steps = sorted(second - first for first, second in pairwise(times_of) if 0 < second - first <= gap)
    return min(gap, rounded(3 * steps[int(0.95 * (len(steps) - 1))])) if steps else gap


def rounded(seconds: float) -> float:
    """Return a number with two digits, not below this one."""
    if seconds <= 0:
        return 1.0
    size = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return float(f"{math.ceil(seconds / size - 1e-9) * size:.6g}")


def row_times(given: TextRows, clock: ClockPlan, marks: NumberMarks) -> list[float]:
    """Return the times of the first rows; none where one of them tells none."""
    cells = given.cells(clock.source)[: given.head]
    form = next((order for order in orders_of(cells[:50])), "number") if clock.form == UNDECIDED else clock.form
    try:
        if form == "number":
            return [marks.value(numbers.body(cell)[0]) * clock.scale for cell in cells]  # type: ignore[index]
        at = [seconds(cell, form) for cell in cells]
        if clock.of_day:
            of_day = given.cells(clock.of_day)[: given.head]
            at = [day + seconds(cell, CLOCK) for day, cell in zip(at, of_day, strict=True)]
    except (ValueError, TypeError):
        return []
    return at


# --- judges how points in time are written, and which reading of day and month fits all cells -------------------------


NAMES: Final = words(
    "time times timestamp timestamps t ts zeit zeitstempel uhrzeit datetime datum date epoch elapsed clock "
    "tiempo temps utc gmt hora heure zeitpunkt"
)
"""Words of a name that a column of times has."""

_SECONDS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sekunden"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds", "millisecond"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes", "minuten"), 60.0),
    **dict.fromkeys(("h", "hr", "hours", "hour", "stunden"), 3600.0),
}
_DATE: Final = r"(\d{1,4})[./\-](\d{1,2})[./\-](\d{1,4})"
_TIME: Final = (
    r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,:](\d{1,9}))?)? ?([AaPp]\.?[Mm]\.?)? ?"
    r"(Z|UTC|GMT|MEZ|CET|MESZ|CEST|[+\-]\d{2}(?::?\d{2})?)?"
)
_MONTH: Final = r"(\d{1,2})[ .\-]{0,2}([A-Za-z]{3})[a-z]*[ .,\-]{1,2}(\d{4})"
_COMPACT: Final = r"(\d{4})(\d{2})(\d{2})"
_COMPACT_TIME: Final = r"(\d{2})(\d{2})(\d{2})(?:[.,](\d{1,9}))?"
_GAP: Final = r"[,T_ \-]{1,2}"
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES: Final = {"MEZ": 3600.0, "CET": 3600.0, "MESZ": 7200.0, "CEST": 7200.0}


def pattern(order: str) -> str:
    """Return the regular expression of points in time, for Python and for the engine.

    Its groups are year, month and day in their order (not of a clock), then hour, minute, second, fraction, AM or PM,
    and zone (not of a date).
    """
    if order == CLOCK:
        return f"{_TIME}$"
    day = _MONTH if order.endswith("month") else _COMPACT if order == "compact" else rf"{_DATE}\.?"
    clock = "" if order.startswith("date") else f"{_GAP}{_COMPACT_TIME}" if order == "compact" else f"{_GAP}{_TIME}"
    if order == "compact":
        clock = f"[T_ \\-]?{_COMPACT_TIME}"
    return f"{day}{clock}$"


def is_time_name(name: str) -> bool:
    """Whether a column of this name may hold times."""
    words = words_of(name)
    return any(word in NAMES for word in words) or (name.strip().lower() in _SECONDS and len(name) > 1)


def scale_of(name: str, unit: str, values: Sequence[float]) -> tuple[float, str]:
    """Return how many seconds 1 is in a column of numbers, and why: its unit, its name, or the size of its values."""
    if unit.lower() in _SECONDS:
        return _SECONDS[unit.lower()], unit
    for word in reversed(words_of(name)):
        if word in _SECONDS:
            return _SECONDS[word], word
    middle = sorted(abs(value) for value in values)[len(values) // 2] if values else 0.0
    for least, scale, word in ((1e17, 1e-9, "ns"), (1e14, 1e-6, "us"), (1e11, 1e-3, "ms")):
        if middle >= least:
            return scale, word
    return 1.0, "s"


def plain(cell: str) -> str:
    """Return a cell with one space for spaces of any kind."""
    return re.sub(r"[\u00a0\u202f\u2009\u2007\s]+", " ", cell.strip())


def seconds(cell: str, order: str) -> float:
    """Return a point in time as seconds since 1970 (UTC where no zone is told), or of the day; raises ValueError."""
    match = re.match(pattern(order), plain(cell))
    if match is None:
        raise ValueError(cell)
    parts = list(match.groups())
    at = 0.0
    if order != CLOCK:
        at, parts = _day(parts[:3], order.removeprefix("date ")), parts[3:]
    return at + _of_day(parts, dated=order != CLOCK) if parts else at


def _day(parts: Sequence[str], order: str) -> float:
    if order in ("month", "compact"):
        order = "dmy" if order == "month" else "ymd"
    year, month, day = (parts[order.index(sign)] for sign in "ymd")
    if len(year) not in (2, 4) or (len(year) == 2 and order == "ymd") or len(month) + len(day) > 5:
        raise ValueError(year)
    number = _MONTHS.index(month.lower()) + 1 if month.isalpha() else int(month)
    return dt.datetime(int(year) + 2000 * (len(year) == 2), number, int(day), tzinfo=dt.UTC).timestamp()


def _of_day(parts: Sequence[str | None], *, dated: bool) -> float:
    """Return the seconds of the day, in UTC where a zone is told."""
    hour, minute, second = int(parts[0] or 0), int(parts[1] or 0), int(parts[2] or 0)
    half, zone = (parts[4], parts[5]) if len(parts) > 4 else (None, None)
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(half)
        hour = hour % 12 + 12 * half.lower().startswith("p")
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError(hour)
    offset = _ZONES.get(zone or "", 0.0)
    if zone and zone[0] in "+-":
        offset = (-1.0 if zone[0] == "-" else 1.0) * (int(zone[1:3]) * 3600 + int(zone[3:].lstrip(":") or 0) * 60)
    return hour * 3600 + minute * 60 + second + float(f"0.{parts[3] or 0}") - offset * dated


def orders_of(cells: Sequence[str]) -> tuple[str, ...]:
    """Return all orders that fit each cell and give different times; empty: these are no points in time.

    With points between its parts a date begins with the day, everywhere that such dates are written.
    """
    found: dict[tuple[float, ...], str] = {}
    for order in ORDERS if cells else ():
        if order.endswith("mdy") and "." in cells[0][:6]:
            continue
        try:
            found.setdefault(tuple(seconds(cell, order) for cell in cells), order)
        except (ValueError, OverflowError):
            continue
    return tuple(found.values())


def seconds_sql(cell: str, order: str) -> str:
    """Return an expression of the engine for what `seconds` returns, NULL where a cell is no such point in time.

    Parameters
    ----------
    cell : str
        An expression, of text.
    order : str
        One of `ORDERS`.
    """
    names = [] if order == CLOCK else [f"d{part}" for part in range(3)]
    if not order.startswith("date"):
        names += ["hh", "mi", "ss", "fr", *([] if order == "compact" else ["half", "zone"])]
    text = f"trim(regexp_replace({cell}, '[\\s\u00a0\u202f\u2009\u2007]+', ' ', 'g'))"
    listed = ", ".join(f"'{name}'" for name in names)
    form = f"'^{pattern(order)}'"
    inner = f"CASE WHEN regexp_matches({text}, {form}) THEN regexp_extract({text}, {form}, [{listed}]) END"
    parts = [] if order == CLOCK else [_day_sql(order.removeprefix("date "))]
    if not order.startswith("date"):
        parts.append(_clock_sql(order))
    return f"list_transform([{inner}], lambda p: {' + '.join(parts)})[1]"


def _day_sql(order: str) -> str:
    order = {"month": "dmy", "compact": "ymd"}.get(order, order)
    year, month, day = (f"p.d{order.index(sign)}" for sign in "ymd")
    whole = f"CASE WHEN length({year}) = 2 THEN '20' || {year} WHEN length({year}) = 4 THEN {year} END"
    months = ", ".join(f"'{name}'" for name in _MONTHS)
    number = f"coalesce(try_cast({month} AS INT), list_position([{months}], lower({month})))"
    return f"epoch(try_cast(({whole}) || '-' || ({number}) || '-' || {day} AS DATE))"


def _clock_sql(order: str) -> str:
    hour = "try_cast(p.hh AS INT)"
    zone = ""
    if order != "compact":
        noon = "CASE WHEN lower(p.half[1]) = 'p' THEN 12 ELSE 0 END"
        is_half = f"CASE WHEN {hour} BETWEEN 1 AND 12 THEN {hour} % 12 + {noon} END"
        hour = f"CASE WHEN p.half <> '' THEN {is_half} WHEN {hour} < 24 THEN {hour} END"
        if order != CLOCK:
            signed = "(try_cast(p.zone[2:3] AS INT) * 3600 + coalesce(try_cast(ltrim(p.zone[4:], ':') AS INT), 0) * 60)"
            named = " ".join(f"WHEN '{name}' THEN {ahead}" for name, ahead in _ZONES.items())
            zone = (
                f" - CASE WHEN p.zone[1] = '-' THEN -{signed} WHEN p.zone[1] = '+' THEN {signed} "
                f"ELSE CASE p.zone {named} ELSE 0 END END"
            )
    second = "coalesce(try_cast(nullif(p.ss, '') AS INT), 0)"
    low = f"CASE WHEN coalesce(try_cast(p.mi AS INT), 0) < 60 AND {second} <= 60 THEN 0 END"
    rest = f"try_cast(p.mi AS INT) * 60 + coalesce(try_cast(nullif(p.ss, '') AS INT), 0) + {low}"
    return f"({hour}) * 3600 + {rest} + coalesce(try_cast('0.' || nullif(p.fr, '') AS DOUBLE), 0){zone}"
