"""What is wrong with a table's names and with one column's cells, and how to mend it."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.sources.cells import LONGEST_NAME, SPLIT, is_number, separated
from edge_agent.sources.findings import Cells, Column, Fault, Findings
from edge_agent.sources.fit import TIMES
from glassfleet.catalogue import names_where
from glassfleet.data.cells import NOTHING, truth_of
from glassfleet.traits import is_label_scheme, takes_categories, takes_missing
from schemas.limits import MAX_CATEGORIES, MAX_FEATURES

FEW_ROWS: Final = 30
"""Fewer training rows are worth a warning."""

SHOWN: Final = 5
"""Most places, and categories, that a text names."""

LONGEST_CELL: Final = 40
"""Most characters of a cell that a text shows."""

MOSTLY: Final = 0.5
"""Share of numbers from which a column is one of numbers, with odd cells."""

DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+(\.\d{3})*,\d+([eE][+-]?\d+)?$")
THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$")
"""Numbers with commas; 1,000 may be either."""


_DATE: Final = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}\b")
"""Dates as people write them, beside those of ISO 8601."""

_DRESSED: Final = re.compile(r"[+-]?[€$£]? ?\d[\d.,'\u2019\s]*(%|[^\W\d_°]{0,5}|°[CF]?)(/[^\W\d_]{1,3})?$")
"""A number with a unit, a currency, or marks between thousands: 80 %, 12 km/h, 1'000."""

_EXACT: Final = float(1 << 53)
"""Up to it a float holds every whole number."""

_WHOLE: Final = re.compile(r"[+-]?\d+$")


def judge_names(names: Sequence[str], target: str | None, findings: Findings) -> None:
    """Add to `findings` what is wrong with the columns' names, and with the target's."""

    def error(what: str, mend: str) -> None:
        findings.faults.append(Fault("error", what, mend))

    if which := separated(names):
        error(
            f"the columns are separated by {which}",
            "Read it with a plan (glassfleet data prepare FILE), or save it with commas between columns and points in "
            "numbers (in a spreadsheet: English locale)",
        )
        return
    if all(is_number(name) for name in names):
        error("the first row holds numbers only", "Put a header row with the columns' names first")
    findings.faults += _each_name(names)
    inputs = [name for name in names if name not in (SPLIT, target)]
    if len(names) == 1 and findings.faults:
        return  # no row is as long as the first: hardly the columns' names
    if target is not None and target not in names:
        error(f"there is no column {target!r}", f"Name the target with --target; there are: {', '.join(names[:20])}")
    elif target == SPLIT:
        error(f"the column {SPLIT!r} says which rows train and test; it cannot be the target", "Name another --target")
    elif len(inputs) - (target is None) < 1:
        error("there is no input column beside the target", "Add at least one column")
    if len(inputs) > MAX_FEATURES:
        error(f"{len(inputs)} input columns; at most {MAX_FEATURES} are allowed", "Leave some out")


def _each_name(names: Sequence[str]) -> Iterator[Fault]:
    for name, times in Counter(names).items():
        if not name:
            which = ", ".join(str(index + 1) for index, each in enumerate(names) if not each)
            what = f"column {which} has no name" if times == 1 else f"columns {which} have no name"
            yield Fault("error", what, "Name it in the header row, or remove it" if times == 1 else
                        "Name them in the header row, or remove them (a spreadsheet adds empty ones)")  # fmt: skip
        elif times > 1:
            yield Fault("error", f"{times} columns are called {name!r}", "Rename all but one of them")
        elif len(name) > LONGEST_NAME:
            yield Fault("error", f"the name {name[:20]!r}... is longer than {LONGEST_NAME} characters", "Shorten it")


