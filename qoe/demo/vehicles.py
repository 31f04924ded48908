"""The fleet's files: simulated, or a folder of real ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_agent.sources import read_source
from glassfleet.data import Dataset
from qoe.simulator import simulate_vehicle, write_vehicle
from schemas.errors import DataError, StorageError

SUFFIXES = (".csv", ".csv.gz", ".parquet")
"""What a vehicle's file can be."""


@dataclass(frozen=True)
class VehicleRows:
    """A vehicle's rows, as the reference computations of the demonstration read them.

    The agents read the same files by themselves; nothing is handed to them.
    """

    train: Dataset
    test: Dataset


def simulated_files(folder: Path, vehicles: int, seed: int) -> dict[str, Path]:
    """Write the files of `vehicles` simulated vehicles into `folder`; return them by vehicle id."""
    files: dict[str, Path] = {}
    width = max(2, len(str(vehicles - 1)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(vehicles):
            name = f"vehicle-{number:0{width}d}"
            files[name] = folder / f"{name}.csv.gz"
            write_vehicle(files[name], simulate_vehicle(number, seed))
    except OSError as fault:
        raise StorageError(f"cannot write the vehicles' files into {folder}: {fault.strerror}") from fault
    return files


def real_files(folder: Path, at_most: int | None = None) -> dict[str, Path]:
    """Return the files of real vehicles in `folder` by vehicle id, the file's name made a valid id.

    Raises DataError when there are none or two would have one id.
    """
    if not folder.is_dir():
        raise DataError(f"--data {folder} is not a folder: give one with a csv, csv.gz or parquet file per vehicle")
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
        if suffix is None or not path.is_file():
            continue
        name = re.sub(r"[^A-Za-z0-9._-]", "-", path.name.removesuffix(suffix)).lstrip("._-")[:64] or "vehicle"
        if name in files:
            raise DataError(f"{path} and {files[name]} would be the same vehicle {name!r}: rename one of them")
        files[name] = path
    if not files:
        raise DataError(f"--data {folder} holds no csv, csv.gz or parquet files: one per vehicle is needed")
    return dict(list(files.items())[:at_most])


def read_rows(files: Mapping[str, Path], target: str | None = None) -> dict[str, VehicleRows]:
    """Read all vehicles' rows, for the references; raises DataError naming file, row and column."""
    rows: dict[str, VehicleRows] = {}
    for name, path in files.items():
        source = read_source(path, target=target)
        rows[name] = VehicleRows(source.train, source.test)
    return rows
