"""Promise 4 for strengths of rules and for histograms: they tell no row, also to a coordinator that narrows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from glassfleet.contract import catalogue
from glassfleet.contract.catalogue import load
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.data.domain import INPUT_QUANTILES, Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.schemes.frbc.matching import pack
from glassfleet.schemes.frbc.messages import Candidates, FrbcQuestion
from glassfleet.schemes.frbc.params import FrbcParameters
from lab.audit.report import truth
from lab.audit.strengths import rows_behind_strengths
from tests.support.datasets import DRIVES, dataset, numbers
from tests.support.privacy.attacks_discovery import (
    ask_below,
    changed,
    ranges_of,
    row_that_joins,
    single_values,
    sorted_values,
    values_of,
)
from tests.support.privacy.transcripts import (
    Count,
    Fleet,
    Transcript,
    count,
    dealt,
    domain_of,
    fleet_of,
    fleets_of,
    total,
    transcripts,
    view_of,
)
from tests.support.sample_models import search

SETS = ("weather_izmir", "mortgage", "california", "qoe", "magic", "diabetes", "breast_cancer", "simulated")
MOST_ROWS = 3000
"""Of all vehicles together: the attack's time grows with the square of the cells."""

FINE = 9
"""Sets of an input: with as many, most rows are alone in their cell. The default is 3."""


def classes_of(name: str, vehicles: int) -> tuple[Fleet, Domain]:
    """Return rows with the set's own classes, or the upper half of the target and the lower."""
    if name not in DRIVES and dataset(name).y.dtype.kind == "U":
        fleet = dealt(dataset(name), vehicles, MOST_ROWS)
        one = next(iter(fleet.values()))
        classes = tuple(np.unique(dataset(name).y))
        wanted = DiscoveryParameters(features=one.features, target=one.target, classes=classes)
        return fleet, discover(wanted, list(fleet.values()))
    fleet = fleet_of(name, vehicles) if name in DRIVES else dealt(numbers(name), vehicles, MOST_ROWS)
    most = MOST_ROWS // vehicles
    fleet = {agent: replace(data, X=data.X[:most], y=data.y[:most]) for agent, data in fleet.items()}
    domain = domain_of(fleet)
    middle = np.median(np.concatenate([data.y for data in fleet.values()]))
    labelled = {
        agent: replace(data, y=np.where(data.y > middle, "high", "low"), memo={}) for agent, data in fleet.items()
    }
    return labelled, Domain(features=domain.features, label=domain.target_name, classes=("high", "low"))


