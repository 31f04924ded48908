"""Proposes a plan for a text: its layout, what its columns hold, which tells the time, and what is to decide."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from edge_agent.imports import columns, numbers
from edge_agent.imports.clocks import SPLIT, Ambiguity, TextRows, age, clock_of, gap_of, last, row_times, time_of
from edge_agent.imports.columns import Cells, ColumnVerdict
from edge_agent.imports.dialect import LINES, Dialect, split_unit
from edge_agent.imports.dialect import judge as judge_layout
from edge_agent.imports.marks import words, words_of
from edge_agent.imports.numbers import NumberMarks
from edge_agent.imports.opened import Text, lines_between
from edge_agent.imports.plan import UNDECIDED, ClockPlan, ColumnPlan, Csv, Long, Plan, Time
from glassfleet.data.timeplan import Input
from schemas.errors import DataError

HEAD: Final = 5_000
PART: Final = 1_000
"""Rows that are looked at from the begin, and at each of four places further on; the engine meets all the others."""

FEWEST, CELLS = 500, 1 << 17
"""Of a wide table fewer: about so many cells, and at least so many rows."""

LONGEST_NAME: Final = 200
"""Most characters of a column's name."""

_SIGNALS: Final = words("signal signals signalname sig name path channel variable key sensor parameter pid kanal")
_VALUES: Final = words("value values wert val v reading messwert data")
_PATH: Final = re.compile(r"[A-Za-z_]\w*([./][A-Za-z_]\w*)+")


@dataclass
class Proposal:
    """A plan, and why.

    Attributes
    ----------
    plan : Plan
    why : dict of str to str
        By column: what becomes of it, in words.
    decisions : list of Ambiguity
    """

    plan: Plan
    why: dict[str, str] = field(default_factory=dict)
    decisions: list[Ambiguity] = field(default_factory=list)


class UndecidedError(DataError):
    """The cells do not tell how they are to be read; `proposal` has the plan, with the lines to decide."""

    def __init__(self, proposal: Proposal, where: str) -> None:
        decisions = proposal.decisions
        listed = "; ".join(decision.what for decision in decisions[:5])
        more = f"; and {len(decisions) - 5} more" if len(decisions) > 5 else ""
        lines = "; ".join(decision.plan for decision in decisions[:5])
        mend = f"Decide it in a plan: {lines}"
        named = ", ".join(dict.fromkeys(repr(decision.column) for decision in decisions if decision.column))
        super().__init__(f"{listed}{more}", mend, where, f"a plan has to say how {named or 'it'} is read")
        self.proposal = proposal


def layout(text: Text, plan: Plan | None = None) -> Dialect:
    """Return how a text is laid out: judged, or as a plan says; raises DataError."""
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        lines = list(islice(opened, LINES))
    if plan is None:
        return judge_layout(lines, text.source)
    return judge_layout(lines, text.source, plan.csv.separator, plan.names)


