"""Where the rows of tests come from: from scikit-learn and our simulator everywhere, real ones where they are."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

from edge_agent.sources import Source, read_source
from glassfleet.data.dataset import Dataset
from lab.datasets.fetch import fetch
from lab.datasets.known import DATASETS, how_to_get
from lab.qoe.simulator import simulate_vehicle, write_vehicle
from tests.support.needs.programs import why_not

DRIVES = {"qoe": 3, "simulated": 3}
"""Sets of vehicles with their own rows each, drives that are ordered in time: how many vehicles."""


def data_folder(*files: str) -> Path:
    """Return the folder of real datasets; skip the test when it, or one of these files, is not there."""
    if why := why_not("data"):
        pytest.skip(why)
    folder = Path(os.environ["GLASSFLEET_DATA"])
    if absent := [name for name in files if not (folder / name).is_file()]:
        pytest.skip(f"{', '.join(absent)} not in $GLASSFLEET_DATA: {how_to_get(absent, folder)}")
    return folder


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="glassfleet-datasets-")


@cache
def file_of(name: str) -> Path:
    """Return the file of a dataset; skip the test when it is a real one that is not there."""
    known = DATASETS[name]
    if known.source is not None and known.source.shipped:
        pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")
        return fetch(known, Path(_made().name))
    return data_folder(known.file) / known.file


@cache
def dataset(name: str) -> Dataset:
    """Return the rows of a dataset: classes as text, other columns of text as categories."""
    return read_source(file_of(name), labels=DATASETS[name].task == "classification", categories=True).train


def numbers(name: str) -> Dataset:
    """Return a dataset whose target is a number: the last one that was measured, where it is a class."""
    data = dataset(name)
    if data.y.dtype.kind == "f":
        return data
    return Dataset(data.features[:-1], data.features[-1], data.X[:, :-1].copy(), data.X[:, -1].copy())


@cache
def drives(name: str) -> list[Source]:
    """Return what the vehicles of ``"qoe"`` drove (real, or the test is skipped), or of ``"simulated"``."""
    if name == "simulated":
        paths = [Path(_made().name) / f"vehicle-{number}.csv" for number in range(DRIVES[name])]
        for number, path in enumerate(paths):
            write_vehicle(path, simulate_vehicle(number))
    else:
        paths = [file_of(f"qoe/vehicle_{number}") for number in range(DRIVES[name])]
    return [read_source(path) for path in paths]
