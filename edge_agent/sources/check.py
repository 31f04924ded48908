"""Everything that is wrong with a table, at once: each fault with its place and how to mend it.

`read_source` stops at the first fault, as a process must. Here a person wants to see them all, so cells are read as
they are, and judged column by column.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.sources.cells import LONGEST_NAME, SPLIT, is_number
from edge_agent.sources.files import csv_lines
from edge_agent.sources.location import locate
from edge_agent.sources.table import table_rows
from schemas.errors import DataError
from schemas.limits import MAX_CATEGORIES, MAX_FEATURES

FEW_ROWS: Final = 30
"""Fewer training rows are worth a warning."""

SHOWN: Final = 5
"""Most places, and categories, that a text names."""

MOSTLY: Final = 0.5
"""Share of numbers from which a column is one of numbers, with odd cells."""

NOTHING: Final = frozenset({"", "na", "n/a", "null", "none", "-", "?", "."})
"""Cells, in lower case, that stand for a missing value."""

_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+([eE][+-]?\d+)?$")


@dataclass(frozen=True)
class Fault:
    """Something about a table.

    Attributes
    ----------
    level : str
        ``error``: an agent refuses the table; ``warning``: worth a look; ``note``: good to know.
    what : str
        What is so, in words.
    mend : str
        What to do; may be empty for a note.
    column : str
        Empty: the whole table.
    lines : tuple of int
        The first places: lines of a CSV file (the header is line 1), else rows, counted from 1.
    count : int
        How many such places there are.
    """

    level: Literal["error", "warning", "note"]
    what: str
    mend: str = ""
    column: str = ""
    lines: tuple[int, ...] = ()
    count: int = 0


@dataclass
class Column:
    """What a column holds.

    Attributes
    ----------
    name : str
    role : str
        ``input``, ``target`` or ``split``.
    kind : str
        ``number``, ``text``, or ``empty``.
    missing : int
        Cells without a value.
    different : int
        How many different values there are.
    low, high, mean : float or None
        Of the finite numbers; None for text.
    common : dict of str to int
        The most frequent texts and how often each occurs.
    """

    name: str
    role: str = "input"
    kind: str = "empty"
    missing: int = 0
    different: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    common: dict[str, int] = field(default_factory=dict)


@dataclass
class Cells:
    """A table as it stands: cells by column, and where each row is.

    Attributes
    ----------
    names : tuple of str
        As written, possibly empty or double.
    columns : list of list
        Cells, as text or as the database's values.
    lines : list of int
        Place of each row.
    place : str
        What a place is: ``line`` or ``row``.
    """

    names: tuple[str, ...]
    columns: list[list[Any]]
    lines: list[int]
    place: str


@dataclass
class Findings:
    """What was found.

    Attributes
    ----------
    source : str
        File, or URL without a password.
    rows : int
        Rows that could be read.
    train : int or None
        Of those, how many train; None without a split column.
    place : str
        What `Fault.lines` count: ``line`` or ``row``.
    columns : list of Column
    faults : list of Fault
        Errors first.
    """

    source: str
    rows: int = 0
    train: int | None = None
    place: str = "line"
    columns: list[Column] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether an agent takes the table: there is no error."""
        return all(fault.level != "error" for fault in self.faults)

    def to_document(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {**asdict(self), "usable": self.usable}


def examine(
    source: Path | str, *, target: str | None = None, labels: bool = False, categories: bool = False
) -> Findings:
    """Look at a table: what it holds, and all that is wrong with it.

    Parameters
    ----------
    source : Path or str
        As in `edge_agent.sources.read_source`.
    target : str or None
        Target column; None: the last.
    labels : bool
        The target is a class label.
    categories : bool
        Columns of text may be inputs.

    Raises
    ------
    UsageError
        The URL names no kind of source that there is. (That a file is missing or unreadable is a finding.)
    """
    place = locate(source)
    found = Findings(place.shown, place="line" if place.kind == "csv" else "row")
    try:
        cells = _of_csv(Path(place.text), found) if place.kind == "csv" else _of_blocks(place)
    except DataError as fault:
        what, _, mend = str(fault).removeprefix(f"{place.shown}: ").removeprefix(f"{place.shown} ").partition(". ")
        found.faults.append(Fault("error", what, mend))
        return found
    found.rows = len(cells.lines)
    _judge_names(cells.names, target, found)
    if _separated(cells.names):
        return found  # every other fault follows from this one
    if not found.rows:
        found.faults.append(Fault("error", "there is a header but no rows", "Collect data first"))
        return _sorted(found)
    label = target if target is not None else next((name for name in reversed(cells.names) if name != SPLIT), "")
    for name, column in zip(cells.names, cells.columns, strict=True):
        role = "target" if name == label else "split" if name == SPLIT else "input"
        found.columns.append(_Judge(cells, found, name, role, labels=labels, categories=categories).judge(column))
    train = found.rows
    if SPLIT in cells.names:
        train = found.train = sum(str(cell).strip() == "train" for cell in cells.columns[cells.names.index(SPLIT)])
    if train < 2:
        found.faults.append(
            Fault("error", f"{_many(train, 'row')} to train on; at least 2 are needed", "Collect more data")
        )
    elif train < FEW_ROWS:
        found.faults.append(Fault("warning", f"only {train} rows to train on", "Collect more data"))
    return _sorted(found)


def _sorted(found: Findings) -> Findings:
    found.faults.sort(key=lambda fault: ("error", "warning", "note").index(fault.level))
    return found


def _of_csv(path: Path, found: Findings) -> Cells:
    names: tuple[str, ...] = ()
    columns: list[list[Any]] = []
    lines: list[int] = []
    ragged: list[tuple[int, int]] = []
    for line, cells in csv_lines(path):
        if not names:
            names = tuple(cell.strip() for cell in cells)
            columns = [[] for _ in names]
            continue
        if len(cells) != len(names):
            ragged.append((line, len(cells)))
            continue
        lines.append(line)
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell.strip())
    if not names:
        raise DataError(f"{path}: the file is empty. Write a header row with the columns' names")
    if ragged and not _separated(names):
        widths = ", ".join(str(width) for width in sorted({width for _, width in ragged})[:SHOWN])
        mend = "Look for a comma inside a cell (put such a cell in quotes), and for a row that was cut"
        if any(_COMMA.search(name) for name in names) or max(width for _, width in ragged) > len(names):
            mend += "; a decimal comma makes two cells of one, too: write a point"
        what = f"{_many(len(ragged), 'row')} with {widths} cells, where the header has {len(names)}"
        found.faults.append(Fault("error", what, mend, "", tuple(line for line, _ in ragged[:SHOWN]), len(ragged)))
    return Cells(names, columns, lines, "line")