def neighbours_asked(fleet: Fleet, domain: Domain, parameters: FrbcParameters) -> dict[str, Transcript]:
    """Ask each vehicle about its own cells and all that are one set away, in all classes: no honest question."""
    client, rng = catalogue.load("frbc").client, np.random.default_rng(0)
    result: dict[str, Transcript] = {}
    for agent, data in fleet.items():
        rules = client.contribute(FrbcQuestion("rules", parameters, domain).to_task(), data, rng)
        width, classes = len(domain.features), len(domain.classes)
        own = Candidates.from_value(rules.values, width, parameters.n_sets, classes)
        steps = np.concatenate([np.zeros((1, width)), np.eye(width), -np.eye(width)])
        cells = np.unique((own.antecedents[:, None] + steps).reshape(-1, width), axis=0)
        cells = cells[((cells >= 0) & (cells < parameters.n_sets)).all(axis=1)].repeat(classes, axis=0).astype(np.int8)
        labels = np.tile(np.arange(classes, dtype=np.int16), len(cells) // classes)
        asked = Candidates(pack(cells, parameters.n_sets), labels, cells)
        task = FrbcQuestion("strengths", parameters, domain, asked).to_task()
        result[agent] = [(task, client.contribute(task, data, rng))]
    return result


def honest(fleet: Fleet, domain: Domain, parameters: FrbcParameters) -> dict[str, Transcript]:
    return dict(transcripts("frbc", fleet, domain, **parameters.model_dump()))


Asking = Callable[[Fleet, Domain, FrbcParameters], dict[str, Transcript]]


def attacked(fleet: Fleet, domain: Domain, result: dict[str, Transcript]) -> Count:
    return total(
        [count(rows_behind_strengths(view_of(result[agent])), truth(domain, data)) for agent, data in fleet.items()]
    )


def often(sets: Iterable[str]) -> list[Any]:
    """Return :func:`fleets_of` some sets; of five of these all is slow."""
    rare = ("weather_izmir", "mortgage", "california", "magic", "simulated")
    slow = pytest.mark.slow
    return [pytest.param(*each.values, marks=slow) if each.values[0] in rare else each for each in fleets_of(sets)]


@pytest.mark.parametrize(("name", "vehicles"), often(SETS))
def test_attacker_reads_no_row_from_strengths_of_a_default_run(name: str, vehicles: int) -> None:
    fleet, domain = classes_of(name, vehicles)
    questions: list[tuple[Asking, FrbcParameters]] = [
        (honest, FrbcParameters()),
        (neighbours_asked, FrbcParameters(n_sets=FINE)),
    ]
    for ask, parameters in questions:
        result = attacked(fleet, domain, ask(fleet, domain, parameters))
        assert result.read == 0, result


@pytest.mark.parametrize(
    ("name", "least"),
    [
        *(("qoe", 0.1), ("diabetes", 0.1)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("weather_izmir", 0.3), ("mortgage", 0.02), ("simulated", 0.05))
        ),
    ],
)
def test_the_same_attack_reads_rows_that_are_used_as_they_are_and_knows_that_it_is_right(
    name: str, least: float
) -> None:
    fleet, domain = classes_of(name, 15)
    result = attacked(fleet, domain, neighbours_asked(fleet, domain, FrbcParameters(n_sets=FINE, min_rows=1)))
    assert result.read > least * result.rows, result
    assert result.false == 0, result


HISTOGRAM_SETS = ("weather_izmir", "mortgage", "california", "qoe", "diabetes", "simulated")


class Read(NamedTuple):
    """Values read, of so many; places that do not hold as many values as was read; most columns of one row."""

    read: int
    values: int
    false: int
    columns: int


def told_of(
    fleet: Fleet, min_count: int, quantiles: tuple[float, float] = INPUT_QUANTILES
) -> tuple[Domain, dict[str, Transcript]]:
    one = next(iter(fleet.values()))
    wanted = DiscoveryParameters(
        features=one.features, target=one.target, input_quantiles=quantiles, min_count=min_count
    )
    rounds, done = search(wanted, list(fleet.values()))
    result = {agent: [(step.task, answers[place]) for step, answers in rounds] for place, agent in enumerate(fleet)}
    return done.model, result


def histograms_attacked(fleet: Fleet, min_count: int, quantiles: tuple[float, float] = INPUT_QUANTILES) -> Read:
    domain, result = told_of(fleet, min_count, quantiles)
    read = values = false = columns = 0
    for agent, data in fleet.items():
        of_row = np.zeros(data.rows, dtype=np.int64)
        for name, each in single_values(result[agent], domain).items():
            own = values_of(data, name)
            values += len(own)
            for place in each:
                inside = (own >= place.low) & (own < place.high)
                false += int(not place.least <= inside.sum() <= place.most)
                read += int(inside.sum())
                of_row += inside
        columns = max(columns, int(of_row.max()))
    return Read(read, values, false, columns)


@pytest.mark.parametrize(("scheme", "share"), [("tree", 0.0012), ("frt", 0.001)])  # tree's limits are further out
@pytest.mark.parametrize(("name", "vehicles"), often(HISTOGRAM_SETS))
def test_attacker_reads_few_single_values_and_no_row_from_the_rounds_of_a_default_search(
    name: str, vehicles: int, scheme: str, share: float
) -> None:
    fleet = fleet_of(name, vehicles)
    result = histograms_attacked(fleet, min_count=3, quantiles=input_quantiles_of(load(scheme)))
    assert result.false == 0
    assert result.read <= share * result.values, result
    # Even if the attacker knew which of the values are of one row.
    assert result.columns <= 3, result