def many(count: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def _text(cell: Any, *, is_label: bool) -> str:
    if cell is None:
        return ""
    # Truth values are the numbers 0 and 1 to an agent, and words where they are classes.
    return str(int(cell)) if isinstance(cell, bool | np.bool_) and not is_label else str(cell).strip()


def _about_commas(commas: list[str], texts: list[str]) -> tuple[str, str]:
    """Return what the commas in a column's numbers are, as far as all of its cells tell, and how to mend them."""
    decimal = [text for text in commas if not THOUSANDS.match(text)]
    thousands = [text for text in commas if not DECIMAL_COMMA.match(text)]
    numbers = many(len(commas), "number")
    points = any("." in text and is_number(text) for text in texts)
    if decimal and thousands:
        what = (
            f"{numbers} with commas of two kinds, e.g. {decimal[0][:LONGEST_CELL]!r}, {thousands[0][:LONGEST_CELL]!r}"
        )
        return what, "Write a point for a decimal comma, and nothing between thousands"
    shown = f"e.g. {commas[0][:LONGEST_CELL]!r}"
    if decimal:
        mixed = "mixed with points" if points else "throughout"
        return f"{numbers} with a decimal comma, {mixed}, {shown}", "Write decimal points"
    if thousands or points:
        return f"{numbers} with commas between thousands, {shown}", f"Write them without: {commas[0].replace(',', '')}"
    number = commas[0].replace(",", "")
    what = f"{numbers} with a comma that may be a decimal comma or part thousands, {shown}"
    return what, f"Write {number} if it parts thousands, {commas[0].replace(',', '.')} if it is a decimal comma"


def _how_to_mend_text(text: str) -> str:
    if _is_time(text):
        return "Write a time as a number of seconds, or remove it"
    if _DRESSED.match(text):
        return "Write the number alone: no unit, no %, nothing between thousands"
    takers = ", ".join(names_where(takes_categories))
    return f"Encode it as numbers or remove it; some schemes take categories (--categories): {takers}"


def _is_time(text: str) -> bool:
    if _DATE.match(text):
        return True
    for kind in (dt.datetime, dt.time):
        try:
            kind.fromisoformat(text)
        except ValueError:
            continue
        return True
    return False


class Judge:
    """One column's judge."""

    def __init__(
        self, cells: Cells, findings: Findings, name: str, role: str, *, labels: bool, categories: bool, missing: bool
    ) -> None:
        self._lines = cells.lines
        self._findings = findings
        self._column = Column(name, role)
        self._labels = labels
        self._categories = categories
        self._may_be_empty = missing and role == "input"
        self._takes_texts = False

    def judge(self, cells: list[Any]) -> Column:
        """Return what the column holds; what is wrong with it is added to the findings."""
        is_label = self._labels and self._column.role == "target"
        texts = [_text(cell, is_label=is_label) for cell in cells]
        marks_of = NOTHING | {"nan"} if self._may_be_empty else NOTHING
        missing = [row for row, text in enumerate(texts) if text.lower() in marks_of]
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
            elif DECIMAL_COMMA.match(text) or THOUSANDS.match(text):
                commas.append(row)
            else:
                odd.append(row)
        column = self._column
        present = len(texts) - len(missing)
        odd = self._yes_and_no(texts, numbers, odd, present)
        wordy = column.role == "split" or is_label
        numeric = present > 0 and present - len(odd) >= MOSTLY * present and not wordy
        column.kind = "number" if numeric else "text" if present else "empty"
        marks = any(texts[row] for row in missing) and not self._may_be_empty
        # Where texts may be inputs, an agent takes such a column for one of texts: hardly what was meant, but no fault.
        self._takes_texts = wordy or (self._categories and column.role == "input" and bool(odd or commas or marks))
        if column.kind == "text" and not self._may_be_empty:  # a mark such as ? is a text like any other to an agent
            gone = {row for row in missing if not texts[row]}
        column.missing = len(gone)
        column.different = len({text for row, text in enumerate(texts) if row not in gone})
        self._missing(texts, missing)
        if numeric:
            self._numbers(texts, numbers, odd, commas, infinite)
        elif present:
            self._texts(texts, [row for row in range(len(texts)) if row not in gone], odd)
        if present and column.different == 1 and column.role != "split":
            is_input = column.role == "input"
            use = "it cannot help the model here" if is_input else "there is nothing to learn"
            way = "Leave it out" if is_input else "Name another column with --target"
            self._say("warning", f"all cells are the same; {use}", f"{way}, unless other vehicles differ")
        return column

    def _yes_and_no(self, texts: list[str], numbers: NDArray[np.float64], odd: list[int], present: int) -> list[int]:
        """Read a column of yes and no as 1 and 0; return the cells that are no numbers then."""
        truth = truth_of(texts[row] for row in odd)
        if truth is None or len(odd) < present or self._categories or self._column.role != "input":
            return odd
        for row in odd:
            numbers[row] = truth[texts[row]]
        self._say("note", ", ".join(f"{text} is {value:.0f}" for text, value in sorted(truth.items())), "")
        return []

    def _say(self, level: Literal["error", "warning", "note"], what: str, mend: str, rows: Sequence[int] = ()) -> None:
        places = tuple(self._lines[row] for row in rows[:SHOWN])
        self._findings.faults.append(Fault(level, what, mend, self._column.name, places, len(rows)))

    def _missing(self, texts: list[str], missing: list[int]) -> None:
        if len(missing) == len(texts):
            taken = self._may_be_empty or (self._takes_texts and all(texts))
            self._say("warning" if taken else "error", "no cell has a value", "Remove it, unless others have values")
            return
        text = self._takes_texts or self._column.kind == "text"
        marked = [row for row in missing if texts[row]] if text and not self._may_be_empty else []
        if marked:
            shown = ", ".join(map(repr, sorted({texts[row] for row in marked})))
            what = f"{many(len(marked), 'cell')} with {shown}, which counts as a text of its own"
            self._say("warning", what, "Remove the rows if it means that the value is missing", marked)
        rows = [row for row in missing if row not in set(marked)]
        if rows:
            written = sorted({texts[row] for row in rows} - {""})
            shown = f" (written as {', '.join(map(repr, written))})" if written else ""
            what = f"{many(len(rows), 'cell')} without a value, {len(rows) / len(texts):.1%}{shown}"
            if self._may_be_empty:
                self._say("note", what, "", rows)
            else:
                way = "Fill them in, or remove the rows"
                if self._column.role == "input":
                    way += f"; or take them as missing (--missing), for {', '.join(names_where(takes_missing))}"
                self._say("error", what, way, rows)

    def _numbers(
        self, texts: list[str], numbers: NDArray[np.float64], odd: list[int], commas: list[int], infinite: list[int]
    ) -> None:
        level: Literal["error", "warning"] = "warning" if self._takes_texts else "error"
        if commas:
            self._say(level, *_about_commas([texts[row] for row in commas], texts), commas)
        if odd:
            shown = ", ".join(repr(text[:LONGEST_CELL]) for text in dict.fromkeys(texts[row] for row in odd[:SHOWN]))
            self._say(
                level,
                f"{many(len(odd), 'cell')} that {'is' if len(odd) == 1 else 'are'} no number: {shown}",
                "Correct them, or remove the rows",
                odd,
            )
        if infinite:
            shown = ", ".join(dict.fromkeys(texts[row][:LONGEST_CELL] for row in infinite[:SHOWN]))
            self._say(
                level,
                f"{many(len(infinite), 'cell')} with a number that is not finite: {shown}",
                "Correct or remove the rows",
                infinite,
            )
        finite = numbers[np.isfinite(numbers)]
        column = self._column
        if finite.size:
            column.low, column.high = float(finite.min()), float(finite.max())
            # In parts: the sum of large numbers is beyond a float.
            column.mean = float(np.clip((finite / finite.size).sum(), column.low, column.high))
        self._long_numbers(texts, numbers)
        if column.role == "input" and finite.size > FEW_ROWS:
            self._counters(finite)

    def _long_numbers(self, texts: list[str], numbers: NDArray[np.float64]) -> None:
        """Tell of whole numbers that a float cannot hold: two of them may become one."""
        beyond = np.flatnonzero(np.isfinite(numbers) & (np.abs(numbers) > _EXACT))
        lost = [int(row) for row in beyond if _WHOLE.match(texts[row]) and int(texts[row]) != int(numbers[row])]
        if lost:
            text = texts[lost[0]]
            what = f"{many(len(lost), 'number')} with more digits than are kept, e.g. {text[:LONGEST_CELL]}"
            if len(text) <= LONGEST_CELL:
                what += f" becomes {numbers[lost[0]]:.0f}"
            self._say("warning", what, "Remove it if it is an id; of a time, subtract the first", lost)

    def _counters(self, finite: NDArray[np.float64]) -> None:
        """Tell of a column that counts rows, or numbers them: a model would learn which row it is."""
        with np.errstate(over="ignore"):
            steps = np.diff(finite)
        whole = (finite == np.rint(finite)).all() and self._column.name.lower() not in TIMES
        what = ""
        if (steps == 1).all():
            what = "it counts the rows"
        elif whole and ((steps > 0).all() or (steps < 0).all()):
            what = f"whole numbers that {'rise' if steps[0] > 0 else 'fall'} from row to row, like an id or a time"
        if what:
            self._say("warning", what, "Remove it as an input (a time column serves lagged features)")

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
                f"the target holds text, e.g. {present[0][:LONGEST_CELL]!r}",
                "Name a column of numbers with --target, or learn classes: --labels with one of "
                + ", ".join(names_where(is_label_scheme)),
                odd,
            )
        elif column.role == "input" and not self._categories:
            self._say(
                "error",
                f"text, e.g. {present[0][:LONGEST_CELL]!r}, where numbers are needed",
                _how_to_mend_text(present[0]),
                odd,
            )
        elif column.different > MAX_CATEGORIES:
            self._say(
                "error", f"{column.different} different texts; at most {MAX_CATEGORIES} are allowed", "Group them"
            )
        elif column.role == "input" and column.different > MOSTLY * len(present) and len(present) > FEW_ROWS:
            self._say("warning", f"{column.different} different texts in {len(present)} rows", "Remove names and ids")
