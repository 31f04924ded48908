"""What one vehicle sends in a run, and the rows behind it: what the attacks read, and what they are measured by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from lab.audit.report import matches
from lab.audit.sums import Rows
from lab.audit.transcript import View
from tests.support.datasets import DRIVES, drives, numbers

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
        if (name, size) not in {("wine", 15), ("breast_cancer", 15)}  # too few rows each to condense them
    ]


MOST = {"california": 6000}
"""Rows of a set that are enough."""


def fleet_of(name: str, vehicles: int) -> Fleet:
    """Return vehicles with the rows of a set, whose target is a number; drives are cut where more are wanted."""
    if name not in DRIVES:
        return dealt(numbers(name), vehicles, MOST.get(name))
    own = [each.train for each in drives(name)]
    whole = [pool(own)] if vehicles % len(own) else own
    return _named(
        (data, part) for data in whole for part in np.array_split(np.arange(data.rows), vehicles // len(whole))
    )


def dealt(data: Dataset, vehicles: int, rows: int | None = None) -> Fleet:
    """Return vehicles with so many rows of a set, shuffled once."""
    order = np.random.default_rng(0).permutation(data.rows)[:rows]
    return _named((data, part) for part in np.array_split(order, vehicles))


def _named(parts: Iterable[tuple[Dataset, NDArray[np.intp]]]) -> Fleet:
    return {
        f"v{place:02d}": Dataset(data.features, data.target, data.X[part], data.y[part])
        for place, (data, part) in enumerate(parts)
    }


def domain_of(fleet: Fleet, scheme: str = "frt") -> Domain:
    """Return the limits that the fleet finds together for a scheme."""
    one, quantiles = next(iter(fleet.values())), input_quantiles_of(catalogue.load(scheme))
    wanted = DiscoveryParameters(features=one.features, target=one.target, input_quantiles=quantiles)
    return discover(wanted, list(fleet.values()))


def transcripts(name: str, fleet: Fleet, domain: Domain, **parameters: Any) -> Mapping[str, Transcript]:
    """Learn, and return what each vehicle sent."""
    scheme = catalogue.load(name)
    result: dict[str, Transcript] = {agent: [] for agent in fleet}
    simulation.federated(
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
