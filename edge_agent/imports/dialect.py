"""Judges how a text is laid out: what separates its columns, which line names them, what stands above and below it."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_agent.imports.marks import is_mark, words
from schemas.errors import DataError
from schemas.text import counted

SEPARATORS: Final = {
    ",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", "^": "circumflexes", "~": "tildes",
    "\x1f": "unit separators", "\x01": "control characters", "\u00a6": "broken bars", "!": "exclamation marks",
    "&": "ampersands", ":": "colons", " ": "spaces",
}  # fmt: skip
"""What may separate columns, and its name; the first of equals counts."""

COMMENTS: Final = ("#", "%", "//", "!", "*", ";")
"""How lines begin, above the columns' names, that hold no row."""

LINES: Final = 400
"""First lines that tell the layout."""

_UNIT_WORDS: Final = words(
    "s sec secs second seconds ms us µs μs ns min minutes h hr d day m km cm mm µm mi mile miles ft yd in kmh "
    "km/h kph mph mps m/s m/s2 m/s^2 m/s² g rpm 1/min min-1 u/min rad rad/s deg deg/s ° °/s °c °f degc degf c f "
    "k celsius kelvin % pct percent v mv kv a ma ka ah w kw mw kwh wh hp ps kw/h n kn nm n·m j kj pa kpa mpa hpa "
    "bar mbar psi l ml l/h l/100km l/min g/s g/km kg t kg/h mg ppm hz khz mhz bit bits byte bytes b kb mb kbit/s "
    "mbit/s bps db dbm lux lx count counts # - -- n/a none bool boolean enum 1 raw ohm kohm ω lambda λ mol "
    "mg/str mm3 cm3 cc imp/min ticks"
)
_UNIT: Final = re.compile(r"[\[(<]?\s*([^\[\]()<>\s]{0,12})\s*[\])>]?$")
_NAME_UNIT: Final = re.compile(r"^(.*\S)\s*[\[(]\s*([^\[\]()]{1,12})\s*[\])]$")
_VALUE: Final = re.compile(
    r"(?!1/[^\W\d_]+$)[+\-\u2212]?[€$£]?\s?(0[xX][0-9a-fA-F]+|"
    r"[\d.,][\d.,'\u2019 \u00a0\u202f\u2009:/+TZ_\-]*([eE][+-]?\d+)?\s*([AaPp]\.?[Mm]\.?)?"
    r"\s*([^\W\d_]{1,5}|%|°\w?|[^\W\d_]{1,5}/[^\W\d_]{1,5})?)$"
)


@dataclass(frozen=True)
class Dialect:
    """How a text is laid out.

    Attributes
    ----------
    separator : str
    names : tuple of str
        As the header has them, stripped; without the empty one behind a separator that ends each line.
    units : tuple of str
        Under the names; empty where there is no such row.
    header : int
        Line of the names, from 1.
    data : int
        Line of the first row.
    width : int
        Cells of a row.
    notes : tuple of str
        What is unusual, in words.
    """

    separator: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    header: int
    data: int
    width: int
    notes: tuple[str, ...] = ()


def is_value(cell: str) -> bool:
    """Whether a cell looks like a number, a time or a date, however it is written."""
    return bool(_VALUE.match(cell)) and any(sign.isdigit() for sign in cell)


def is_unit(cell: str) -> bool:
    """Whether a cell can be the name of a unit."""
    match = _UNIT.match(cell)
    if match is None:
        return False
    word = match[1].lower()
    return word in _UNIT_WORDS or (
        "/" in word and all(part in _UNIT_WORDS for part in re.split(r"[/*·]", word)) and len(word) > 1
    )


def split_unit(name: str) -> tuple[str, str]:
    """Return a column's name and the unit in it, which stands in brackets at its end.

    >>> split_unit("speed (km/h)"), split_unit("wheel (left)")
    (('speed', 'km/h'), ('wheel (left)', ''))
    """
    match = _NAME_UNIT.match(name)
    return (match[1], match[2].strip()) if match and is_unit(match[2]) else (name, "")