def _of_blocks(place: Any) -> Cells:
    with table_rows(place) as (names, blocks):
        columns: list[list[Any]] = [[] for _ in names]
        for block in blocks:
            for column, cells in zip(columns, zip(*block, strict=True), strict=True):
                column.extend(cells)
    return Cells(tuple(names), columns, list(range(1, len(columns[0]) + 1)), "row")


def _judge_names(names: Sequence[str], target: str | None, found: Findings) -> None:
    def error(what: str, mend: str) -> None:
        found.faults.append(Fault("error", what, mend))

    if which := _separated(names):
        error(
            f"the columns are separated by {which}",
            "Save it with commas between columns and points in numbers (in a spreadsheet: English locale)",
        )
        return
    if all(is_number(name) for name in names):
        error("the first row holds numbers only", "Put a header row with the columns' names first")
    found.faults += _each_name(names)
    inputs = [name for name in names if name not in (SPLIT, target)]
    if target is not None and target not in names:
        error(f"there is no column {target!r}", f"Name the target with --target; there are: {', '.join(names[:20])}")
    elif target == SPLIT:
        error(f"the column {SPLIT!r} says which rows train and test; it cannot be the target", "Name another --target")
    elif len(inputs) - (target is None) < 1:
        error("there is no input column beside the target", "Add at least one column")
    if len(inputs) > MAX_FEATURES:
        error(f"{len(inputs)} input columns; at most {MAX_FEATURES} are allowed", "Leave some out")


