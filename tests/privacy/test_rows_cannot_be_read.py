"""Promise 4 in a default run: attacks on a vehicle's real transcript compute none of its rows.

Beside each number stands that of a run that uses rows as they are, in which the same attack must find rows: an attack
that finds nothing anywhere would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.data import condense as module
from glassfleet.data.condense import GRID_BITS, condense, condensed
from glassfleet.data.domain import Domain
from lab.audit import sums, tree
from lab.audit.report import truth as rows_of
from lab.audit.sums import Rows
from lab.audit.transcript import View
from schemas.codec import encode
from tests.support.privacy.transcripts import (
    Count,
    Fleet,
    count,
    domain_of,
    fleet_of,
    fleets_of,
    total,
    transcripts,
    view_of,
)

EXACT: dict[str, dict[str, Any]] = {
    "tree": {"min_rows": 1},
    "tree-classes": {"min_rows": 1},
    "frt": {"nullify": False},
    "tsk": {"nullify": False},
}

Attack = Callable[[View], Rows]

ATTACKS: dict[str, tuple[str, Attack]] = {
    "tree bins": ("tree", tree.bins),
    "tree spans": ("tree", tree.spans),
    "tree-classes bins": ("tree-classes", tree.bins),
    "tree-classes spans": ("tree-classes", tree.spans),
    "frt spans": ("frt", sums.spans),
    "frt covariances": ("frt", sums.covariances),
    "frt columns": ("frt", sums.columns),
    "tsk spans": ("tsk", sums.spans),
}

SETS = ("weather_izmir", "mortgage", "california", "qoe", "diabetes", "simulated", "wine")
"""The first four are real ones that a machine may not have."""

CHEAP: dict[str, dict[str, Any]] = {
    "tree": {"max_rules": 8},
    "tree-classes": {"max_rules": 8},
    "frt": {"max_depth": 5},
    "tsk": {},
}
"""Parameters that spare time: fewer and shallower questions than the defaults', as fine."""


def labelled(scheme: str, fleet: Fleet, domain: Domain) -> tuple[Fleet, Domain]:
    """Return the fleet with classes for a classifier: the upper half of the target's range, and the lower."""
    if scheme not in {"tree-classes", "frbc"}:
        return fleet, domain
    classes = {
        agent: replace(data, y=np.where(domain.scale_target(data.y) > 0.5, "high", "low"), memo={})
        for agent, data in fleet.items()
    }
    label = next(iter(fleet.values())).target
    return classes, Domain(features=domain.features, label=label, classes=("high", "low"))


def _plain(scheme: str) -> str:
    return scheme.removesuffix("-classes")


FEW = 3
"""So many vehicles of a fleet are attacked where more would take long."""


@lru_cache(maxsize=2)
def seen(scheme: str, name: str, vehicles: int, *, exact: bool) -> list[tuple[View, Rows]]:
    """Learn; return what an attacker is given of each vehicle, and its rows: the same for all attacks on a scheme."""
    fleet = fleet_of(name, vehicles)
    fleet, domain = labelled(scheme, fleet, domain_of(fleet, _plain(scheme)))
    result = transcripts(_plain(scheme), fleet, domain, **CHEAP[scheme], **(EXACT[scheme] if exact else {}))
    return [(view_of(result[agent]), rows_of(domain, data)) for agent, data in fleet.items()]


def attacked(attack: str, name: str, vehicles: int, *, exact: bool = False, most: int = FEW) -> Count:
    scheme, run = ATTACKS[attack]
    return total([count(run(view), rows) for view, rows in seen(scheme, name, vehicles, exact=exact)[:most]])


SLOW = pytest.mark.slow
OFTEN = [each.values for each in fleets_of(SETS) if not each.marks]
ATTACKED = [
    *((attack, *fleet, FEW) for k, name in enumerate(CHEAP) for fleet in OFTEN[k::4]
      for attack in ATTACKS if ATTACKS[attack][0] == name),
    *(pytest.param(attack, *each.values, 15, marks=SLOW) for each in fleets_of(SETS) for attack in ATTACKS),
]  # fmt: skip
"""Attacks, sets, vehicles, how many are attacked at most: few, each scheme in every fourth set; slow: all of all."""


@pytest.mark.parametrize(("attack", "name", "vehicles", "most"), ATTACKED)
def test_attacker_reads_no_row_of_a_default_run(attack: str, name: str, vehicles: int, most: int) -> None:
    result = attacked(attack, name, vehicles, most=most)
    assert result.read == 0, result


@pytest.mark.parametrize(("attack", "name", "least"), [
    ("tree bins", "diabetes", 0.6), ("tree spans", "diabetes", 0.3), ("tree-classes bins", "diabetes", 0.5),
    ("tree-classes spans", "diabetes", 0.4), ("frt spans", "diabetes", 0.4), ("tsk spans", "wine", 0.1),
    *(pytest.param(*each, marks=SLOW) for each in (
        ("tree bins", "weather_izmir", 0.6), ("tree bins", "qoe", 0.04), ("tree bins", "simulated", 0.02),
        ("tree spans", "mortgage", 0.05), ("tree-classes bins", "mortgage", 0.5),
        ("tree-classes spans", "mortgage", 0.1), ("frt spans", "weather_izmir", 0.1), ("frt spans", "mortgage", 0.05),
        ("tsk spans", "mortgage", 0.004),
    )),
])  # fmt: skip
def test_the_same_attack_reads_rows_when_they_are_used_as_they_are(attack: str, name: str, least: float) -> None:
    result = attacked(attack, name, 15, exact=True)
    assert result.read > least * result.rows, result