def judge(lines: Sequence[str], where: str, separator: str = "", names: Sequence[str] = ()) -> Dialect:
    """Return how a text is laid out.

    Parameters
    ----------
    lines : sequence of str
        Its first ones, whole.
    where : str
        For messages.
    separator : str
        As the plan says; empty: it is judged.
    names : sequence of str
        Columns that the plan names: the header is the line that has them. Empty: it is judged.

    Raises
    ------
    DataError
        There is no header, or rows are not as long as it; the text names the line and the way out.
    """
    notes: list[str] = []
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    mark_line = re.match(r"^\W?sep=(.)\s*$", lines[first]) if lines else None
    if mark_line is not None:
        separator = separator or mark_line[1]
        notes.append(f"line {first + 1} says sep={mark_line[1]}")
        first += 1
    start = first
    while start < len(lines) and (not lines[start].strip() or lines[start].lstrip().startswith(COMMENTS[:5])):
        start += 1
    if start >= len(lines):
        raise DataError("there are no rows, only comments", "Name a file with a table", where)
    mark = separator or _separator(lines[start:], where)
    rows = rows_of(lines, start, mark, where)
    if names:
        last = next((cells for cells in _comments(lines[first:start], mark) if set(names) <= set(cells)), None)
        header = _named(rows, names, lines[start:], mark, where) if last is None else 0
        begin = header + (last is None)
        values = [any(map(is_value, cells)) and not _is_below(cells) for _, cells in rows[begin : begin + 4]]
        begin += values.index(True) if True in values else 0
        width = len(rows[header][1])
    else:
        header, begin, width, last = _header(rows, lines[first:start], mark, where)
    below = [cells for _, cells in rows[header + 1 : begin]]
    units = next(
        (cells for cells in below if sum(map(is_unit, filter(None, cells))) * 2 > len([*filter(None, cells)])), []
    )
    titles = rows[header][1] if last is None else last
    while (
        titles
        and not titles[-1]
        and len(titles) > 1
        and all(len(cells) <= len(titles) - 1 or not cells[len(titles) - 1] for _, cells in rows[begin:])
    ):
        titles = titles[:-1]
    line = rows[header][0] if last is None else start
    above = sum(bool(each.strip()) for each in lines[first : line - 1])
    if above:
        notes.append(f"{counted(above, 'lines')} above the names left out")
    if last is not None:
        notes.append("the names stand in a comment")
    left = len(below) - bool(units)
    if units:
        notes.append("units under the names")
    if left:
        notes.append(f"{counted(left, 'lines')} of text under the names left out")
    data = rows[begin][0] if begin < len(rows) else line + 1 + len(below)
    return Dialect(
        mark,
        tuple(titles),
        tuple(unit.strip("[]()<> ") for unit in units[: len(titles)]),
        line,
        data,
        width,
        tuple(notes),
    )


