"""Promise 4 for frbc: strengths of rules tell no row, not even to who asks about all cells around one."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.audit.report import truth
from glassfleet.audit.strengths import rows_behind_strengths
from glassfleet.data.condense import condense
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.schemes.frbc.matching import pack
from glassfleet.schemes.frbc.messages import Candidates, Question
from glassfleet.schemes.frbc.params import Parameters
from tests.privacy.transcripts import (
    Count,
    Fleet,
    Transcript,
    count,
    domain_of,
    fleets_of,
    qoe,
    table,
    total,
    transcripts,
    view_of,
)

SETS = ("weather_izmir", "mortgage", "california", "qoe", "magic")
MOST_ROWS = 3000
"""Of all vehicles together: the attack's time grows with the square of the cells."""

FINE = 9
"""Sets of an input: with as many, most rows are alone in their cell. The default is 3."""


def fleet_of(folder: Path, name: str, vehicles: int) -> tuple[Fleet, Domain]:
    """Return rows with classes: magic's own, else the upper half of the target and the lower."""
    if name == "magic":
        return magic(folder, vehicles)
    fleet = qoe(folder, vehicles) if name == "qoe" else table(folder, name, vehicles, rows=MOST_ROWS)
    most = MOST_ROWS // vehicles
    fleet = {agent: replace(data, X=data.X[:most], y=data.y[:most]) for agent, data in fleet.items()}
    domain = domain_of(fleet)
    middle = np.median(np.concatenate([data.y for data in fleet.values()]))
    classes = {
        agent: replace(data, y=np.where(data.y > middle, "high", "low"), memo={}) for agent, data in fleet.items()
    }
    return classes, Domain(features=domain.features, label=domain.target_name, classes=("high", "low"))


def magic(folder: Path, vehicles: int) -> tuple[Fleet, Domain]:
    with gzip.open(folder / "magic.csv.gz", "rt", encoding="utf-8", newline="") as file:
        names, *lines = csv.reader(file)
    values = np.array(lines)[np.random.default_rng(0).permutation(len(lines))[:MOST_ROWS]]
    fleet = {
        f"v{place:02d}": Dataset(tuple(names[:-1]), names[-1], part[:, :-1].astype(np.float64), part[:, -1])
        for place, part in enumerate(np.array_split(values, vehicles))
    }
    wanted = DiscoveryParameters(features=tuple(names[:-1]), target=names[-1], classes=("g", "h"))
    return fleet, discover(wanted, list(fleet.values()))


def neighbours_asked(fleet: Fleet, domain: Domain, parameters: Parameters) -> dict[str, Transcript]:
    """Ask each vehicle about its own cells and all that are one set away, in all classes: no honest question."""
    client, rng = catalogue.load("frbc").client, np.random.default_rng(0)
    told: dict[str, Transcript] = {}
    for agent, data in fleet.items():
        rules = client.contribute(Question("rules", parameters, domain).to_task(), data, rng)
        width, classes = len(domain.features), len(domain.classes)
        own = Candidates.from_value(rules.values, width, parameters.n_sets, classes)
        steps = np.concatenate([np.zeros((1, width)), np.eye(width), -np.eye(width)])
        cells = np.unique((own.antecedents[:, None] + steps).reshape(-1, width), axis=0)
        cells = cells[((cells >= 0) & (cells < parameters.n_sets)).all(axis=1)].repeat(classes, axis=0).astype(np.int8)
        labels = np.tile(np.arange(classes, dtype=np.int16), len(cells) // classes)
        asked = Candidates(pack(cells, parameters.n_sets), labels, cells)
        task = Question("strengths", parameters, domain, asked).to_task()
        told[agent] = [(task, client.contribute(task, data, rng))]
    return told


def honest(fleet: Fleet, domain: Domain, parameters: Parameters) -> dict[str, Transcript]:
    return dict(transcripts("frbc", fleet, domain, **parameters.model_dump()))


Asking = Callable[[Fleet, Domain, Parameters], dict[str, Transcript]]


def attacked(fleet: Fleet, domain: Domain, told: dict[str, Transcript]) -> Count:
    return total(
        [count(rows_behind_strengths(view_of(told[agent])), truth(domain, data)) for agent, data in fleet.items()]
    )


@pytest.mark.parametrize(("name", "vehicles"), fleets_of(SETS))
def test_attacker_reads_no_row_from_strengths_of_a_default_run(name: str, vehicles: int, glassfleet_data: Path) -> None:
    fleet, domain = fleet_of(glassfleet_data, name, vehicles)
    questions: list[tuple[Asking, Parameters]] = [(honest, Parameters()), (neighbours_asked, Parameters(n_sets=FINE))]
    for ask, parameters in questions:
        found = attacked(fleet, domain, ask(fleet, domain, parameters))
        assert found.read == 0, found


@pytest.mark.parametrize(("name", "least"), [("weather_izmir", 0.3), ("mortgage", 0.02), ("qoe", 0.1)])
def test_the_same_attack_reads_rows_that_are_used_as_they_are_and_knows_that_it_is_right(
    name: str, least: float, glassfleet_data: Path
) -> None:
    fleet, domain = fleet_of(glassfleet_data, name, 15)
    found = attacked(fleet, domain, neighbours_asked(fleet, domain, Parameters(n_sets=FINE, min_rows=1)))
    assert found.read > least * found.rows, found
    assert found.false == 0, found


@pytest.mark.parametrize(("name", "vehicles"), fleets_of(SETS))
def test_no_row_is_near_a_made_up_one_of_its_class(name: str, vehicles: int, glassfleet_data: Path) -> None:
    fleet, domain = fleet_of(glassfleet_data, name, vehicles)
    counts = []
    for data in fleet.values():
        rows = truth(domain, data)
        for label in range(len(domain.classes)):
            own = rows[rows[:, -1] == label, :-1]
            counts.append(count(condense(own, 3), own))
    assert total(counts).read == 0, total(counts)