def _separated(names: Sequence[str]) -> str:
    """Return what a table's columns are separated by, if not by commas."""
    if len(names) == 1:
        for mark, which in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                return which
    return ""


def _each_name(names: Sequence[str]) -> Iterator[Fault]:
    for name, times in Counter(names).items():
        if not name:
            yield Fault("error", f"{times} columns have no name", "Name them in the header row")
        elif times > 1:
            yield Fault("error", f"{times} columns are called {name!r}", "Rename all but one of them")
        elif len(name) > LONGEST_NAME:
            yield Fault("error", f"the name {name[:20]!r}... is longer than {LONGEST_NAME} characters", "Shorten it")


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    # Truth values of a database or a Parquet file are the numbers 0 and 1 to an agent.
    return str(int(cell)) if isinstance(cell, bool | np.bool_) else str(cell).strip()


class _Judge:
    """One column's judge."""

    def __init__(self, cells: Cells, found: Findings, name: str, role: str, *, labels: bool, categories: bool) -> None:
        self._lines = cells.lines
        self._found = found
        self._column = Column(name, role)
        self._labels = labels
        self._categories = categories
        self._takes_texts = False

    def judge(self, cells: list[Any]) -> Column:
        texts = [_text(cell) for cell in cells]
        missing = [row for row, text in enumerate(texts) if text.lower() in NOTHING]
        gone = set(missing)
        numbers = np.full(len(texts), np.nan)
        odd, commas, infinite = [], [], []
        for row, text in enumerate(texts):
            if row in gone:
                continue
            if is_number(text):
                numbers[row] = float(text)
                if not math.isfinite(numbers[row]):
                    infinite.append(row)
            elif _COMMA.match(text):
                commas.append(row)
            else:
                odd.append(row)
        column = self._column
        present = len(texts) - len(missing)
        wordy = column.role == "split" or (column.role == "target" and self._labels)
        numeric = present > 0 and present - len(odd) >= MOSTLY * present and not wordy
        column.kind = "number" if numeric else "text" if present else "empty"
        marks = any(texts[row] for row in missing)
        # Where texts may be inputs, an agent takes such a column for one of texts: hardly what was meant, but no fault.
        self._takes_texts = wordy or (self._categories and column.role == "input" and bool(odd or commas or marks))
        if column.kind == "text":  # a mark such as ? is a text like any other to an agent
            gone = {row for row in missing if not texts[row]}
        column.missing = len(gone)
        column.different = len({text for row, text in enumerate(texts) if row not in gone})
        self._missing(texts, missing)
        if numeric:
            self._numbers(texts, numbers, odd, commas, infinite)
        elif present:
            self._texts(texts, [row for row in range(len(texts)) if row not in gone], odd)
        if present and column.different == 1 and column.role != "split":
            use = "it cannot help the model here" if column.role == "input" else "there is nothing to learn"
            self._say("warning", f"all cells are the same; {use}", "Leave it out, unless other vehicles differ")
        return column

    def _say(self, level: Literal["error", "warning", "note"], what: str, mend: str, rows: Sequence[int] = ()) -> None:
        places = tuple(self._lines[row] for row in rows[:SHOWN])
        self._found.faults.append(Fault(level, what, mend, self._column.name, places, len(rows)))

    def _missing(self, texts: list[str], missing: list[int]) -> None:
        if len(missing) == len(texts):
            taken = self._takes_texts and all(texts)
            self._say("warning" if taken else "error", "no cell has a value", "Remove the column")
            return
        text = self._takes_texts or self._column.kind == "text"
        marked = [row for row in missing if texts[row]] if text else []
        if marked:
            shown = ", ".join(map(repr, sorted({texts[row] for row in marked})))
            what = f"{_many(len(marked), 'cell')} with {shown}, which counts as a text of its own"
            self._say("warning", what, "Remove the rows if it means that the value is missing", marked)
        rows = [row for row in missing if row not in set(marked)]
        if rows:
            written = sorted({texts[row] for row in rows} - {""})
            shown = f" (written as {', '.join(map(repr, written))})" if written else ""
            what = f"{_many(len(rows), 'cell')} without a value, {len(rows) / len(texts):.1%}{shown}"
            self._say("error", what, "Fill them in, or remove the rows", rows)

    def _numbers(
        self, texts: list[str], numbers: NDArray[np.float64], odd: list[int], commas: list[int], infinite: list[int]
    ) -> None:
        level: Literal["error", "warning"] = "warning" if self._takes_texts else "error"
        if commas:
            mixed = "mixed with points" if len(commas) < len(texts) - len(odd) else "throughout"
            self._say(
                level,
                f"{_many(len(commas), 'number')} with a decimal comma, {mixed}, e.g. {texts[commas[0]]!r}",
                "Write decimal points",
                commas,
            )
        if odd:
            shown = ", ".join(repr(text[:40]) for text in dict.fromkeys(texts[row] for row in odd[:SHOWN]))
            self._say(
                level,
                f"{_many(len(odd), 'cell')} with no number in it: {shown}",
                "Correct them, or remove the rows",
                odd,
            )
        if infinite:
            shown = ", ".join(dict.fromkeys(texts[row] for row in infinite[:SHOWN]))
            self._say(
                level,
                f"{_many(len(infinite), 'cell')} with a number that is not finite: {shown}",
                "Correct or remove the rows",
                infinite,
            )
        finite = numbers[np.isfinite(numbers)]
        column = self._column
        if finite.size:
            column.low, column.high = float(finite.min()), float(finite.max())
            column.mean = float(np.clip(finite.mean(), column.low, column.high))
        if column.role == "input" and finite.size > FEW_ROWS and (np.diff(finite) == 1).all():
            self._say("warning", "it counts the rows", "Remove it as an input (a time column serves memory inputs)")

    def _texts(self, texts: list[str], rows: list[int], odd: list[int]) -> None:
        column = self._column
        present = [texts[row] for row in rows]
        column.common = dict(Counter(present).most_common(SHOWN))
        if column.role == "split":
            odd = [row for row in rows if texts[row] not in {"train", "test"}]
            wrong = sorted({texts[row] for row in odd})
            if wrong:
                self._say(
                    "error",
                    f"{', '.join(map(repr, wrong[:SHOWN]))}: neither 'train' nor 'test'",
                    "Correct the cells, or remove the column to train on all rows",
                    odd,
                )
        elif column.role == "target" and not self._labels:
            self._say(
                "error",
                f"the target holds text, e.g. {present[0][:40]!r}",
                "Name a column of numbers with --target, or learn classes: --labels with a classifier such as frbc",
                odd,
            )
        elif column.role == "input" and not self._categories:
            self._say(
                "error",
                f"text, e.g. {present[0][:40]!r}, where numbers are needed",
                "Encode it as numbers or remove it; the schemes fedga and dp_tree take categories (--categories)",
                odd,
            )
        elif column.different > MAX_CATEGORIES:
            self._say(
                "error", f"{column.different} different texts; at most {MAX_CATEGORIES} are allowed", "Group them"
            )
        elif column.role == "input" and column.different > MOSTLY * len(present) and len(present) > FEW_ROWS:
            self._say("warning", f"{column.different} different texts in {len(present)} rows", "Remove names and ids")