def _comments(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the cells of comments above the rows, the last one first."""
    texts = [line.strip().lstrip("#%/!* ") for line in reversed(lines) if line.strip()]
    return [cells for text in texts for _, cells in rows_of([text], 0, separator)]


def rows_of(lines: Sequence[str], start: int, separator: str, where: str = "") -> list[tuple[int, list[str]]]:
    """Return the number of the line where each row begins, and its cells; blank lines are left out.

    Raises DataError where there is none in `where`, if it is named.
    """
    reader = csv.reader(lines[start:], delimiter=separator, skipinitialspace=separator == " ")
    rows, begins = [], start + 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) or len(cells) > 1:
                rows.append((begins, [cell.strip() for cell in cells]))
            begins = start + reader.line_num + 1
    except csv.Error:
        pass  # what follows is told by the engine, with its line
    if where and not rows:
        raise DataError(f"line {begins} cannot be a row", "Look for a quote that is not closed", where)
    return rows


def _separator(lines: Sequence[str], where: str) -> str:
    best, chosen = 0.0, ""
    for mark in SEPARATORS:
        if not any(mark in line for line in lines):
            continue
        rows = [cells for _, cells in rows_of(lines, 0, mark)]
        part = rows[len(rows) // 3 :]
        if not part:
            continue
        width, count = Counter(len(cells) for cells in part).most_common(1)[0]
        if width < 2:
            continue
        filled = [cell for cells in part for cell in cells if cell]
        clean = [is_value(cell) or not any(other in cell for other in ",;\t|" if other != mark) for cell in filled]
        values = sum(map(is_value, filled)) / max(1, len(filled))
        score = count / len(part) * (sum(clean) / max(1, len(clean)) + values) + min(width, 50) / 1000
        if score > best + 1e-9:
            best, chosen = score, mark
    if not chosen:
        if any(is_value(line.strip()) for line in lines):
            raise DataError("the table has one column only", "Inputs and a target are needed", where)
        mend = "Name a file with a table: a line of names, and rows under it, separated by commas or the like"
        raise DataError("no separator parts its lines into columns", mend, where)
    return chosen


def _is_below(cells: Sequence[str]) -> bool:
    """Whether a row under the names holds units or other texts instead of values."""
    filled = [cell for cell in cells if cell and not is_mark(cell)]
    units = [cell for cell in filled if is_unit(cell)]
    return bool(filled) and len(units) * 2 > len(filled) and any(not is_value(cell) for cell in units)


def _named(
    rows: Sequence[tuple[int, list[str]]], names: Sequence[str], lines: Sequence[str], mark: str, where: str
) -> int:
    """Return the place of the line of names; raises DataError where a plan's names, or its separator, are not those."""
    absent = [set(names).difference(cells) for _, cells in rows]
    best = min(range(len(rows)), key=lambda at: len(absent[at]))
    if not absent[best]:
        return best
    for other, signs in SEPARATORS.items():
        if any(set(names) <= set(cells) for _, cells in rows_of(lines, 0, other)):
            what = f"{signs} separate its columns, and the plan says {SEPARATORS.get(mark, repr(mark))}"
            mend = f"Give such files a plan of their own, with separator = {json.dumps(other)} under [csv]"
            raise DataError(what, mend, where)
    name = next(name for name in names if name in absent[best])
    what = f"the plan names the column {name!r}, which no line of names has"
    mend = f"The columns are: {', '.join(rows[best][1][:20])}. Correct the plan, or name another file"
    raise DataError(what, mend, where)


def _header(
    rows: Sequence[tuple[int, list[str]]], comments: Sequence[str], mark: str, where: str
) -> tuple[int, int, int, list[str] | None]:
    """Return the places of the header and of the first row, the width of rows, and names that stand in a comment."""
    part = rows[len(rows) // 3 :]
    width = Counter(len(cells) for _, cells in part).most_common(1)[0][0]
    full = [cells for _, cells in part if len(cells) == width]
    numeric = [
        column
        for column in range(width)
        if 2 * sum(is_value(cells[column]) for cells in full)
        > sum(bool(cells[column]) and not is_mark(cells[column]) for cells in full)
    ]
    begin = next((at for at, (_, cells) in enumerate(rows) if _is_row(cells, numeric, width)), None)
    if begin is None or not numeric:
        begin = next((at for at, (_, cells) in enumerate(rows) if len(cells) == width), 0) + 1
        below = [cell for cell in rows[begin][1] if cell] if begin < len(rows) else []
        begin += all(map(is_unit, below)) and not all(map(is_value, below))
    if begin == 0:
        cells = next(iter(_comments(comments, mark)), [])
        if len(cells) == width and not any(is_value(cell) for cell in cells):
            return 0, 0, width, cells
        mend = "A header row with the column names is needed: write it as the first line"
        raise DataError(f"the first row (line {rows[0][0]}) holds values, no names", mend, where)
    block = begin
    while block > 0 and len(rows[block - 1][1]) == width:
        block -= 1
    if block == begin:
        return _other_width(rows, begin, width, mark, where)
    titles = [at for at in range(block, begin) if all(rows[at][1]) and not any(is_value(cell) for cell in rows[at][1])]
    header = next((at for at in titles if len(set(rows[at][1])) == width), titles[0] if titles else block)
    return header, begin, width, None


def _is_row(cells: Sequence[str], numeric: Sequence[int], width: int) -> bool:
    if len(cells) != width:
        return False
    filled = [cells[column] for column in numeric if cells[column] and not is_mark(cells[column])]
    values = sum(map(is_value, filled))
    return values > 0 and 2 * values >= len(filled)


def _other_width(
    rows: Sequence[tuple[int, list[str]]], begin: int, width: int, mark: str, where: str
) -> tuple[int, int, int, None]:
    """Return the header where it is not as wide as the rows, if that is harmless; else raise DataError."""
    line, names = rows[begin - 1]
    last = [cells[-1] for _, cells in rows[begin:] if len(cells) == width]
    if (len(names) == width - 1 and not any(last)) or (len(names) == width + 1 and not names[-1]):
        return begin - 1, begin, width, None
    raise wrong_widths(line, len(names), [(number, len(cells)) for number, cells in rows[begin:]], mark, where)


def wrong_widths(header: int, names: int, rows: Sequence[tuple[int, int]], mark: str, where: str) -> DataError:
    """Say which rows are not as wide as the header, with what may be the cause and the way out."""
    wrong = [(number, cells) for number, cells in rows if cells != names]
    lines = ", ".join(str(number) for number, _ in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
    have = f"line {lines} has" if len(wrong) == 1 else f"lines {lines} have"
    widths = " or ".join(str(each) for each in sorted({cells for _, cells in wrong})[:5])
    what = f"the header (line {header}) has {counted(names, 'names')}, but {have} {widths} cell{'s' * (widths != '1')}"
    mend = "Look for a separator inside a cell (put such a cell in quotes), and for a row that was cut"
    if mark == "," and all(cells > names for _, cells in wrong):
        mend = (
            "a comma inside numbers cannot be told from one between columns: 1,234 is one cell or two. "
            'Write "1,234" in '
            "quotes, numbers without marks between thousands and with a decimal point, or semicolons between columns"
        )
    return DataError(what, mend, where)
