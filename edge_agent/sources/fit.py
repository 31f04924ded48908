"""Whether a table fits a run: the columns and limits of its domain, its lagged features, and the order of its rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.sources.findings import Fault, Findings
from edge_agent.sources.table import Table, read_source, read_table
from glassfleet.data.cells import truth_of
from glassfleet.data.domain import Domain, Variable
from glassfleet.data.lags import Memory, remember
from schemas.errors import DataError

TIMES: Final = ("time", "timestamp", "t", "time_s", "seconds", "at")
DRIVES: Final = ("drive", "trip", "run", "drive_id", "trip_id", "run_id", "repetition")
"""Names, in lower case, under which time and drive are looked for when no domain names them."""

MANY: Final = 0.05
"""Share of values beyond a domain's limits that is worth a warning."""


@dataclass(frozen=True)
class Order:
    """How the rows lie in time.

    Attributes
    ----------
    time, drive : str
        Columns; empty when there is none.
    drives : int
        How many drives there are.
    longest, shortest : int
        Rows of the longest and of the shortest drive.
    sorted : bool or None
        Whether the rows of each drive are in the order of time; None without a time.
    step : float or None
        The usual time from a row to the next of its drive (the median).
    gaps : int
        How often a row is off by more than half a step, where memory starts anew.
    doubles : int
        Rows with the time of another row of their drive.
    """

    time: str
    drive: str
    drives: int
    longest: int
    shortest: int
    sorted: bool | None = None
    step: float | None = None
    gaps: int = 0
    doubles: int = 0

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def order_of(table: Table, memory: Memory | None = None) -> Order | None:
    """Return how the rows lie in time; None when no column tells time or drive."""
    time = memory.time if memory else _named(table, TIMES)
    drive = memory.drive if memory else _named(table, DRIVES)
    if not time and not drive:
        return None
    drives = _codes(table, drive) if drive else np.zeros(table.rows)
    _, sizes = np.unique(drives, return_counts=True)
    known = Order(time, drive, len(sizes), int(sizes.max()), int(sizes.min()))
    if not time or time in table.text:
        return known
    times = table.column(time)
    order = np.lexsort((times, drives))
    same = drives[order][1:] == drives[order][:-1]
    steps = np.diff(times[order])[same]
    place = np.argsort(drives, kind="stable")
    forward = np.diff(times[place])[drives[place][1:] == drives[place][:-1]]
    known = replace(known, sorted=bool((forward >= 0).all()), doubles=int((steps == 0).sum()))
    ahead = steps[steps > 0]
    if not ahead.size:
        return known
    step = (memory.step if memory else None) or float(np.median(ahead))
    return replace(known, step=step, gaps=int((np.abs(ahead - step) > step / 2).sum()))


def fit(
    findings: Findings, source: Path | str, domain: Domain, *, labels: bool, categories: bool, missing: bool = False
) -> None:
    """Add to `findings` whatever keeps a table from a run with this domain, and what it would clip."""
    columns = {column.name: column for column in findings.columns}
    wanted = (*domain.needs, *([] if domain.target_name in domain.needs else [domain.target_name]))
    absent = [name for name in wanted if name not in columns]
    for name in absent:
        text = f"the domain needs the column {name!r}, which is not there"
        findings.faults.append(Fault("error", text, "Add it, or start the run with a domain without it", name))
    extra = [name for name, column in columns.items() if name not in wanted and column.role == "input"]
    if domain.memory is not None:
        extra = [name for name in extra if name not in (domain.memory.drive, domain.memory.time)]
    if extra:
        findings.faults.append(Fault("note", f"not used by this domain: {', '.join(extra[:10])}"))
    if absent or not findings.usable:
        return  # the rest needs the rows
    inputs = [column.name for column in findings.columns if column.role == "input"]
    table = read_table(source, missing=inputs if missing else ())
    remembered = () if domain.memory is None else domain.memory.columns
    for variable in domain.variables:
        if variable.name not in remembered:
            findings.faults += _within(table, variable)
    if domain.target is None:
        rows = read_source(source, target=domain.label, labels=True, categories=categories, missing=missing)
        _classes(findings, {*rows.train.y, *rows.test.y}, domain)
    if domain.memory is not None:
        _memory(findings, source, domain, labels=labels, categories=categories, missing=missing)


def _within(table: Table, variable: Variable) -> list[Fault]:
    column = table.column(variable.name)
    if variable.name in table.text and not variable.categories and truth_of(column):
        return []
    if variable.name in table.text:
        unknown = sorted({str(cell).strip() for cell in column} - set(variable.categories))
        if not variable.categories:
            return [Fault("error", "the domain has a number here, the table holds text", "Encode it", variable.name)]
        text = f"categories that the domain does not know: {', '.join(unknown[:5])}"
        return [Fault("warning", text, "They count as unknown", variable.name)] if unknown else []
    if variable.categories:
        return [Fault("error", "the domain has categories here, the table holds numbers", "Write texts", variable.name)]
    if variable.missing is None and np.isnan(column).any():
        text = "has empty cells, and the domain knows none"
        return [Fault("error", text, "Fill them in, or use a domain that was found with them", variable.name)]
    beyond = (column < variable.low) | (column > variable.high)
    count = int(beyond.sum())
    if not count:
        return []
    unit = f" {variable.unit}" if variable.unit else ""
    limits = f"{variable.low:g} to {variable.high:g}{unit}"
    text = f"{count} values ({count / table.rows:.1%}) beyond {limits}; they are clipped"
    mend = "Check the unit, or widen the domain's limits" if count > MANY * table.rows else ""
    return [Fault("warning" if mend else "note", text, mend, variable.name, count=count)]


def _classes(findings: Findings, classes: set[str], domain: Domain) -> None:
    unknown = sorted(classes - set(domain.classes))
    if unknown:
        text = f"classes that the domain does not know: {', '.join(unknown[:5])}"
        findings.faults.append(Fault("error", text, f"Known: {', '.join(domain.classes[:10])}", domain.label))


def _memory(
    findings: Findings, source: Path | str, domain: Domain, *, labels: bool, categories: bool, missing: bool
) -> None:
    kinds = {"labels": labels, "categories": categories, "missing": missing}
    try:
        rows = read_source(source, target=domain.target_name, **kinds).train
        left = remember(rows, domain.memory).rows
    except DataError as fault:
        findings.refuse(fault)
        return
    assert domain.memory is not None
    lost = rows.rows - left
    more = f"; {lost} first rows of drives are left out" if lost else ""
    text = f"lagged features can be computed: {', '.join(domain.memory.columns)}{more}"
    findings.faults.append(Fault("note", text))


def _named(table: Table, names: tuple[str, ...]) -> str:
    return next((name for name in table.names if name.lower() in names), "")


def _codes(table: Table, name: str) -> NDArray[Any]:
    column = table.column(name)
    return np.unique(column.astype(np.str_), return_inverse=True)[1] if name in table.text else column
