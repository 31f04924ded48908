"""What one vehicle sends in a run, and the rows behind it: what the attacks read, and what they are measured by."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.scheme import Contribution, Done, Next, Task, input_quantiles_of

Rows = NDArray[np.float64]
"""Shape (n, F + 1): inputs and target, scaled to [0, 1]."""

Fleet = dict[str, Dataset]
Transcript = list[tuple[Task, Contribution]]
"""The questions of a run, in order, and a vehicle's answers."""

TOLERANCE = 1e-3
"""A row counts as read when every input and the target are this near, as a share of their ranges."""


@dataclass(frozen=True)
class Count:
    """What an attack came to: different rows read, rows that there are, candidates that are no vehicle's row."""

    read: int
    rows: int
    false: int


def fleets_of(sets: Iterable[str]) -> list[Any]:
    """Return parameters (set, vehicles) with 5, 15 and 3 vehicles: each set has its turn with one, the rest is slow."""
    sizes = (5, 15, 3)
    return [
        pytest.param(name, size, marks=[] if size == sizes[place % 3] else [pytest.mark.slow])
        for place, name in enumerate(sets)
        for size in sizes
    ]


def table(folder: Path, name: str, vehicles: int, rows: int | None = None) -> Fleet:
    """Return a dataset's rows, shuffled once and dealt to the vehicles."""
    names, values = _read(folder / f"{name}.csv.gz")
    values = values[np.random.default_rng(0).permutation(len(values))][:rows].astype(np.float64)
    return {
        f"v{place:02d}": Dataset(tuple(names[:-1]), names[-1], part[:, :-1], part[:, -1])
        for place, part in enumerate(np.array_split(values, vehicles))
    }


def qoe(folder: Path, vehicles: int) -> Fleet:
    """Return the training rows of the three vehicles of the case study, in pieces where more are wanted."""
    drives = []
    for number in range(3):
        names, values = _read(folder / "qoe" / f"vehicle_{number}.csv.gz")
        drives.append(values[values[:, 0] == "train"][:, 1:].astype(np.float64))
    pieces = np.array_split(np.concatenate(drives), vehicles) if vehicles % 3 else [
        piece for drive in drives for piece in np.array_split(drive, vehicles // 3)
    ]  # fmt: skip
    return {
        f"v{place:02d}": Dataset(tuple(names[1:-1]), names[-1], piece[:, :-1], piece[:, -1])
        for place, piece in enumerate(pieces)
    }


def _read(path: Path) -> tuple[list[str], NDArray[Any]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    return head, np.array(lines)


def domain_of(fleet: Fleet, scheme: str = "frt") -> Domain:
    """Return the limits that the fleet finds together for a scheme."""
    one, quantiles = next(iter(fleet.values())), input_quantiles_of(catalogue.load(scheme))
    wanted = DiscoveryParameters(features=one.features, target=one.target, input_quantiles=quantiles)
    return discover(wanted, list(fleet.values()))


def truth(domain: Domain, data: Dataset) -> Rows:
    """Return a vehicle's rows as they enter its sums."""
    return np.column_stack([domain.scale_inputs(data.X), domain.scale_target(data.y)])


def transcripts(name: str, fleet: Fleet, domain: Domain, **parameters: Any) -> Mapping[str, Transcript]:
    """Learn, and return what each vehicle sent."""
    scheme = catalogue.load(name)
    rng = np.random.default_rng(0)
    told: dict[str, Transcript] = {agent: [] for agent in fleet}
    step: Next | Done = scheme.server.start(scheme.Parameters.model_validate(parameters), domain, 0)
    while isinstance(step, Next):
        answers = {agent: scheme.client.contribute(step.task, data, rng) for agent, data in fleet.items()}
        for agent, answer in answers.items():
            told[agent].append((step.task, answer))
        step = scheme.server.reduce(step.state, list(answers.values()))
    return told


def count(candidates: Rows, rows: Rows) -> Count:
    """Compare what an attack found with the rows that there are."""
    if not len(candidates):
        return Count(0, len(rows), 0)
    nearest = np.array([int(np.abs(rows - line).max(axis=1).argmin()) for line in candidates])
    near = np.abs(rows[nearest] - candidates).max(axis=1) < TOLERANCE
    return Count(len(set(nearest[near].tolist())), len(rows), int((~near).sum()))


def total(counts: list[Count]) -> Count:
    """Add up over vehicles."""
    return Count(
        sum(each.read for each in counts), sum(each.rows for each in counts), sum(each.false for each in counts)
    )
