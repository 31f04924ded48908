"""Promise 4 for discovery: histograms tell few single values, and no row, also to a coordinator that narrows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from glassfleet.catalogue import load
from glassfleet.data.domain import INPUT_QUANTILES, Domain
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.scheme import Done, Next, input_quantiles_of
from tests.privacy.attacks_discovery import ask_below, row_that_joins, single_values, sorted_values, values_of
from tests.privacy.transcripts import Fleet, Transcript, count, domain_of, fleets_of, qoe, table, truth

SETS = ("weather_izmir", "mortgage", "california", "qoe")


class Read(NamedTuple):
    """Values read, of so many; places that do not hold as many values as was read; most columns of one row."""

    read: int
    values: int
    false: int
    columns: int


def fleet_of(folder: Path, name: str, vehicles: int) -> Fleet:
    return qoe(folder, vehicles) if name == "qoe" else table(folder, name, vehicles, rows=6000)


def told_of(
    fleet: Fleet, min_count: int, quantiles: tuple[float, float] = INPUT_QUANTILES
) -> tuple[Domain, dict[str, Transcript]]:
    one, rng = next(iter(fleet.values())), np.random.default_rng(0)
    wanted = DiscoveryParameters(
        features=one.features, target=one.target, input_quantiles=quantiles, min_count=min_count
    )
    told: dict[str, Transcript] = {agent: [] for agent in fleet}
    step: Next | Done = DISCOVERY.server.start(wanted)
    while isinstance(step, Next):
        for agent, data in fleet.items():
            answer = DISCOVERY.client.contribute(step.task, data, rng)
            told[agent].append((step.task, answer))
        step = DISCOVERY.server.reduce(step.state, [transcript[-1][1] for transcript in told.values()])
    domain: Domain = step.model
    return domain, told


def attacked(fleet: Fleet, min_count: int, quantiles: tuple[float, float] = INPUT_QUANTILES) -> Read:
    domain, told = told_of(fleet, min_count, quantiles)
    read = values = false = columns = 0
    for agent, data in fleet.items():
        of_row = np.zeros(data.rows, dtype=np.int64)
        for name, found in single_values(told[agent], domain).items():
            own = values_of(data, name)
            values += len(own)
            for place in found:
                inside = (own >= place.low) & (own < place.high)
                false += int(not place.least <= inside.sum() <= place.most)
                read += int(inside.sum())
                of_row += inside
        columns = max(columns, int(of_row.max()))
    return Read(read, values, false, columns)


@pytest.mark.parametrize(("scheme", "share"), [("fmt", 0.0012), ("frt", 0.001)])  # fmt's limits are further out
@pytest.mark.parametrize(("name", "vehicles"), fleets_of(SETS))
def test_attacker_reads_few_single_values_and_no_row_from_the_rounds_of_a_default_search(
    name: str, vehicles: int, scheme: str, share: float, glassfleet_data: Path
) -> None:
    fleet = fleet_of(glassfleet_data, name, vehicles)
    found = attacked(fleet, min_count=3, quantiles=input_quantiles_of(load(scheme)))
    assert found.false == 0
    assert found.read <= share * found.values, found
    # Even if the attacker knew which of the values are of one row.
    assert found.columns <= 3, found


def test_the_same_attack_reads_many_values_when_small_counts_are_told(glassfleet_data: Path) -> None:
    fleet = fleet_of(glassfleet_data, "qoe", 15)
    found = attacked(fleet, min_count=0)
    assert found.read > 0.03 * found.values, found
    assert found.false == 0


@pytest.mark.parametrize("name", ["weather_izmir", "mortgage"])
def test_values_that_a_coordinator_reads_by_narrowing_are_no_rows(name: str, glassfleet_data: Path) -> None:
    fleet = fleet_of(glassfleet_data, name, 15)
    domain, data = domain_of(fleet), fleet["v00"]
    rows = truth(domain, data)
    values = sorted_values(data, domain, 1000)
    is_read = np.abs(np.sort(rows, axis=0) - values) < 1e-3
    assert is_read.mean() > 0.8, "what docs/explanation/privacy.md says"
    # Linked by rank, each column in the direction of its correlation with the target.
    ways = [1 if np.corrcoef(column, rows[:, -1])[0, 1] >= 0 else -1 for column in rows.T]
    linked = np.column_stack([values[::way, place] for place, way in enumerate(ways)])
    assert count(np.nan_to_num(linked, nan=-1.0), rows).read == 0


@pytest.mark.parametrize("name", ["weather_izmir", "mortgage"])
def test_one_row_more_in_the_limit_of_rows_tells_no_row(name: str, glassfleet_data: Path) -> None:
    fleet = fleet_of(glassfleet_data, name, 15)
    domain, data = domain_of(fleet), fleet["v00"]
    asked = [partial(ask_below, data, domain, most=most) for most in range(3, data.rows + 1)]
    found = [row_that_joins(fewer, more, len(domain.names) + 1) for fewer, more in itertools.pairwise(asked)]
    assert count(np.array(found), truth(domain, data)).read == 0


def test_a_row_that_is_new_is_read_by_narrowing_before_and_after_as_the_page_on_privacy_says(
    glassfleet_data: Path,
) -> None:
    fleet = fleet_of(glassfleet_data, "weather_izmir", 15)
    domain, data = domain_of(fleet), fleet["v00"]
    rows, after = truth(domain, data), partial(ask_below, data, domain)
    read = 0
    for new in range(20):
        old = replace(data, X=np.delete(data.X, new, axis=0), y=np.delete(data.y, new), memo={})
        found = row_that_joins(partial(ask_below, old, domain), after, len(domain.names) + 1)
        read += count(found[None], rows[[new]]).read
    assert read > 10