def sample(text: Text, dialect: Dialect) -> TextRows:
    """Return rows of a text: the first ones, and of a large one some further on."""
    most = min(HEAD, max(FEWEST, CELLS // dialect.width))
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        found = sample_of(opened, dialect, most)
    size = text.path.stat().st_size
    if found.head >= most:
        begin, number = 0, 1
        for part in range(1, 5):
            with text.path.open("rb") as raw:
                end = max(begin, size * part // 4 - (1 << 18 if part == 4 else 0))
                number += lines_between(raw, begin, end) + 1
                begin = end
                raw.readline()
                lines = (line.decode("utf-8", "replace") for line in raw)
                _take(csv.reader(lines, delimiter=dialect.separator), most * PART // HEAD, dialect, found, number)
            number -= 1
    return found


def sample_of(lines: Iterable[str], dialect: Dialect, most: int = HEAD) -> TextRows:
    """Return the first rows of lines."""
    found = TextRows(unique(dialect.names), [], [], 0)
    reader = csv.reader(islice(lines, dialect.data - 1, None), delimiter=dialect.separator)
    _take(reader, most, dialect, found, dialect.data)
    found.head = len(found.rows)
    return found


def _take(reader: Iterator[list[str]], most: int, dialect: Dialect, found: TextRows, line: int) -> None:
    width, begins, taken, titles = len(dialect.names), line, 0, list(dialect.names)
    try:
        for cells in reader:
            row = [cell.strip() for cell in cells]
            here, begins = begins, line + getattr(reader, "line_num", 0) if line else 0
            if len(row) > width and not any(row[width:]):
                row = row[:width]
            if len(row) != width or not any(row):
                continue
            if row == titles:
                found.repeated = True
                continue
            if dialect.units and tuple(row) == tuple(dialect.units):
                continue
            found.rows.append(row)
            found.lines.append(here)
            taken += 1
            if taken >= most:
                return
    except csv.Error:
        return  # the engine tells it, with its line


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that all differ: those without one get a number, later ones of a name ``#2`` and so on."""
    found: dict[str, int] = {}
    for index, name in enumerate(names, 1):
        base = name or f"column {index}"
        if len(base) > LONGEST_NAME or not base.isprintable():
            what = f"the name of column {index} ({base[:40]!a}) has control characters, or more than {LONGEST_NAME}"
            raise DataError(what, "Correct it in the header")
        each, count = base, found.get(base, 1)
        while each in found:
            count += 1
            each = f"{base}#{count}"
        found[each], found[base] = 1, count
    return tuple(found)


def propose_for(given: TextRows, dialect: Dialect, target: str, where: str) -> Proposal:
    """Return a plan for rows like these.

    Parameters
    ----------
    given : TextRows
    dialect : Dialect
    target : str
        The column to forecast, by its name in the file or in the table; empty: the last one with values.
    where : str
        For messages.

    Raises
    ------
    DataError
        There are no rows, or no such target.
    """
    if not given.rows:
        mend = "Collect data first, leave this vehicle out, or part cells by one separator each"
        raise DataError("there are columns but no rows with as many cells", mend, where)
    long = long_of(given)
    if long is not None:
        return _propose_long(given, dialect, long, target)
    clock, decisions = clock_of(given, dialect)
    shown = dict(zip(given.names, _shown_names(given.names), strict=True))
    label = _target(given, shown, clock, target, where)
    verdicts = _verdicts(given, dialect, clock, label, shown)
    csv_marks, verdicts = _settle(verdicts)
    if clock is not None and clock.source in verdicts:
        verdict = verdicts.pop(clock.source)
        clock = clock.model_copy(update={"decimal": verdict.column.decimal})
        if verdict.decision:
            decisions.append(Ambiguity(clock.source, verdict.decision, f"clock: {verdict.lines}"))
    kept = {name: _named(verdict.column, name, shown[name][0]) for name, verdict in verdicts.items()}
    wanted = shown[label][0]
    plan = Plan(
        target=wanted,
        csv=_csv(dialect, csv_marks, verdicts),
        clock=clock,
        columns=last({shown[name][0]: column for name, column in kept.items()}, wanted),
        time=time_of(given, clock, kept, wanted, shown=shown, marks=csv_marks),
    )
    return _proposal(plan, verdicts, {name: bare for name, (bare, _) in shown.items()}, decisions)


def _csv(dialect: Dialect, marks: NumberMarks, verdicts: dict[str, ColumnVerdict]) -> Csv:
    missing = sorted(set().union(*(verdict.marks for verdict in verdicts.values())))
    return Csv(separator=dialect.separator, decimal=marks.decimal, thousands=marks.thousands, missing=tuple(missing))


def _proposal(
    plan: Plan, verdicts: dict[str, ColumnVerdict], shown: dict[str, str], decisions: list[Ambiguity]
) -> Proposal:
    """Return a plan with the reasons and decisions of its columns, by the names that these are shown with."""
    open_ones = [
        Ambiguity(name, verdict.decision, f"columns.{shown[name]}: {verdict.lines}")
        for name, verdict in verdicts.items()
        if verdict.decision
    ]
    return Proposal(plan, {shown[name]: verdict.why for name, verdict in verdicts.items()}, [*decisions, *open_ones])


def _verdicts(
    given: TextRows, dialect: Dialect, clock: ClockPlan | None, label: str, shown: dict[str, tuple[str, str]]
) -> dict[str, ColumnVerdict]:
    """Judge each column by its own cells."""
    verdicts: dict[str, ColumnVerdict] = {}
    for index, name in enumerate(given.names):
        if clock is not None and name in (clock.source, clock.of_day):
            continue
        unit = shown[name][1] or (dialect.units[index] if index < len(dialect.units) else "")
        cells = Cells(
            name, given.cells(name), given.lines, "" if unit in ("-", "--", "1", "#") else unit, name == label
        )
        if name == SPLIT:
            verdicts[name] = ColumnVerdict(ColumnPlan(take="text"), "which rows train, and which test")
        else:
            verdicts[name] = columns.judge(cells, dialect.separator)
        if not dialect.names[index]:
            verdicts[name] = ColumnVerdict(ColumnPlan(take="nothing"), "left out: it has no name")
    _twice(given, label, verdicts)
    if clock is not None and clock.form == "number":  # its marks prove those of the others, and they its
        times_of = Cells(clock.source, given.cells(clock.source), given.lines, is_time=True)
        verdicts[clock.source] = columns.judge(times_of, dialect.separator)
    return verdicts


def _named(column: ColumnPlan, name: str, shown: str) -> ColumnPlan:
    return column.model_copy(update={"source": name if name != shown else ""})


def _shown_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each name without the unit in brackets, and that unit; names that would be alike stay as they are."""
    split = [split_unit(name) for name in names]
    bare = Counter(name for name, _ in split)
    return [
        (name, unit) if bare[name] == 1 else (whole, unit) for whole, (name, unit) in zip(names, split, strict=True)
    ]


def _target(
    given: TextRows, shown: dict[str, tuple[str, str]], clock: ClockPlan | None, target: str, where: str
) -> str:
    if target:
        found = [name for name in given.names if target in (name, shown[name][0])]
        if not found:
            listed = ", ".join(name for name, _ in list(shown.values())[:20])
            raise DataError(
                f"there is no column {target!r}", f"The columns are: {listed}. Name the target with --target", where
            )
        return found[0]
    times_of = () if clock is None else (clock.source, clock.of_day)
    usable = [name for name in given.names if name not in (*times_of, SPLIT)]
    filled = [name for name in usable if any(given.cells(name))]
    if not usable:
        raise DataError("there is no column beside the time", "Inputs and a target are needed", where)
    return (filled or usable)[-1]


def _twice(given: TextRows, label: str, verdicts: dict[str, ColumnVerdict]) -> None:
    """Leave columns out that say the same as the target; one name for two columns that differ is a decision."""
    cells = given.cells(label)
    for name in verdicts:
        if name != label and SPLIT not in (name, label) and given.cells(name) == cells and len(set(cells)) > 1:
            verdicts[name] = ColumnVerdict(
                ColumnPlan(take="nothing"), f"left out: it is the target {label!r} once more"
            )
    for name in list(verdicts):
        base, mark, number = name.rpartition("#")
        if not mark or not number.isdigit() or base not in verdicts:
            continue
        one, two = given.cells(base), given.cells(name)
        if one == two:
            verdicts[name] = ColumnVerdict(ColumnPlan(take="nothing"), f"left out: it is {base!r} once more")
            continue
        at = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        verdicts[name] = replace(
            verdicts[name], column=columns.replace_take(verdicts[name].column, UNDECIDED),
            decision=f"{base}: two columns have this name, {given.places[base] + 1} and {given.places[name] + 1}; "
            f"line {given.lines[at]} has {one[at]!r} and {two[at]!r}. One of them, or two inputs",
            lines='take = "nothing" or "number", here or in the line of the other; or rename one in the header',
        )  # fmt: skip


def _settle(verdicts: dict[str, ColumnVerdict]) -> tuple[NumberMarks, dict[str, ColumnVerdict]]:
    """Choose the file's marks in numbers, and decide by them what a column alone does not tell, where certain."""
    decimal = set().union(*(verdict.proofs[0] for verdict in verdicts.values()))
    thousands = set().union(*(verdict.proofs[1] for verdict in verdicts.values()))
    both = decimal & thousands if len(decimal) < 2 else decimal  # a file that mixes decimal marks proves nothing
    counts: dict[NumberMarks, int] = {}
    for verdict in verdicts.values():
        if len(verdict.readings) == 1 and any(verdict.proofs):
            counts[verdict.readings[0]] = counts.get(verdict.readings[0], 0) + 1
    left = {
        name: numbers.settled(verdict.readings, decimal - both, thousands - both)
        for name, verdict in verdicts.items()
        if len(verdict.readings) > 1
    }
    for readings in left.values():
        if len(readings) == 1:
            counts[readings[0]] = counts.get(readings[0], 0) + 1
    common = max(
        sorted(counts), key=lambda reading: (counts[reading], bool(reading.thousands)), default=NumberMarks(".")
    )
    between = next((each.thousands for each in counts if each.decimal == common.decimal and each.thousands), "")
    common = NumberMarks(common.decimal, common.thousands or between)
    settled = {}
    for name, verdict in verdicts.items():
        readings = left.get(name, verdict.readings)
        if len(readings) > 1:
            one, two = readings[:2]
            number = verdict.example
            what = f"{name}: {number!r} is {one.value(number):.10g} or {two.value(number):.10g}"
            settled[name] = replace(
                verdict, column=verdict.column.model_copy(update={"decimal": UNDECIDED}), why="numbers, to be decided",
                decision=what,
                lines="; or ".join(f"{each.words()} ({each.value(number):.10g})" for each in (one, two)),
            )  # fmt: skip
            continue
        reading = readings[0] if readings else common
        own = {}
        if verdict.proofs[0] or name in left:
            own["decimal"] = reading.decimal if reading.decimal != common.decimal else None
        if (verdict.proofs[0] or verdict.proofs[1] or name in left) and reading.thousands != common.thousands:
            # Without marks between thousands here none may come: 1.234 beside 0.998 is no thousand.
            own["thousands"] = reading.thousands if own.get("decimal") or reading.thousands else None
        settled[name] = replace(verdict, column=verdict.column.model_copy(update=own))
    return common, settled


def long_of(given: TextRows) -> Long | None:
    """Return the columns of name and value where each row has one signal."""
    if not 2 <= len(given.names) <= 6:
        return None
    by_word = {name: set(words_of(name)) for name in given.names}
    signal = next((name for name, words in by_word.items() if words & _SIGNALS), None) or next(
        (name for name in given.names if all(map(_PATH.fullmatch, filter(None, given.cells(name))))), None
    )
    value = next((name for name, words in by_word.items() if words & _VALUES and name != signal), None)
    if signal is None or value is None:
        return None
    cells = [cell for cell in given.cells(signal) if cell]
    several = len(set(cells)) > 1 and len(set(cells)) <= max(2, len(cells) // 2)
    return Long(signal=signal, value=value) if several and not any(numbers.body(cell) for cell in cells) else None


def _propose_long(given: TextRows, dialect: Dialect, long: Long, target: str) -> Proposal:
    """Return a plan for a table with one signal a row: the cells of each signal are judged like a column."""
    clock, decisions = clock_of(given, dialect)
    if clock is None:
        raise DataError(
            f"one signal a row ({long.signal!r}), but no column tells the time", "Write one column for each signal"
        )
    at, of = given.places[long.signal], given.places[long.value]
    signals = list(dict.fromkeys(row[at] for row in given.rows if row[at]))
    names = unique(signals)
    rows = {
        name: [(row[of], line) for row, line in zip(given.rows, given.lines, strict=True) if row[at] == name]
        for name in signals
    }
    label = target or signals[-1]
    if label not in signals:
        listed = ", ".join(signals[:20])
        raise DataError(f"there is no signal {label!r}", f"The signals are: {listed}. Name the target with --target")
    verdicts = {
        name: columns.judge(
            Cells(name, [cell for cell, _ in rows[name]], [line for _, line in rows[name]], "", name == label, True),
            dialect.separator,
        )
        for name in names
    }
    marks, verdicts = _settle(verdicts)
    of_rows = row_times(given, clock, marks) or [0.0] * given.head
    gap = gap_of(of_rows)
    used = [name for name in names if verdicts[name].column.take not in ("nothing", UNDECIDED) or name == label]
    own: dict[str, list[float]] = {name: [] for name in names}
    for when, row in zip(of_rows, given.rows, strict=False):
        if row[at] in own:
            own[row[at]].append(when)
    inputs = {name: Input(signal=name, seconds=age(own[name], gap)) for name in used}
    time = Time(column=split_unit(clock.source)[0], rows=label, gap=gap, inputs=last(inputs, label))
    kept = last({name: verdict.column for name, verdict in verdicts.items()}, label)
    plan = Plan(target=label, csv=_csv(dialect, marks, verdicts), long=long, clock=clock, time=time, columns=kept)
    return _proposal(plan, verdicts, {name: name for name in verdicts}, decisions)
