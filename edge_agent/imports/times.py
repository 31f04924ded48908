"""Judges how points in time are written, and which reading of day and month fits all cells."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Final

from edge_agent.imports.marks import words, words_of

NAMES: Final = words(
    "time times timestamp timestamps t ts zeit zeitstempel uhrzeit datetime datum date epoch elapsed clock "
    "tiempo temps utc gmt hora heure zeitpunkt"
)
"""Words of a name that a column of times has."""

CLOCK: Final = "clock"
"""A time of day without a date."""

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
ORDERS: Final = ("clock", "ymd", "dmy", "mdy", "month", "compact", "date ymd", "date dmy", "date mdy", "date month")
"""How points in time are written: the order of year, month and day, behind ``date`` where there is no time of day;
``month``: its name, as in 08-Nov-2026; ``compact``: 20261108 131143; ``clock``: a time of day alone."""


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


def judge(cells: Sequence[str]) -> tuple[str, ...]:
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


def sql(cell: str, order: str) -> str:
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
