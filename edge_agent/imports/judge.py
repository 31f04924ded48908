"""Proposes a plan for a text: how it is laid out, what its columns hold, which tells the time, and what is to decide."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final

from edge_agent.imports import columns, numbers, times
from edge_agent.imports.columns import Cells, Verdict
from edge_agent.imports.dialect import LINES, Dialect, split_unit
from edge_agent.imports.dialect import judge as judge_dialect
from edge_agent.imports.numbers import Reading
from edge_agent.imports.opened import Text
from edge_agent.imports.plan import UNDECIDED, Clock, Column, Csv, Long, Plan, Time
from glassfleet.data.timeplan import Input
from schemas.errors import DataError

HEAD: Final = 5_000
PART: Final = 1_000
"""Rows that are looked at from the begin, and at each of four places further on; the engine meets all the others."""

SPLIT: Final = "split"
LONGEST_NAME: Final = 200
_OWN: Final = 0.4
"""Share of empty cells from which a signal has times of its own."""

_SIGNALS: Final = frozenset(["signal", "signals", "signalname", "name", "path", "channel", "variable", "key", "sensor", "parameter", "pid", "kanal"])
_VALUES: Final = frozenset(["value", "values", "wert", "val", "reading", "messwert", "data"])


@dataclass
class Sample:
    """Some of a text's rows."""

    names: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]
    head: int
    repeated: bool = False

    def cells(self, index: int) -> list[str]:
        """Return the cells of a column."""
        return [row[index] for row in self.rows]


@dataclass(frozen=True)
class Decision:
    """Something that cells do not tell: what it is, with its readings, and the line of the plan."""

    column: str
    what: str
    plan: str


@dataclass
class Proposal:
    """A plan, and why.

    Attributes
    ----------
    plan : Plan
    why : dict of str to str
        By column: what becomes of it, in words.
    decisions : list of Decision
    """

    plan: Plan
    why: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)


def layout(text: Text, plan: Plan | None = None) -> Dialect:
    """Return how a text is laid out: judged, or as a plan says; raises DataError."""
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        lines = list(islice(opened, LINES))
    if plan is None:
        return judge_dialect(lines, text.source)
    return judge_dialect(lines, text.source, plan.csv.separator, plan.names)


