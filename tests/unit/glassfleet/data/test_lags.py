"""Memory inputs: what they are, where they start anew, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coordinator.engine import asking
from coordinator.engine.events import Start
from coordinator.engine.state import Offer
from coordinator.runs.defaults import default_engine
from coordinator.specification.run import RunSpec
from edge_agent.session.answers import with_memory
from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.data.lags import Memory, Recall, Recollection, remember
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.errors import TaskError
from glassfleet.scheme import Task
from lab.qoe.simulator import simulate_vehicle
from lab.qoe.windows import FEATURES, MEMORY, rows_of_run
from schemas.documents import document_digest
from schemas.errors import DataError, UsageError


def table(*rows: tuple[float, ...]) -> Dataset:
    numbers = np.array(rows, dtype=np.float64)
    return Dataset(("trip", "at", "x"), "y", numbers[:, :3], numbers[:, 3])


DATA = table((1, 0, 10, 0.1), (1, 1, 13, 0.2), (1, 2, 11, 0.3), (2, 0, 50, 0.4), (2, 1, 55, 0.5))
CHANGE = Memory.from_document({"memory": [{"input": "x", "difference": 1}], "drive": "trip", "time": "at"})


def test_change_is_zero_at_the_start_of_each_drive_and_never_crosses_drives():
    got = remember(DATA, CHANGE)
    assert got.features == ("x", "x_change_1")
    assert got.X[:, 1].tolist() == [0, 3, -2, 0, 5]
    assert got.y.tolist() == DATA.y.tolist()


def test_lag_holds_the_first_row_or_drops_those_before_it_as_declared():
    recalls = (Recall(input="x", lag=1), Recall(input="x", difference=1, lag=1))
    held = remember(DATA, Memory(inputs=recalls, drive="trip"))
    assert held.features == ("at", "x", "x_before_1", "x_change_1_before_1")
    assert held.X[:, 2:].tolist() == [[10, 0], [10, 0], [13, 3], [50, 0], [50, 0]]
    dropped = remember(DATA, Memory(inputs=recalls, drive="trip", start="drop"))
    assert dropped.X[:, 1:].tolist() == [[11, 13, 3]]
    assert dropped.y.tolist() == [0.3]


def test_rows_are_put_in_the_order_of_time_and_come_back_in_their_own():
    order = [4, 2, 0, 3, 1]
    mixed = Dataset(DATA.features, DATA.target, DATA.X[order], DATA.y[order])
    assert remember(mixed, CHANGE).X.tolist() == remember(DATA, CHANGE).X[order].tolist()


def test_memory_starts_anew_after_a_gap_when_the_step_is_declared():
    gap = table((1, 0, 10, 0), (1, 1, 12, 0), (1, 5, 20, 0), (1, 6, 21, 0))
    memory = CHANGE.model_copy(update={"step": 1.0})
    assert remember(gap, memory).X[:, 1].tolist() == [0, 2, 0, 1]
    assert remember(gap, CHANGE).X[:, 1].tolist() == [0, 2, 8, 1]


def test_target_is_remembered_only_from_when_it_was_known():
    rows = table(*((1, second, second, second / 10) for second in range(8)))
    memory = Memory(inputs=(Recall(input="target", lag=3),), drive="trip", time="at", horizon=3, start="drop")
    got = remember(rows, memory)
    assert got.features == ("x", "target_before_3")
    assert got.X[:, 1].tolist() == rows.y[:5].tolist()
    assert got.X[:, 0].tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"memory": []}, "at least 1 item"),
        ({"memory": [{"input": "x"}]}, "a difference or a lag"),
        ({"memory": [{"input": "x", "lag": -1}]}, "greater than or equal to 0"),
        ({"memory": [{"input": "x", "lag": 1}, {"input": "x", "lag": 1}]}, "different names"),
        ({"memory": [{"input": "trip", "lag": 1}], "drive": "trip"}, "no input"),
        ({"memory": [{"input": "x", "lag": 1}], "step": 1}, "name the time column"),
        ({"memory": [{"input": "target", "lag": 2}], "start": "drop"}, "how many rows ahead"),
        ({"memory": [{"input": "target", "lag": 2}], "horizon": 3, "start": "drop"}, "at least 3"),
        ({"memory": [{"input": "target", "difference": 5}], "horizon": 3, "start": "drop"}, "at least 3"),
        ({"memory": [{"input": "target", "lag": 3}], "horizon": 3}, 'needs start "drop"'),
        ({"memory": [{"input": "x", "lag": 1}], "driv": "trip"}, "driv"),
        ([1], "valid dictionary"),
    ],
)
def test_declaration_is_refused_in_words_when_it_cannot_be_meant(document, words):
    with pytest.raises(UsageError, match="memory inputs") as told:
        Memory.from_document(document)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("data", "memory", "words"),
    [
        (DATA, Memory(inputs=(Recall(input="z", lag=1),)), "no column 'z'"),
        (DATA, Memory(inputs=(Recall(input="x", lag=1, name="at"), Recall(input="x", lag=2))), "a column 'at' already"),
        (table((1, 0, 1, 0), (1, 0, 2, 0)), CHANGE, "the same time 0"),
        (table((1, 0, 1, 0), (2, 0, 2, 0), (1, 1, 2, 0)), CHANGE.model_copy(update={"time": ""}), "not together"),
    ],
)
def test_rows_are_refused_in_words_when_they_cannot_be_put_in_order(data, memory, words):
    with pytest.raises(DataError) as told:
        remember(data, memory)
    assert words in str(told.value)


def test_recollection_refuses_a_row_out_of_order_and_goes_on_as_if_it_had_not_come():
    recollection = Recollection(CHANGE)
    recollection.push({"trip": 1, "at": 5, "x": 2.0})
    for at, x in ((5, 9.0), (4, 9.0), (6, float("nan"))):
        row = {"trip": 1, "at": at, "x": x}
        with pytest.raises(ValueError, match=r"in the order|not a finite"):
            recollection.push(row)
    assert recollection.push({"trip": 1, "at": 6, "x": 3.0}) == {"x": 3.0, "x_change_1": 1.0}


def test_domain_carries_the_declaration_and_its_document_is_as_before_without_one():
    data = {"v": DATA}
    found = discover(DiscoveryParameters(features=("x", "x_change_1"), target="y").remembering(CHANGE), [DATA])
    assert found.memory == CHANGE
    assert found.needs == ("x", "trip", "at")
    assert Domain.from_document(json.loads(json.dumps(found.to_document()))) == found
    plain = discover(DiscoveryParameters(features=("x",), target="y"), list(data.values()))
    assert "memory" not in plain.to_document()
    with pytest.raises(ValueError, match="none of the features"):
        Domain.model_validate({**plain.to_document(), "memory": CHANGE.to_document()})


@pytest.fixture(scope="module")
def fleet() -> dict[str, Dataset]:
    rows = {}
    for number in range(3):
        vehicle = simulate_vehicle(number, 0)
        parts = [(drive, *rows_of_run(run)) for drive, run in enumerate(vehicle.series[:6])]
        X = np.concatenate([np.column_stack([np.full(len(y), drive), np.arange(len(y)), X]) for drive, X, y in parts])
        rows[f"v{number}"] = Dataset(
            (MEMORY.drive, MEMORY.time, *FEATURES), "displayed_in_3s_share", X, np.concatenate([y for *_, y in parts])
        )
    return rows


@pytest.mark.parametrize("name", ["fmt", "frt"])
def test_fleet_learns_the_central_model_bit_for_bit_with_memory_inputs(fleet, name):
    scheme = catalogue.load(name)
    values = {"fmt": {"max_rules": 4}, "frt": {"max_depth": 2}}[name]
    parameters = scheme.exact(scheme.Parameters.model_validate(values))
    names = MEMORY.extended(FEATURES)
    domain = discover(
        DiscoveryParameters(features=names, target="displayed_in_3s_share", min_count=0).remembering(MEMORY),
        list(fleet.values()),
    )
    fleets = local.federated(scheme, parameters, domain, fleet).model.to_document()
    pooled = pool([remember(data, MEMORY) for data in fleet.values()])
    central = local.central(scheme, parameters, domain, pooled).model.to_document()
    assert document_digest(fleets) == document_digest(central)
    assert fleets["domain"]["memory"] == MEMORY.to_document()


def test_agent_adds_what_the_task_declares_or_refuses_in_words(fleet):
    data = fleet["v0"]
    body = {"domain": {"memory": MEMORY.to_document()}}
    assert with_memory(Task("fmt", "grow", body), data).features == MEMORY.extended(FEATURES)
    assert with_memory(Task("domain", "histogram", {"memory": MEMORY.to_document()}), data).rows == data.rows
    assert with_memory(Task("fmt", "grow", {"domain": {}}), data) is data
    wrong: object
    for wrong in ({"inputs": []}, 3, {"inputs": [{"input": "nosuch", "lag": 1}]}):
        with pytest.raises(TaskError, match="memory inputs"):
            with_memory(Task("fmt", "grow", {"domain": {"memory": wrong}}), data)


def test_run_asks_those_agents_that_have_the_columns_of_its_memory():
    engine = default_engine()
    spec = RunSpec.from_document(
        {"scheme": "fmt", "memory": CHANGE.to_document(), "policy": {"gather_agents": 2}, "bounds": {"x": [0, 60]}}
    )
    assert RunSpec.from_document(spec.to_document()) == spec
    full = Offer(frozenset({"fmt"}), ("trip", "at", "x"), "y")
    state, _ = engine.step(None, Start(0.0, spec, {"a": full, "b": full, "c": Offer(frozenset({"fmt"}), ("x",), "y")}))
    assert state.features == ("x", "x_change_1")
    assert asking.able(state) == ("a", "b")
    assert state.levels[-1].task.body["memory"] == CHANGE.to_document()
    assert set(state.levels[-1].task.body["columns"]) == {"x", "x_change_1", "y"}
