"""One vehicle of a fleet is wrong, or lies: what that does to limits, rows and models. Real halves, the real engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coordinator.engine import Answer, Engine, Offer, Publish, RunState, SendReceipt
from coordinator.engine.events import to_value
from coordinator.runs.view import run_document
from coordinator.specification.run import RunSpec
from edge_agent.models.summed import summed
from edge_agent.session.answers import client_of
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.rows import drawn_for
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError
from glassfleet.evaluation.scores import SCORES
from glassfleet.numerics.grids import Grid
from schemas import codec
from schemas.codec import document_digest
from schemas.messages import ContributionBody
from tests.support.engine_bench import Play, fold
from tests.support.sample_models import search

RNG = np.random.default_rng(0)
FEATURES = ("speed", "load")
PARAMETERS = DiscoveryParameters(features=FEATURES, target="quality")


def vehicle(number: int, rows: int = 200, factor: float = 1.0) -> Dataset:
    rng = np.random.default_rng(number)
    X = rng.normal(50.0, 10.0, (rows, 2))
    y = np.clip(0.01 * X[:, 0] + rng.normal(0, 0.02, rows), 0.0, 1.0)
    return Dataset(FEATURES, "quality", X * factor, y)


def fleet(size: int = 15, **wrong: Any) -> list[Dataset]:
    """The last vehicle of the fleet is `wrong`."""
    return [*(vehicle(number) for number in range(size - 1)), vehicle(size - 1, **wrong)]


@pytest.mark.parametrize("factor", [1e-6, 3.0, 100.0, 1e3, 1e9, -1e6])
@pytest.mark.parametrize("quantiles", [(0.025, 0.975), (0.001, 0.999), (0.0, 1.0)])
def test_one_vehicle_with_a_unit_mistake_leaves_the_limits_as_they_are(
    factor: float, quantiles: tuple[float, float]
) -> None:
    parameters = PARAMETERS.model_copy(update={"input_quantiles": quantiles})
    right, wrong = (discover(parameters, vehicles) for vehicles in (fleet(), fleet(factor=factor)))
    for one, other in zip(right.features, wrong.features, strict=True):
        # Three times as much overlaps with what is right: it may widen the range, by less than twice.
        width = (0.1 if factor != 3.0 else 1.0) * (one.high - one.low)
        assert abs(other.low - one.low) < width
        assert abs(other.high - one.high) < width


def test_two_wrong_vehicles_of_four_are_believed_for_nobody_can_tell_who_is_right() -> None:
    guarded, plain = (
        discover(PARAMETERS.model_copy(update={"guarded": guarded}), fleet(4, factor=1e6)) for guarded in (True, False)
    )
    assert guarded == plain
    assert guarded.features[0].high > 1e6


def test_claimed_rows_decide_no_limit() -> None:
    def claim(task: Task, answer: Contribution) -> Contribution:
        if answer.agent != "v14" or task.body["round"] > 1:
            return answer
        one = np.zeros_like(answer.sums["counts"])
        begin = 0
        for grid in (Grid.from_value(task.body["columns"][name]) for name in sorted(task.body["columns"])):
            one[begin + int(np.argmax(answer.sums["counts"][begin : begin + grid.size]))] = 2 * 10**9
            begin += grid.size
        return replace(answer, rows=2 * 10**9, sums={"counts": one, "outside": answer.sums["outside"]})

    result = search(PARAMETERS, fleet(), claim)[1]
    assert result.summary["max_rows_each"] == 5 * 208, "200 rows are in the bin from 192 to 208"
    assert result.summary["guard"]["rows"] == {"v14": 2 * 10**9}
    right = discover(PARAMETERS, fleet())
    for one, other in zip(right.features, result.model.features, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=6)


def test_vehicles_count_themselves_where_only_sums_are_seen_and_nowhere_else() -> None:
    counts = ("vehicles", "row_counts")
    plain = DISCOVERY.server.start(PARAMETERS).task
    assert not set(counts) & set(DISCOVERY.client.contribute(plain, vehicle(1), RNG).sums)
    task = DISCOVERY.server.start(DISCOVERY.private(PARAMETERS)).task
    answer = DISCOVERY.client.contribute(task, vehicle(1), RNG)
    DISCOVERY.server.check(task, answer)
    for name in counts:
        wrong = {**answer.sums, name: 1 + answer.sums[name]}
        with pytest.raises(ContributionError, match="ones of 1 vehicles"):
            DISCOVERY.server.check(task, replace(answer, sums=wrong))


def test_rows_beyond_a_bound_do_not_give_the_rest_of_the_edge_bin_away() -> None:
    parameters = PARAMETERS.model_copy(update={"bounds": {"speed": (0.0, 100.0)}})
    data = vehicle(1)
    data.X[:5, 0], data.X[5, 0] = 200.0, 99.9  # the last bin holds six rows; five of them are outside
    step = DISCOVERY.server.start(parameters)
    answer = DISCOVERY.client.contribute(step.task, data, RNG)
    row = sorted(step.task.body["columns"]).index("speed")
    assert answer.sums["outside"][row, 1] == 0, "six less five would tell that one row is within 0.4 of the bound"
    data.X[5, 0] = 50.0
    answer = DISCOVERY.client.contribute(step.task, data, RNG)
    assert answer.sums["outside"][row, 1] == 5


# The same with the engine: real tasks, answered as agents answer them.


class Drive(Play):
    """A run of real vehicles, some of which claim more rows than they have."""

    def __init__(self, spec: RunSpec, vehicles: Mapping[str, Dataset], lies: Mapping[str, int]) -> None:
        self.vehicles, self.lies = vehicles, lies
        offer = Offer(frozenset({spec.scheme}), FEATURES, "quality")
        super().__init__(spec, tuple(vehicles), Engine(), offer=offer)

    def run(self) -> RunState:
        while not self.is_over():
            assert self.state.open is not None
            task, asked = self.task, self.state.open.asked
            for name in asked:
                if self.task is task:
                    self.send(self._answer(name, task))
        return self.state

    @property
    def reasons(self) -> dict[str, str]:
        """Why answers were rejected, by vehicle."""
        return {each.agent: each.receipt.reason for each in self.of(SendReceipt) if each.receipt.outcome == "rejected"}

    def _answer(self, name: str, task: Task) -> Answer:
        data = drawn_for(task, self.vehicles[name])
        if task.scheme == SCORES.name:
            answer = summed(task, data, vehicle(99, rows=60))
        else:
            answer = client_of(task.scheme).contribute(task, data, RNG)
        times = self.lies.get(name, 1)
        answer = replace(
            answer, rows=answer.rows * times, sums={key: part * times for key, part in answer.sums.items()}
        )
        if times > 1 and task.scheme == "domain":
            answer = replace(answer, sums={key: answer.sums[key] for key in ("counts", "outside")})
        # Of condensed rows, some are left out; what an agent says that it has are all.
        body = ContributionBody(
            task_digest=task.digest, rows=data.rows * times, data_digest="d" * 64, contribution=answer.to_value()
        )
        return Answer.of(0.0, name, body)


def a_run(vehicles: list[Dataset], **how: Any) -> Drive:
    lies = how.pop("lies", {})
    spec = RunSpec.from_document({"run": "r", "scheme": "tree", **how})
    return Drive(spec, {f"v{number:02d}": data for number, data in enumerate(vehicles)}, lies)


@pytest.mark.parametrize("given", [None, 150])
def test_the_fleet_learns_the_central_model_of_the_rows_that_count(given: int | None) -> None:
    parameters = catalogue.load("tree").exact(catalogue.load("tree").Parameters(max_rules=4)).model_dump(mode="json")
    drive = a_run(fleet(6, rows=5000), parameters=parameters, max_rows_each=given)
    state = drive.run()
    assert state.phase == "finished", state.reason
    most = given or 5 * 208
    assert state.max_rows_each == most
    assert state.frozen["v05"][0] == most, "the rows that are shown are those that count"
    (published,) = drive.of(Publish)
    document = published.model.to_document()
    model, scheme = published.model, catalogue.load("tree")
    shuffled = {name: _shuffled(data) for name, data in drive.vehicles.items()}
    rows = [simulation.counted_rows(shuffled[name], model.domain, most) for name in state.cohort]
    assert [data.rows for data in rows] == [min(200, most)] * 5 + [most]
    chosen = scheme.Parameters.model_validate(document["parameters"])
    central = simulation.central(scheme, chosen, model.domain, pool(rows)).model.to_document()
    assert document_digest(central) == document_digest(document)
    apart = simulation.federated(scheme, chosen, model.domain, shuffled, max_rows_each=most).model.to_document()
    assert apart == document


@pytest.mark.parametrize(("scheme", "participation"), [("tree", "cohort"), ("frt", "elastic")])
def test_a_fleet_with_a_given_domain_is_asked_again_with_a_limit_when_one_has_far_more_rows(
    scheme: str, participation: str
) -> None:
    domain = discover(PARAMETERS, fleet()).to_document()
    how: dict[str, Any] = {"scheme": scheme, "domain": domain, "participation": participation}
    honest = a_run(fleet(6, rows=5000), **how).run()
    assert honest.phase == "finished", honest.reason
    assert honest.cohort == tuple(f"v{number:02d}" for number in range(6))
    assert (honest.max_rows_each, honest.frozen["v05"][0]) == (1040, 1040)
    assert honest.guard["rows"] == {"v05": 5000}
    drive = a_run(fleet(6), **how, lies={"v05": 100})
    state = drive.run()
    assert state.phase == "finished", state.reason
    assert drive.reasons == {"v05": "impossible: v05 claims 20000 rows; the run counts 1040 (max_rows_each)"}
    counted = [set(summary.accepted_agents) for summary in state.rounds]
    assert "v05" in counted[0]
    assert all("v05" not in agents for agents in counted[1:]), "what it claimed at first is in no model"


def test_the_run_tells_who_stands_out_and_goes_on_from_its_journal() -> None:
    drive = a_run(fleet(factor=1e6), parameters={"max_rules": 4}, without=["v02"])
    state = drive.run()
    assert state.phase == "finished", state.reason
    assert "v02" not in state.cohort
    document = run_document(Engine(), state, started=0.0, ended=1.0, model=None)
    assert document["far_out"] == [["v14", "100% of its rows lie outside the limits of 'load', 100% of 'speed'"]]
    assert document["max_rows_each"] == 1040
    again = fold(Engine(), [codec.encode(to_value(event)) for event in drive.events])
    assert run_document(Engine(), again, started=0.0, ended=1.0, model=None) == document


@pytest.mark.parametrize("lies", [False, True])
def test_the_run_names_who_lies_about_the_target_by_what_the_others_would_gain(*, lies: bool) -> None:
    vehicles = fleet(8)
    vehicles[-1].y[:] = 1.0 - vehicles[-1].y if lies else vehicles[-1].y
    drive = a_run(vehicles, parameters={"max_rules": 4}, lies={"v07": 5} if lies else {})
    state = drive.run()
    assert state.phase == "finished", state.reason
    document = run_document(Engine(), state, started=0.0, ended=1.0, model=None)
    assert [agent for agent, _ in document["far_out"]] == (["v07"] if lies else [])
    if lies:
        assert state.harmful is not None
        assert state.harmful.without == pytest.approx(0.02, abs=0.01), "in the target's unit: the honest rows' noise"
        assert state.harmful.error > 0.05
        assert document["far_out"][0][1] == state.harmful.in_words("it")
    again = fold(Engine(), [codec.encode(to_value(event)) for event in drive.events])
    assert again.harmful == state.harmful


def _shuffled(data: Dataset) -> Dataset:
    order = np.random.default_rng(9).permutation(data.rows)
    return Dataset(data.features, data.target, data.X[order], data.y[order])


def test_a_wrong_vehicle_of_five_with_ten_times_the_rows_sets_no_limit() -> None:
    right, wrong = (
        discover(PARAMETERS, fleet(5, rows=rows, factor=factor)) for rows, factor in ((200, 1), (2000, 1e6))
    )
    assert wrong.features[0].high == pytest.approx(right.features[0].high, rel=0.1)
