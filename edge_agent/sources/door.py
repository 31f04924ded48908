"""A file as people have it, at the agent's door: taken as it is, converted first, or refused with both readings.

What needs no decision is converted by an import in a process of its own, so that its engine is never loaded here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TypeVar

from edge_agent.imports import judge
from edge_agent.imports.dialect import LINES
from edge_agent.imports.dialect import judge as judge_layout
from edge_agent.imports.inputs import as_text
from edge_agent.imports.opened import BEGIN, Text, head
from edge_agent.imports.plan import Plan
from edge_agent.recordings import RECORDINGS
from edge_agent.sources.location import Location
from glassfleet.data.cells import NOTHING
from schemas.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """Where rows are to be read, and what was done to the file.

    Attributes
    ----------
    place : Location
    line : str
        Empty: nothing was done.
    warnings : tuple of str
    """

    place: Location
    line: str = ""
    warnings: tuple[str, ...] = ()


def taken(place: Location, target: str | None, read: Callable[[Location], T]) -> tuple[Taken, T]:
    """Read the rows of a file where they are, or, of a text that is not plain, a copy that was converted.

    Raises
    ------
    DataError
        The file cannot be used, or somebody has to decide how it is read.
    """
    path = Path(place.text)
    if path.suffix.lower() in RECORDINGS:
        mend = f"Import it: glassfleet data import {quote(place.text)} --target SIGNAL --out drive.parquet"
        raise DataError("a recording: its signals become rows by an import", mend, place.shown)
    if not place.reader.is_text:
        return Taken(place), read(place)
    with tempfile.TemporaryDirectory(prefix="glassfleet-") as folder:
        text = as_text(path, Path(folder), None)
        if is_plain(text, target or ""):
            done = f"{place.shown}: {'; '.join(text.notes)}" if text.notes else ""
            try:
                return Taken(place, done), read(replace(place, text=str(text.path)))
            except DataError:
                if text.path.stat().st_size <= BEGIN:
                    raise  # all of it was looked at: nothing else can be made of it
        rows = _imported(place, Path(folder) / "rows.csv", target or "")
        return rows, read(rows.place)


def is_plain(text: Text, target: str = "") -> bool:
    """Whether a text's cells are what they say: commas between columns, points in numbers, one line of names.

    Raises
    ------
    DataError
        An import would refuse it, too.
    """
    lines = head(text)
    if lines is None:
        return False
    layout = judge_layout(lines[:LINES], text.source)
    given = judge.sample_of(lines, layout)
    proposal = judge.propose_for(given, layout, target, text.source)
    if proposal.decisions:
        raise judge.UndecidedError(proposal, text.source)
    is_usual = layout.separator == "," and not layout.notes and (layout.header, layout.data) == (1, 2)
    return is_usual and layout.width == len(layout.names) and not given.repeated and _says_nothing(proposal.plan)


def _says_nothing(plan: Plan) -> bool:
    """Whether a plan leaves a file's cells as they are."""
    if (
        plan.long is not None
        or (plan.csv.decimal, plan.csv.thousands) != (".", "")
        or set(plan.csv.missing) - NOTHING - {"nan"}
    ):
        return False
    if plan.clock is not None and (plan.clock.form, plan.clock.scale, plan.clock.cut) != ("number", 1.0, ""):
        return False
    if plan.time is not None and plan.time.aligned is not None:
        return False
    return all(
        column.take in ("number", "truth", "text") and not column.cut and not column.source and not column.decimal
        for column in plan.columns.values()
    )


def _imported(place: Location, out: Path, target: str) -> Taken:
    call = [sys.executable, "-m", "edge_agent.imports", place.text, str(out), target]
    ended = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        words = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        raise DataError(
            f"its import failed ({words[0][:200]})", "Import it: glassfleet data import", place.shown
        ) from None
    if "fault" in answer:
        fault = answer["fault"]
        raise DataError(fault["what"], fault["mend"], fault["where"] or place.shown, fault["tells"])
    warnings = tuple(f"{place.shown}: {warning}" for warning in answer["warnings"])
    return Taken(replace(place, text=str(out)), f"{place.shown}: {answer['line']}", warnings)