def targets_read(fleet: Fleet, parameters: dict[str, Any]) -> int:
    """Return how many vehicles' rows have a target that the remainders of frt's cells give to the last digits."""
    domain = domain_of(fleet)
    result = transcripts("frt", fleet, domain, **parameters)
    answer = 0
    for agent, data in fleet.items():
        targets = np.unique(rows_of(domain, data)[:, -1])
        read = sums.remainders(view_of(result[agent]))
        read = read[:, -1] if len(read) else read.ravel()
        answer += int(sum(bool((np.abs(read - target) < 1e-8).any()) for target in targets))
    return answer


@pytest.mark.parametrize(("name", "least"), [("weather_izmir", 100), ("diabetes", 0), ("simulated", 0)])
def test_cells_that_are_left_tell_no_target_but_under_the_papers_own_nullification(name: str, least: int) -> None:
    fleet = fleet_of(name, 15)
    assert targets_read(fleet, {}) == 0
    assert targets_read(fleet, {"min_rows": 1}) > least


@pytest.mark.parametrize("data", [pytest.param("weather_izmir", marks=SLOW), "diabetes"])
@pytest.mark.parametrize("name", ["tree", "tree-classes", "frbc", "frt", "tsk"])
def test_vehicle_tells_nothing_that_its_condensed_rows_do_not_tell(name: str, data: str) -> None:
    fleet = fleet_of(data, 5)
    fleet, domain = labelled(name, fleet, domain_of(fleet, _plain(name)))
    scheme, rng = catalogue.load(_plain(name)), np.random.default_rng(0)
    parameters: Any = scheme.Parameters.model_validate(CHEAP.get(name, {}))
    exact = scheme.exact(parameters).model_dump(mode="json")
    for agent, transcript in transcripts(_plain(name), fleet, domain, **parameters.model_dump()).items():
        own = condensed(fleet[agent].select(domain.names), domain, parameters.group_rows)
        for task, answer in transcript:
            asked = Task(task.scheme, task.kind, {**task.body, "parameters": exact})
            again = scheme.client.contribute(asked, own, rng)
            assert encode(again.to_value()) == encode(answer.to_value())


def lone_rows(group: Rows) -> Rows:
    """Return, for each column of a group and each of its limits, the row that is alone away from the limit, if one is.

    Of a column that is 0 in all rows but one, the products with the other columns, divided by its sum, are that row.
    """
    away = np.concatenate([group, 1.0 - group], axis=1)
    added, products = away.sum(axis=0), away.T @ group
    result: Rows = products[added > 1e-9] / added[added > 1e-9, None]
    return result


def groups_of(scaled: Rows) -> dict[frozenset[tuple[int, ...]], tuple[Rows, Rows]]:
    """Return the rows of each group, and the made-up ones, by what is in the group: more than any transcript tells."""
    points, count_of = module._distinct(np.rint(scaled * 2.0**GRID_BITS).astype(np.int64))
    result = {}
    for group in module._groups(points, points.shape[1] + 1):
        own = np.repeat(points[group], count_of[group], axis=0)
        mean, scatter = module._moments(points, count_of, [group])
        draw = module._draw(b"secret", points[group], count_of[group], len(own))
        made = np.clip(module._made_up(mean, scatter, draw[None]) / 2.0**GRID_BITS, 0.0, 1.0)
        result[frozenset(map(tuple, points[group].tolist()))] = own / 2.0**GRID_BITS, made
    return result


@pytest.mark.parametrize(("name", "vehicles"), fleets_of(SETS))
def test_no_row_is_near_a_made_up_one_when_all_of_these_are_known(name: str, vehicles: int) -> None:
    fleet = fleet_of(name, vehicles)
    domain = domain_of(fleet)
    result = total([count(condense(rows_of(domain, data), 3), rows_of(domain, data)) for data in fleet.values()])
    assert result.read == 0, result


@pytest.mark.parametrize(("name", "least"), [
    ("weather_izmir", 15), ("mortgage", 0), ("california", 1), ("qoe", 30), ("diabetes", 0), ("simulated", 0),
])  # fmt: skip
def test_row_that_is_alone_in_a_column_of_its_group_is_read_from_exact_sums_and_not_from_made_up_rows(
    name: str, least: int
) -> None:
    # All other rows of the group are at a limit of the column: the products with it, divided by its sum, are the row.
    fleet = fleet_of(name, 15)
    domain = domain_of(fleet)
    exact: list[Count] = []
    drawn: list[Count] = []
    for data in fleet.values():
        rows = rows_of(domain, data)
        for counts, side in ((exact, 0), (drawn, 1)):
            groups = [pair[side] for pair in groups_of(rows).values()]
            counts.append(count(np.concatenate([lone_rows(group) for group in groups]), rows))
    assert total(exact).read >= least
    assert total(drawn).read == 0, total(drawn)


@pytest.mark.parametrize("new", ["one row", "a tenth"])
@pytest.mark.parametrize("name", ["weather_izmir", "qoe", "diabetes"])
def test_rows_that_are_new_in_a_second_run_are_not_the_difference_of_two_groups(name: str, new: str) -> None:
    fleet = fleet_of(name, 15)
    domain, rng = domain_of(fleet), np.random.default_rng(0)
    counts, alike = [], 0
    for data in fleet.values():
        rows = rows_of(domain, data)[rng.permutation(data.rows)]
        more = 1 if new == "one row" else data.rows // 10
        before, after = groups_of(rows[more:]), groups_of(rows if new == "one row" else rows[: data.rows - more])
        differences = [
            after[late][1].sum(axis=0) - before[early][1].sum(axis=0)
            for late in after.keys() - before.keys()
            for early in before.keys() - after.keys()
            if late > early and len(late) == len(early) + 1  # one row joined the group
        ]
        alike += len(differences)
        counts.append(count(np.array(differences), rows))
    assert total(counts).read == 0
    assert alike > 0 or new == "a tenth"