@pytest.mark.parametrize(("name", "share"), [("qoe", 0.03), ("simulated", 0.003)])
def test_the_same_attack_reads_many_values_when_small_counts_are_told(name: str, share: float) -> None:
    fleet = fleet_of(name, 15)
    result = histograms_attacked(fleet, min_count=0)
    assert result.read > share * result.values, result
    assert result.false == 0


@pytest.mark.parametrize("name", ["weather_izmir", "compactiv"])
def test_one_new_row_between_two_default_runs_tells_the_values_that_many_rows_have(name: str) -> None:
    fleet = fleet_of(name, 12)
    (domain, after), data = told_of(fleet, 3), fleet["v00"]
    columns, ranges = (*data.features, data.target), ranges_of(domain)
    read = alone = 0
    for new in range(20):
        old = replace(data, X=np.delete(data.X, new, axis=0), y=np.delete(data.y, new), memo={})
        _, before = told_of({**fleet, "v00": old}, 3)
        of_row = 0
        for column, (low, high) in changed(before["v00"], after["v00"]).items():
            value = values_of(data, column)[new]
            is_read = bool(low <= value <= high and high - low <= 1e-3 * (ranges[column][1] - ranges[column][0]))
            of_row += is_read
            alone += is_read and int((values_of(old, column) == value).sum()) < 3
        read += of_row
        assert of_row < 0.7 * len(columns), "no whole row"
    assert 0.05 < read / (20 * len(columns)) < 0.25, "what docs/explanation/privacy.md says"
    assert alone <= 0.01 * 20 * len(columns)


@pytest.mark.parametrize("name", [pytest.param("weather_izmir", marks=pytest.mark.slow), "mortgage", "breast_cancer"])
def test_values_that_a_coordinator_reads_by_narrowing_are_no_rows(name: str) -> None:
    fleet = fleet_of(name, 15)
    domain, data = domain_of(fleet), fleet["v00"]
    rows = truth(domain, data)
    values = sorted_values(data, domain, 1000)
    is_read = np.abs(np.sort(rows, axis=0) - values) < 1e-3
    assert is_read.mean() > 0.8, "what docs/explanation/privacy.md says"
    # Linked by rank, each column in the direction of its correlation with the target.
    ways = [1 if np.corrcoef(column, rows[:, -1])[0, 1] >= 0 else -1 for column in rows.T]
    linked = np.column_stack([values[::way, place] for place, way in enumerate(ways)])
    assert count(np.nan_to_num(linked, nan=-1.0), rows).read == 0


@pytest.mark.parametrize("name", [pytest.param("weather_izmir", marks=pytest.mark.slow), "mortgage", "diabetes"])
def test_one_row_more_in_the_limit_of_rows_tells_no_row(name: str) -> None:
    fleet = fleet_of(name, 15)
    domain, data = domain_of(fleet), fleet["v00"]
    asked = [partial(ask_below, data, domain, most=most) for most in range(3, data.rows + 1)]
    result = [row_that_joins(fewer, more, len(domain.names) + 1) for fewer, more in itertools.pairwise(asked)]
    assert count(np.array(result), truth(domain, data)).read == 0


@pytest.mark.parametrize(("name", "least"), [("weather_izmir", 10), ("diabetes", 5)])
def test_a_row_that_is_new_is_read_by_narrowing_before_and_after_as_the_page_on_privacy_says(
    name: str, least: int
) -> None:
    fleet = fleet_of(name, 15)
    domain, data = domain_of(fleet), fleet["v00"]
    rows, after = truth(domain, data), partial(ask_below, data, domain)
    read = 0
    for new in range(20):
        old = replace(data, X=np.delete(data.X, new, axis=0), y=np.delete(data.y, new), memo={})
        result = row_that_joins(partial(ask_below, old, domain), after, len(domain.names) + 1)
        read += count(result[None], rows[[new]]).read
    assert read > least
