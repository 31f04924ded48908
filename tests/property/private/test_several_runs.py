"""Ten private runs in a row of a fleet that changes: no honest vehicle refuses, and no combination is about few.

Vehicles join, are missing, are lost in the middle of runs, and have other rows from one run to the next. What the
coordinator decides is the product's: who takes part and in which groups, and who leaves with those that are lost. So
are the vehicles' rules and what they keep. The attacker has all sums that were opened, and exact linear algebra.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.engine import pairing
from coordinator.engine.rounds import shrink
from coordinator.engine.state import Stored
from glassfleet.contract.messages import Contribution, Task
from glassfleet.private import chain
from glassfleet.private.groups import Edition, Terms
from glassfleet.private.totals import Member, Total, singled_out
from schemas.codec import digest_of
from tests.support.privacy.private_rules import COMPANY, Honest, least_told

BODY = {"parameters": {"depth": 3}, "domain": {"a": 1}}


class Fleet:
    """Vehicles, an honest coordinator, and what it has opened."""

    def __init__(self, size: int) -> None:
        self.vehicles: dict[str, Honest] = {}
        self.earlier: list[Total] = []
        self.opened: dict[frozenset[Member], None] = {}
        self.finished: list[int] = []
        self.join(size)

    def join(self, count: int) -> None:
        for _ in range(count):
            name = f"v{len(self.vehicles):03d}"
            self.vehicles[name] = Honest(name)

    def run(self, number: int, there: Collection[str], losses: list[set[str]], company: int = COMPANY) -> None:
        """Hold a run with those that are there; in each question some are lost for good."""
        terms = Terms(
            "fleet", f"run-{number}", f"nonce {number}", "frt", digest_of(BODY["parameters"]), company=company
        )
        answers, frozen = {}, {}
        for name in sorted(there):
            own = self.vehicles[name].announce(terms)
            values = {field: own.to_value()[field] for field in pairing.ANNOUNCED} | {pairing.SEALED: b"sealed"}
            answers[name] = Stored("", 0, Contribution("keys", 0, values=values))
            frozen[name] = (0, own.data_digest)
        paired = pairing.founders(terms, sorted(there), frozen, answers, self.earlier)
        table, summed = [*self.earlier], [each.total for each in paired.editions]
        editions, lost = paired.editions, set[str]()
        for level, gone in enumerate([*losses, set[str]()]):
            lost |= gone
            while editions:
                task = Task("frt", "level", {**BODY, "level": level}, terms.nonce)
                missing = self.ask(editions, task, lost, table)
                if not missing:
                    break
                editions, _ = shrink(editions, dict.fromkeys(missing, "lost"), (), [*summed, *self.earlier])
                summed += [each.total for each in editions if each.total not in summed]
        self.finished.append(sum(len(each.members) for each in editions))
        self.earlier = list(dict.fromkeys([*summed, *self.earlier]))
        for vehicle in self.vehicles.values():
            vehicle.end()

    def ask(self, editions: Collection[Edition], task: Task, lost: Collection[str], table: list[Total]) -> list[str]:
        """Ask all groups, note what is opened, and return who did not answer. A refusal is raised."""
        missing = []
        for edition in editions:
            silent = [agent for agent in edition.members if agent in lost]
            for agent in set(edition.members) - set(silent):
                self.vehicles[agent].answer(edition.roster, edition.number, edition.members, task, table)
            missing += silent
            if not silent:
                self.opened[frozenset(edition.total.members)] = None
        return missing


def check(fleet: Fleet) -> None:
    for view in range(3):
        assert least_told(([each.views[view] for each in members] for members in fleet.opened), COMPANY) is None


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All vehicles of a group look at the same sums: here one looks for all."""
    looked = lru_cache(maxsize=256)(singled_out)
    monkeypatch.setattr(chain, "singled_out", lambda totals, company: looked(tuple(totals), company))


def ten_runs(data: st.DataObject, size: int) -> None:
    fleet = Fleet(size)
    for number in range(10):
        fleet.join(data.draw(st.sampled_from([0, 0, 1, 1, 2, 3, 5])))
        names = sorted(fleet.vehicles)
        for name in data.draw(st.sets(st.sampled_from(names), max_size=6) | st.just(set(names))):
            first = data.draw(st.sampled_from([0, 5, 20, 100])) + 1000 * (number // 4)
            fleet.vehicles[name].change(first, tests=data.draw(st.booleans()))
        absent = data.draw(st.sets(st.sampled_from(names), max_size=3))
        losses = data.draw(st.lists(st.sets(st.sampled_from(names), max_size=3), max_size=3))
        fleet.run(number, set(names) - absent, losses)
    check(fleet)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), size=st.sampled_from([9, 12, 15]))
def test_ten_runs_of_a_fleet_that_changes_tell_of_no_few_vehicles(data: st.DataObject, size: int) -> None:
    ten_runs(data, size)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), size=st.sampled_from([9, 15, 24, 63, 64, 70, 100]))
def test_many_times_ten_runs_of_larger_fleets_tell_of_no_few_vehicles(data: st.DataObject, size: int) -> None:
    ten_runs(data, size)


def test_few_vehicles_with_new_rows_answer_from_the_old_ones_until_others_have_some() -> None:
    fleet = Fleet(12)
    fleet.run(0, fleet.vehicles, [])
    for number, name in enumerate(["v000", "v001", "v002"], 1):
        fleet.vehicles[name].change(20)
        fleet.run(number, fleet.vehicles, [])
    assert fleet.finished == [12] * 4
    assert [vehicle.rows.training[0] for vehicle in fleet.vehicles.values()][:4] == [20, 20, 20, 0]
    check(fleet)


def test_a_fleet_that_loses_one_vehicle_in_each_run_goes_on_learning() -> None:
    fleet = Fleet(40)
    for number in range(8):
        fleet.run(number, fleet.vehicles, [{f"v{5 * number:03d}"}])
    assert min(fleet.finished) >= 30, fleet.finished
    check(fleet)


@pytest.mark.parametrize("company", [4, 6])
def test_a_run_that_asks_for_more_company_does_not_lock_the_fleet_out(company: int) -> None:
    fleet = Fleet(20)
    fleet.run(0, fleet.vehicles, [{"v003"}])  # three leave together
    for number in (1, 2):
        fleet.run(number, fleet.vehicles, [], company)
    assert fleet.finished == [17, 20, 20]
    check(fleet)
