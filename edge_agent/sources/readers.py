"""The kinds of sources that there are. A new one is a module with a `Reader`, and a place in `READERS`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from edge_agent.sources import database, files, window
from edge_agent.sources.location import Location, Reader
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
