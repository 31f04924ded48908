"""A folder with the rows of a fleet: a file for each vehicle."""

from __future__ import annotations

from pathlib import Path

from edge_agent.sources.readers import kind_of, table_endings
from schemas.errors import DataError, os_faults_as


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
