"""The kinds of sources, and how a file is taken. A new kind is a module with a `Reader`, and a place in `READERS`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar
from urllib.parse import unquote

from edge_agent.imports import judge
from edge_agent.imports.dialect import LINES
from edge_agent.imports.dialect import judge as judge_layout
from edge_agent.imports.inputs import as_text
from edge_agent.imports.opened import BEGIN, Text, head
from edge_agent.imports.plan import Plan
from edge_agent.recordings import RECORDINGS
from edge_agent.sources import database, files, window
from edge_agent.sources.cells import EmptyCellError
from edge_agent.sources.location import Location, Reader
from glassfleet.data.cells import NOTHING
from schemas.errors import DataError, UsageError, os_faults_as
from schemas.text import without_password

READERS = (files.CSV, files.PARQUET, window.READER, database.READER)
"""Every kind of source; the first is that of a file whose name tells nothing."""

_LONGEST_QUERY: Final = 60


def locate(source: Path | str) -> Location:
    """Tell what a source's name means.

    Parameters
    ----------
    source : Path or str
        A file, or ``sqlite:///file.db?query=...``, ``postgresql://user@host/database?query=...`` (or ``?table=NAME``).
        The query is the last part of the URL and may be written as it is, or percent-encoded.

    Raises
    ------
    UsageError
        It is a URL of something else, or one that names neither query nor table.

    Examples
    --------
    >>> locate("sqlite:///drives.db?query=SELECT speed, quality FROM rows").query
    'SELECT speed, quality FROM rows'
    """
    text = str(source)
    scheme = re.match(r"^([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if scheme is None:
        return Location(text, kind_of(text)[1] or READERS[0], shown=text)
    name = scheme.group(1).lower()
    by_url = next((reader for reader in READERS if name.partition("+")[0] in reader.schemes), None)
    if by_url is None:
        raise UsageError(f"{without_password(text)}: {_advice(name)}")
    rows = re.search(r"[?&](query|table)=(.*)$", text, re.DOTALL)
    if rows is None or not rows.group(2).strip():
        raise UsageError(
            f"{without_password(text)}: say which rows: end the URL with ?query=SELECT ... or ?table=NAME, in quotes"
        )
    url, words = text[: rows.start()], unquote(rows.group(2)).strip()
    short = words if len(words) <= _LONGEST_QUERY else f"{words[:_LONGEST_QUERY]}..."
    shown = f"{without_password(url)}{text[rows.start()]}{rows.group(1)}={' '.join(short.split())}"
    if rows.group(1) == "table":
        return Location(url, by_url, table=words, shown=shown)
    return Location(url, by_url, query=words, shown=shown)


def kind_of(name: str) -> tuple[str, Reader | None]:
    """Return a file's name without its ending, and the reader of that ending, in any case; None: it tells nothing."""
    ends = ((ending, reader) for reader in READERS for ending in reader.endings if name.lower().endswith(ending))
    ending, reader = next(ends, ("", None))
    return name[: len(name) - len(ending)], reader


def table_endings() -> str:
    """Return in words how the names of files end whose rows stay as they are."""
    return _listed([ending for reader in READERS if reader.mark is None for ending in reader.endings])


def _advice(name: str) -> str:
    if name in ("mqtt", "mqtts"):
        return (
            "a live stream is collected into a window first, with glassfleet data collect --source URL "
            "--store drive.window; then give drive.window here"
        )
    endings = _listed([ending for reader in READERS for ending in reader.endings])
    urls = _listed([f"{scheme}://" for reader in READERS for scheme in reader.schemes])
    return f"{name}:// is not known here; give a {endings} file, {urls}"


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def vehicle_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files of option ``--data`` with their names without the ending, sorted.

    Raises
    ------
    DataError
        There is no such folder, it cannot be read, or it has none.
    """
    if not folder.is_dir():
        raise DataError(f"--data {folder} is not a folder: give one with a {table_endings()} file per vehicle")
    with os_faults_as(DataError, f"--data {folder} cannot be read"):
        paths = sorted(folder.iterdir())
        kinds = {path: kind_of(path.name) for path in paths if path.is_file()}
    files = [(name, path) for path, (name, reader) in kinds.items() if reader is not None and reader.mark is None]
    if not files:
        raise DataError(f"--data {folder} holds no {table_endings()} files: one per vehicle is needed")
    return files


# --- A file as people have it, at the agent's door: taken as it is, converted first, or refused with both readings ----
#
# What needs no decision is converted by an import in a process of its own, so that its engine is never loaded here.


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
    marks : mapping of str to str
        By column: the file's cells without a value, in words.
    """

    place: Location
    line: str = ""
    warnings: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)


def taken(
    place: Location, target: str | None, read: Callable[[Location], T], *, whole: bool = False
) -> tuple[Taken, T]:
    """Read the rows of a file where they are, or, of a text that is not plain, a copy that was converted.

    With `whole` a text is also plain when an import would leave columns out, which nobody learns from.

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
        if is_plain(text, target or "", whole=whole):
            done = f"{place.shown}: {'; '.join(text.notes)}" if text.notes else ""
            try:
                return Taken(place, done), read(replace(place, text=str(text.path)))
            except DataError:
                if text.path.stat().st_size <= BEGIN:
                    raise  # all of it was looked at: nothing else can be made of it
        rows = _imported(place, Path(folder) / "rows.csv", target or "")
        try:
            return rows, read(rows.place)
        except EmptyCellError as fault:
            raise EmptyCellError(fault.where, fault.column, fault.row, rows.marks.get(fault.column, "")) from None


def is_plain(text: Text, target: str = "", *, whole: bool = False) -> bool:
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
    return is_usual and layout.width == len(layout.names) and not given.repeated and _says_nothing(proposal.plan, whole)


def _says_nothing(plan: Plan, whole: bool) -> bool:
    """Whether a plan leaves a file's cells as they are."""
    if (
        plan.long is not None
        or plan.aligned is not None
        or (plan.csv.decimal, plan.csv.thousands) != (".", "")
        or set(plan.csv.missing) - NOTHING - {"nan"}
    ):
        return False
    if plan.clock is not None and (plan.clock.form, plan.clock.scale, plan.clock.cut) != ("number", 1.0, ""):
        return False
    return all(
        (column.take in ("number", "truth", "text") or (whole and column.take == "nothing"))
        and not column.cut
        and not column.source
        and not column.decimal
        for column in plan.columns.values()
    )


def _imported(place: Location, out: Path, target: str) -> Taken:
    call = [sys.executable, "-m", "edge_agent.imports.importing", place.text, str(out), target]
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
    return Taken(replace(place, text=str(out)), f"{place.shown}: {answer['line']}", warnings, answer["marks"])