def sample(text: Text, dialect: Dialect) -> Sample:
    """Return rows of a text: the first ones, and of a large one some further on."""
    names = unique(dialect.names)
    found = Sample(names, [], [], 0)
    titles = list(dialect.names)
    with text.path.open(encoding="utf-8-sig", newline="", errors="replace") as opened:
        reader = csv.reader(islice(opened, dialect.data - 1, None), delimiter=dialect.separator)
        _take(reader, HEAD, dialect, titles, found, dialect.data)
    found.head = len(found.rows)
    size = text.path.stat().st_size
    if found.head >= HEAD:
        for part in range(1, 5):
            with text.path.open("rb") as raw:
                raw.seek(max(0, size * part // 4 - (1 << 18 if part == 4 else 0)))
                raw.readline()
                lines = (line.decode("utf-8", "replace") for line in raw)
                _take(csv.reader(lines, delimiter=dialect.separator), PART, dialect, titles, found, 0)
    return found


def sample_of(lines: Sequence[str], dialect: Dialect) -> Sample:
    """Return the rows of lines."""
    found = Sample(unique(dialect.names), [], [], 0)
    _take(csv.reader(lines[dialect.data - 1 :], delimiter=dialect.separator), HEAD, dialect, list(dialect.names), found, dialect.data)
    found.head = len(found.rows)
    return found


def _take(
    reader: Iterator[list[str]], most: int, dialect: Dialect, titles: list[str], found: Sample, line: int
) -> None:
    width, begins, taken = len(dialect.names), line, 0
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
    found: list[str] = []
    for index, name in enumerate(names, 1):
        base = name or f"column {index}"
        if len(base) > LONGEST_NAME or not base.isprintable():
            what = f"the name of column {index} ({base[:40]!a}) has control characters, or more than {LONGEST_NAME}"
            raise DataError(what, "Correct it in the header")
        count, each = 1, base
        while each in found:
            count += 1
            each = f"{base}#{count}"
        found.append(each)
    return tuple(found)


def propose_for(given: Sample, dialect: Dialect, target: str, where: str) -> Proposal:
    """Return a plan for rows like these.

    Parameters
    ----------
    given : Sample
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
        raise DataError("there are columns but no rows", "Collect data first, or leave this vehicle out", where)
    long = _long(given)
    if long is not None:
        return _propose_long(given, dialect, long, target)
    clock, decisions = clock_of(given, dialect)
    shown = dict(zip(given.names, _shown_names(given.names), strict=True))
    label = _target(given, shown, clock, target, where)
    verdicts: dict[str, Verdict] = {}
    for index, name in enumerate(given.names):
        if clock is not None and name in (clock.source, clock.of_day):
            continue
        unit = shown[name][1] or (dialect.units[index] if index < len(dialect.units) else "")
        cells = Cells(name, given.cells(index), given.lines, "" if unit in ("-", "--", "1", "#") else unit, name == label)
        if name == SPLIT:
            verdicts[name] = Verdict(Column(take="text"), "which rows train, and which test")
        else:
            verdicts[name] = columns.judge(cells, dialect.separator)
        if not dialect.names[index]:
            verdicts[name] = Verdict(Column(take="nothing"), "left out: it has no name")
    _twice(given, label, verdicts)
    csv_marks, verdicts = _settle(verdicts)
    kept = {name: _named(verdict.column, name, shown[name][0]) for name, verdict in verdicts.items()}
    marks = sorted(set().union(*(verdict.marks for verdict in verdicts.values())))
    layout = Csv(separator=dialect.separator, decimal=csv_marks.decimal, thousands=csv_marks.thousands, missing=tuple(marks))
    renamed = {shown[name][0]: column for name, column in kept.items()}
    wanted = shown[label][0]
    proposal = Proposal(
        Plan(
            target=wanted, csv=layout, clock=clock, columns=_last(renamed, wanted),
            time=_time(given, clock, kept, wanted, shown, Reading(layout.decimal, layout.thousands)),
        ),
        {shown[name][0]: verdict.why for name, verdict in verdicts.items()},
        decisions,
    )
    for name, verdict in verdicts.items():
        if verdict.decision:
            proposal.decisions.append(Decision(name, verdict.decision, f"columns.{shown[name][0]}: {verdict.lines}"))
    return proposal


def _named(column: Column, name: str, shown: str) -> Column:
    return column.model_copy(update={"source": name if name != shown else ""})


def _last(given: dict[str, Column], target: str) -> dict[str, Column]:
    return {**{name: column for name, column in given.items() if name != target}, target: given[target]}


def _shown_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each name without the unit in brackets, and that unit; where two would be alike, all of them as they are."""
    split = [split_unit(name) for name in names]
    bare = [name for name, _ in split]
    return [(name, unit) if bare.count(name) == 1 else (whole, unit) for whole, (name, unit) in zip(names, split, strict=True)]


def _target(given: Sample, shown: dict[str, tuple[str, str]], clock: Clock | None, target: str, where: str) -> str:
    if target:
        found = [name for name in given.names if target in (name, shown[name][0])]
        if not found:
            listed = ", ".join(name for name, _ in list(shown.values())[:20])
            raise DataError(f"there is no column {target!r}", f"The columns are: {listed}. Name the target with --target", where)
        return found[0]
    times_of = () if clock is None else (clock.source, clock.of_day)
    usable = [name for name in given.names if name not in (*times_of, SPLIT)]
    filled = [name for name in usable if any(given.cells(given.names.index(name)))]
    if not usable:
        raise DataError("there is no column beside the time", "Inputs and a target are needed", where)
    return (filled or usable)[-1]


def _twice(given: Sample, label: str, verdicts: dict[str, Verdict]) -> None:
    """Leave columns out that say the same as the target; one name for two columns that differ is a decision."""
    cells = given.cells(given.names.index(label))
    for name in verdicts:
        if name != label and SPLIT not in (name, label) and given.cells(given.names.index(name)) == cells and len(set(cells)) > 1:
            verdicts[name] = Verdict(Column(take="nothing"), f"left out: it is the target {label!r} once more")
    for name in list(verdicts):
        base, mark, number = name.rpartition("#")
        if not mark or not number.isdigit() or base not in verdicts or name == label:
            continue
        one, two = given.cells(given.names.index(base)), given.cells(given.names.index(name))
        if one == two:
            verdicts[name] = Verdict(Column(take="nothing"), f"left out: it is {base!r} once more")
            continue
        at = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        verdicts[name] = replace(
            verdicts[name], column=columns.replace_take(verdicts[name].column, UNDECIDED),
            decision=f"{base}: two columns have this name, {given.names.index(base) + 1} and {given.names.index(name) + 1}; "
            f"line {given.lines[at]} has {one[at]!r} and {two[at]!r}. Which one is it, or are they two inputs?",
            lines='take = "nothing" or "number", here or in the line of the other; or rename one in the header',
        )  # fmt: skip


def _settle(verdicts: dict[str, Verdict]) -> tuple[Reading, dict[str, Verdict]]:
    """Choose the file's marks in numbers, and decide by them what a column alone does not tell, as far as is certain."""
    decimal = set().union(*(verdict.proofs[0] for verdict in verdicts.values()))
    thousands = set().union(*(verdict.proofs[1] for verdict in verdicts.values()))
    both = decimal & thousands
    counts: dict[Reading, int] = {}
    for verdict in verdicts.values():
        if len(verdict.readings) == 1 and any(verdict.proofs):
            counts[verdict.readings[0]] = counts.get(verdict.readings[0], 0) + 1
    left = {
        name: numbers.settled(verdict.readings, decimal - both, thousands - both)
        for name, verdict in verdicts.items()
        if len(verdict.readings) > 1
    }
    for name, readings in left.items():
        if len(readings) == 1:
            counts[readings[0]] = counts.get(readings[0], 0) + 1
    common = max(sorted(counts), key=lambda reading: (counts[reading], bool(reading.thousands)), default=Reading("."))
    between = next((each.thousands for each in counts if each.decimal == common.decimal and each.thousands), "")
    common = Reading(common.decimal, common.thousands or between)
    settled = {}
    for name, verdict in verdicts.items():
        readings = left.get(name, verdict.readings)
        if len(readings) > 1:
            one, two = readings[:2]
            number = verdict.example
            what = f"{name}: {number!r} is {one.value(number):.10g} or {two.value(number):.10g}"
            settled[name] = replace(
                verdict, column=verdict.column.model_copy(update={"decimal": UNDECIDED}), why="numbers, to be decided",
                decision=what, lines=f"{one.words()} ({one.value(number):.10g}); or {two.words()} ({two.value(number):.10g})",
            )  # fmt: skip
            continue
        told = readings[0] if readings else common
        own = {}
        if verdict.proofs[0] or name in left:
            own["decimal"] = told.decimal if told.decimal != common.decimal else None
        if (verdict.proofs[0] or verdict.proofs[1] or name in left) and told.thousands != common.thousands:
            # Without marks between thousands here none may come: 1.234 beside 0.998 is no thousand.
            own["thousands"] = told.thousands if own.get("decimal") or told.thousands else None
        settled[name] = replace(verdict, column=verdict.column.model_copy(update=own))
    return common, settled


def clock_of(given: Sample, dialect: Dialect) -> tuple[Clock | None, list[Decision]]:
    """Return which column tells the time and how, and what of it is to decide."""
    found: list[tuple[int, Clock, list[Decision]]] = []
    clocks: list[str] = []
    dates: list[tuple[str, tuple[str, ...]]] = []
    for index, name in enumerate(given.names):
        cells = [cell for cell in given.cells(index)[: given.head] if cell]
        bare, unit = split_unit(name)
        unit = unit or (dialect.units[index] if index < len(dialect.units) else "")
        orders = times.judge(cells) if cells else ()
        if orders == (times.CLOCK,):
            clocks.append(name)
        elif orders and orders[0].startswith("date"):
            dates.append((name, orders))
        if orders:
            rank = 1 if orders[0].startswith("date") else 0
            found.append((rank, Clock(source=name, form=orders[0]), _undecided(name, given, index, orders)))
        elif times.is_time_name(bare) and (values := _rising(cells, dialect.separator)):
            cut = (numbers.body(cells[-1]) or ("", ""))[1]
            scale, _ = times.scale_of(bare, unit or cut, values)
            found.append((2 if bare.lower() in times.NAMES else 3, Clock(source=name, scale=scale, cut=cut), []))
    if dates and clocks:
        name, orders = dates[0]
        clock = Clock(source=name, of_day=clocks[0], form=orders[0])
        return _decided(clock, _undecided(name, given, given.names.index(name), orders))
    if not found:
        return None, []
    _, clock, decisions = min(found, key=lambda each: each[0])
    return _decided(clock, decisions)


def _decided(clock: Clock, decisions: list[Decision]) -> tuple[Clock, list[Decision]]:
    return (clock.model_copy(update={"form": UNDECIDED}) if decisions else clock), decisions


def _undecided(name: str, given: Sample, index: int, orders: Sequence[str]) -> list[Decision]:
    if len(orders) < 2:
        return []
    cells = given.cells(index)
    at = next(at for at, cell in enumerate(cells) if cell and times.seconds(cell, orders[0]) != times.seconds(cell, orders[1]))
    read = " or ".join(f"day {each}" for each in (" and month ".join(_day_month(cells[at], order)) for order in orders[:2]))
    lines = " or ".join(f'form = "{order}"' for order in orders)
    return [Decision(name, f"{name}: line {given.lines[at]} has {cells[at]!r}: {read}", f"clock: {lines}")]


def _day_month(cell: str, order: str) -> tuple[str, str]:
    import datetime as dt  # noqa: PLC0415 - for a message alone

    at = dt.datetime.fromtimestamp(times.seconds(cell, order), dt.UTC)
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


def _time(
    given: Sample, clock: Clock | None, kept: dict[str, Column], target: str, shown: dict[str, tuple[str, str]], marks: Reading
) -> Time | None:
    """Return where rows stand: as they are, or at the target's times where signals have times of their own.

    In that case a signal is held for three times its usual distance, and never across a gap.
    """
    if clock is None:
        return None
    rows = given.rows[: given.head]
    at = _seconds(given, clock, marks)
    steps = sorted(second - first for first, second in pairwise(at) if second > first)
    gap = min(86_400.0, max(60.0, rounded(100 * steps[len(steps) // 2]))) if steps else 60.0
    column = next((shown[name][0] for name in given.names if name == clock.source), "time")
    time = Time(column=column, drive="" if "drive" in kept else "drive", gap=gap)
    used = {name: shown[name][0] for name, each in kept.items() if each.take not in ("nothing", UNDECIDED) and name != SPLIT}
    empty = {name: sum(not row[given.names.index(name)] for row in rows) for name in used}
    if len(at) != len(rows) or len(rows) < 4 or not any(count >= _OWN * len(rows) for count in empty.values()):
        return time
    inputs = {}
    for name, bare in used.items():
        index = given.names.index(name)
        own = [when for when, row in zip(at, rows, strict=True) if row[index]]
        inputs[bare] = Input(signal=bare, seconds=age(own, gap))
    return time.model_copy(update={"rows": target, "inputs": {**{n: i for n, i in inputs.items() if n != target}, target: inputs[target]}}) if target in inputs else time


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


def _seconds(given: Sample, clock: Clock, marks: Reading) -> list[float]:
    """Return the times of the first rows; none where one of them tells none."""
    cells = given.cells(given.names.index(clock.source))[: given.head]
    form = next((order for order in times.judge(cells[:50])), "number") if clock.form == UNDECIDED else clock.form
    try:
        if form == "number":
            return [marks.value(numbers.body(cell)[0]) * clock.scale for cell in cells]  # type: ignore[index]
        at = [times.seconds(cell, form) for cell in cells]
        if clock.of_day:
            of_day = given.cells(given.names.index(clock.of_day))[: given.head]
            at = [day + times.seconds(cell, times.CLOCK) for day, cell in zip(at, of_day, strict=True)]
    except (ValueError, TypeError):
        return []
    return at


def _long(given: Sample) -> Long | None:
    """Return the columns of name and value where each row has one signal."""
    if not 2 <= len(given.names) <= 6:
        return None
    by_word = {name: set(times.words_of(name)) for name in given.names}
    signal = next((name for name, words in by_word.items() if words & _SIGNALS), None)
    value = next((name for name, words in by_word.items() if words & _VALUES and name != signal), None)
    if signal is None or value is None:
        return None
    cells = [cell for cell in given.cells(given.names.index(signal)) if cell]
    several = len(set(cells)) > 1 and len(set(cells)) <= max(2, len(cells) // 2)
    return Long(signal=signal, value=value) if several and not any(numbers.body(cell) for cell in cells) else None


def _propose_long(given: Sample, dialect: Dialect, long: Long, target: str) -> Proposal:
    """Return a plan for a table with one signal a row: the cells of each signal are judged like a column."""
    clock, decisions = clock_of(given, dialect)
    if clock is None:
        raise DataError(f"one signal a row ({long.signal!r}), but no column tells the time", "Write one column for each signal")
    at, of = given.names.index(long.signal), given.names.index(long.value)
    signals = list(dict.fromkeys(row[at] for row in given.rows if row[at]))
    names = unique(signals)
    rows = {name: [(row[of], line) for row, line in zip(given.rows, given.lines, strict=True) if row[at] == name] for name in signals}
    label = target or signals[-1]
    if label not in signals:
        listed = ", ".join(signals[:20])
        raise DataError(f"there is no signal {label!r}", f"The signals are: {listed}. Name the target with --target")
    verdicts = {
        name: columns.judge(
            Cells(name, [cell for cell, _ in rows[name]], [line for _, line in rows[name]], "", name == label, True), dialect.separator
        )
        for name in names
    }
    marks, verdicts = _settle(verdicts)
    shown = {name: split_unit(name)[0] for name in given.names}
    of_rows = _seconds(given, clock, Reading(marks.decimal, marks.thousands)) or [0.0] * given.head
    steps = sorted(second - first for first, second in pairwise(of_rows) if second > first)
    gap = min(86_400.0, max(60.0, rounded(100 * steps[len(steps) // 2]))) if steps else 60.0
    used = [name for name in names if verdicts[name].column.take not in ("nothing", UNDECIDED) or name == label]
    own: dict[str, list[float]] = {name: [] for name in names}
    for when, row in zip(of_rows, given.rows, strict=False):
        if row[at] in own:
            own[row[at]].append(when)
    inputs = {name: Input(signal=name, seconds=age(own[name], gap)) for name in used}
    missing = sorted(set().union(*(verdict.marks for verdict in verdicts.values())))
    proposal = Proposal(
        Plan(
            target=label,
            csv=Csv(separator=dialect.separator, decimal=marks.decimal, thousands=marks.thousands, missing=tuple(missing)),
            long=long,
            clock=clock,
            time=Time(
                column=shown.get(clock.source, "time"), rows=label, gap=gap,
                inputs={**{name: each for name, each in inputs.items() if name != label}, label: inputs[label]},
            ),
            columns=_last({name: verdict.column for name, verdict in verdicts.items()}, label),
        ),
        {name: verdict.why for name, verdict in verdicts.items()},
        decisions,
    )
    for name, verdict in verdicts.items():
        if verdict.decision:
            proposal.decisions.append(Decision(name, verdict.decision, f"columns.{name}: {verdict.lines}"))
    return proposal


def parse_line(line: str, separator: str) -> list[str]:
    """Return the cells of one line, stripped; none where it is no row at all."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []
