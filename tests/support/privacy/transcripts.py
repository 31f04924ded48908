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

from glassfleet import catalogue, local
from glassfleet.audit.report import matches
from glassfleet.audit.sums import Rows
from glassfleet.audit.transcript import View
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.scheme import Contribution, Task
from glassfleet.traits import input_quantiles_of

Fleet = dict[str, Dataset]
Transcript = list[tuple[Task, Contribution]]
"""The questions of a run, in order, and a vehicle's answers."""


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


def transcripts(name: str, fleet: Fleet, domain: Domain, **parameters: Any) -> Mapping[str, Transcript]:
    """Learn, and return what each vehicle sent."""
    scheme = catalogue.load(name)
    result: dict[str, Transcript] = {agent: [] for agent in fleet}
    local.federated(
        scheme, scheme.Parameters.model_validate(parameters), domain, fleet,
        listen=lambda task, answer: result[answer.agent].append((task, answer)),
    )  # fmt: skip
    return result


def view_of(transcript: Transcript) -> View:
    """Return what an attacker is given of a transcript."""
    return [(task, answer.sums) for task, answer in transcript]


def count(candidates: Rows, rows: Rows) -> Count:
    """Compare what an attack found with the rows that there are."""
    whole, _, false = matches(candidates, rows)
    return Count(len(whole), len(rows), false)


def total(counts: list[Count]) -> Count:
    """Add up over vehicles."""
    return Count(
        sum(each.read for each in counts), sum(each.rows for each in counts), sum(each.false for each in counts)
    )
