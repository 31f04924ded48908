"""The fleet's files: simulated, or a folder of real ones; with a number to forecast, or a class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from edge_agent.sources import SPLIT, Source, read_source
from edge_agent.sources.readers import locate, vehicle_files
from lab.qoe.simulator import simulate_vehicle, write_vehicle
from schemas.errors import DataError, StorageError, os_faults_as

SHOWN = 5
"""Most files, and most columns of each, that a fault names."""

UNWRITABLE = "cannot write the vehicles' files into {}"


def simulated_files(folder: Path, vehicles: int, seed: int, *, good_above: float | None = None) -> dict[str, Path]:
    """Write the files of `vehicles` simulated vehicles into `folder`; return them by vehicle id.

    With `good_above` the target is a class: Good for a share displayed above it, else Poor.
    """
    files: dict[str, Path] = {}
    width = max(2, len(str(vehicles - 1)))
    with os_faults_as(StorageError, UNWRITABLE.format(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(vehicles):
            name = f"vehicle-{number:0{width}d}"
            files[name] = folder / f"{name}.csv.gz"
            write_vehicle(files[name], simulate_vehicle(number, seed), good_above=good_above)
    return files


def real_files(folder: Path, at_most: int | None = None) -> dict[str, Path]:
    """Return the files of real vehicles in `folder` by vehicle id, the file's name made a valid id.

    Raises DataError when there are none or two would have one id.
    """
    files: dict[str, Path] = {}
    for stem, path in vehicle_files(folder):
        name = re.sub(r"[^A-Za-z0-9._-]", "-", stem).lstrip("._-")[:64] or "vehicle"
        if name in files:
            raise DataError(f"{path} and {files[name]} would be the same vehicle {name!r}: rename one of them")
        files[name] = path
    return dict(list(files.items())[:at_most])


def check_columns(files: Mapping[str, Path], target: str | None = None) -> None:
    """Look, in the header rows alone, whether every file has the columns that a run of these vehicles would ask for.

    A run learns from the columns that most vehicles have; further ones do no harm.

    Raises
    ------
    DataError
        A file lacks a column that most have, or its last column, the target when none is named, is another one; or a
        file cannot be read.
    """
    columns: dict[str, frozenset[str]] = {}
    targets: dict[str, str] = {}
    for vehicle, path in files.items():
        place = locate(path)
        with place.reader.rows(place) as (names, _):
            columns[vehicle] = frozenset(names) - {SPLIT}
            targets[vehicle] = target or next((name for name in reversed(names) if name != SPLIT), "")
    votes = Counter((targets[vehicle], columns[vehicle]) for vehicle in files)
    # Of two that are as frequent the one with more columns: what the other lacks can be told.
    (label, usual), many = max(votes.items(), key=lambda each: (each[1], len(each[0][1]), sorted(each[0][1])))
    faults = []
    for vehicle, path in files.items():
        lacking = sorted(usual - columns[vehicle])
        if lacking:
            faults.append(f"{path} has no column {', '.join(map(repr, lacking[:SHOWN]))}")
        elif targets[vehicle] != label:
            faults.append(f"the last column of {path} is {targets[vehicle]!r}, not {label!r} (name one with --target)")
    if faults:
        more = f"; and {len(faults) - SHOWN} files more" if len(faults) > SHOWN else ""
        raise DataError(
            f"{'; '.join(faults[:SHOWN])}{more}; {many} of {len(files)} files have the columns "
            f"{', '.join(sorted(usual))}. Add what is missing, or leave such files out"
        )


def read_rows(files: Mapping[str, Path], target: str | None = None, *, labels: bool = False) -> dict[str, Source]:
    """Read all vehicles' rows for the references; raises DataError naming file, row and column.

    The agents read the same files by themselves; nothing is handed to them.
    """
    return {name: read_source(path, target=target, labels=labels, hold_back=True) for name, path in files.items()}
