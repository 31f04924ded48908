"""Everything that is wrong with a table, at once: each fault with its place and how to mend it.

`read_source` stops at the first fault, as a process must. Here a person wants to see them all, so cells are read as
they are, and judged column by column (`edge_agent.sources.judge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from edge_agent.sources.cells import HOW_TO_TEST, NO_TEST_ROWS, SPLIT, is_number, separated
from edge_agent.sources.findings import Cells, Fault, Findings
from edge_agent.sources.judge import DECIMAL_COMMA, FEW_ROWS, SHOWN, Judge, judge_names, many
from edge_agent.sources.location import Location
from edge_agent.sources.readers import locate
from edge_agent.sources.table import gathered
from schemas.errors import DataError

MANY: Final = 9
"""From more different numbers on, two columns that always agree do so for a reason."""


def examine(
    source: Path | str,
    *,
    target: str | None = None,
    labels: bool = False,
    categories: bool = False,
    missing: bool = False,
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
    missing : bool
        Inputs may have empty cells.

    Raises
    ------
    UsageError
        The URL names no kind of source that there is. (That a file is missing or unreadable is a finding.)
    """
    place = locate(source)
    findings = Findings(place.shown, place="row" if place.reader.lines is None else "line")
    try:
        cells = _of_blocks(place) if place.reader.lines is None else _of_lines(place.reader.lines(place), findings)
    except DataError as fault:
        findings.refuse(fault)
        return findings
    findings.rows = len(cells.lines)
    judge_names(cells.names, target, findings)
    if separated(cells.names):
        return findings  # every other fault follows from this one
    if not findings.rows:
        if not findings.faults:  # else these are why
            findings.faults.append(Fault("error", "there are columns but no rows", "Collect data first"))
        return _sorted(findings)
    named = [name for name in cells.names if name and name != SPLIT]
    label = target if target is not None else named[-1] if named else ""
    for name, column in zip(cells.names, cells.columns, strict=True):
        if not name:
            continue  # told already, and there is no name to tell more under
        role = "target" if name == label else "split" if name == SPLIT else "input"
        judge = Judge(cells, findings, name, role, labels=labels, categories=categories, missing=missing)
        findings.columns.append(judge.judge(column))
    if SPLIT in cells.names:
        findings.train = sum(str(cell).strip() == "train" for cell in cells.columns[cells.names.index(SPLIT)])
    _judge_leaks(cells, label, findings)
    _judge_rows(findings)
    return _sorted(findings)


def _judge_leaks(cells: Cells, label: str, findings: Findings) -> None:
    """Tell of inputs that are the target in other units: a model would repeat them, and learn nothing."""
    numeric = {column.name for column in findings.columns if column.kind == "number" and column.different > MANY}
    if label not in numeric:
        return
    columns = dict(zip(cells.names, cells.columns, strict=True))
    rows = [row for row in range(findings.rows) if all(is_number(columns[name][row]) for name in numeric)]
    if len(rows) <= MANY:
        return
    target = np.array([columns[label][row] for row in rows], dtype=np.float64)
    for name in sorted(numeric - {label}):
        given = np.array([columns[name][row] for row in rows], dtype=np.float64)
        with np.errstate(all="ignore"):  # a number that is not finite is told elsewhere
            if abs(np.corrcoef(given, target)[0, 1]) > 1 - 1e-12:
                what = f"says the same as the target {label!r}, at most in another unit"
                findings.faults.append(Fault("warning", what, "Leave it out unless it is known before", name))


def _judge_rows(findings: Findings) -> None:
    train = findings.rows if findings.train is None else findings.train
    if train < 2:
        findings.faults.append(
            Fault("error", f"{many(train, 'row')} to train on; at least 2 are needed", "Collect more data")
        )
    elif train < FEW_ROWS:
        findings.faults.append(Fault("warning", f"only {train} rows to train on", "Collect more data"))
    if train == findings.rows:
        findings.faults.append(Fault("note", NO_TEST_ROWS, HOW_TO_TEST))


def _sorted(findings: Findings) -> Findings:
    # Columns of one name, a fault themselves, share what is said of both: once is enough.
    findings.faults[:] = dict.fromkeys(findings.faults)
    findings.faults.sort(key=lambda fault: ("error", "warning", "note").index(fault.level))
    return findings


def _of_lines(rows: Iterator[tuple[int, list[str]]], findings: Findings) -> Cells:
    names: tuple[str, ...] = ()
    columns: list[list[Any]] = []
    lines: list[int] = []
    ragged: list[tuple[int, list[str]]] = []
    for line, cells in rows:
        if not names:
            names = tuple(cell.strip() for cell in cells)
            columns = [[] for _ in names]
            continue
        if len(cells) != len(names):
            ragged.append((line, cells))
            continue
        lines.append(line)
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell.strip())
    if not names:
        raise DataError("the file is empty", "Write a header row with the columns' names", findings.source)
    if ragged and not separated(names):
        widths = sorted({len(cells) for _, cells in ragged})[:SHOWN]
        mend = _how_to_mend_rows(names, lines, [cells for _, cells in ragged])
        held = f"{', '.join(map(str, widths))} {'cell' if widths == [1] else 'cells'}"
        what = f"{many(len(ragged), 'row')} with {held}, where the header has {len(names)}"
        findings.faults.append(Fault("error", what, mend, "", tuple(line for line, _ in ragged[:SHOWN]), len(ragged)))
    return Cells(names, columns, lines)


def _how_to_mend_rows(names: Sequence[str], good: Sequence[int], ragged: Sequence[list[str]]) -> str:
    longer = all(len(cells) > len(names) for cells in ragged)
    if longer and not good and not any(is_number(cell) for cell in ragged[0]):
        return "Remove the lines above the columns' names: these must be the first line"
    if longer and not any(cell.strip() for cells in ragged for cell in cells[len(names) :]):
        return "Remove the comma at the end of these rows"
    if any("\n" in cell for cells in ragged for cell in cells):
        return "Look for a quote that is not closed: it makes one cell of several lines"
    mend = "Look for a comma inside a cell (put such a cell in quotes), and for a row that was cut"
    if any(DECIMAL_COMMA.search(name) for name in names) or any(len(cells) > len(names) for cells in ragged):
        mend += (
            "; a comma in a number makes two cells of one, too: write a point for a decimal comma, and nothing for one "
            "between thousands"
        )
    return mend


def _of_blocks(place: Location) -> Cells:
    names, columns = gathered(place)
    return Cells(names, columns, list(range(1, len(columns[0]) + 1)))
