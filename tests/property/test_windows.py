"""Windows: a fleet that learns from the last rows of each vehicle has the central model of these rows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset
from glassfleet.data.sampling import FEWEST, recent
from schemas.errors import DataError, UsageError
from schemas.rounds import DAY, Window
from tests.support.agent_bench import rows
from tests.support.schedules import assert_promises, central_digest, schedule_fault, train_only
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("quiet_logs")

NOW = 1.78e9
EXACT = {"nullify": False, "min_rows": 1, "max_depth": 2}


def timed(seed: int, count: int, days: float, ago: float = 0.0) -> Source:
    """A vehicle with so many rows, evenly over so many days, the last so many days ago."""
    data = rows(seed, count)
    times = NOW - (ago + np.linspace(days, 0, count)) * DAY
    data = Dataset((*data.features, "time"), "y", np.column_stack([data.X, times]), data.y)
    return train_only(data)


SOURCES = {
    **{f"v{number}": timed(number, 120, days=20) for number in range(4)},
    "parked": timed(8, 120, days=20, ago=6.5),
    "new": timed(9, 40, days=3),
}


def learned(state_dir: Any, window: dict[str, Any], faults: random.Random | None = None) -> Any:
    sim = Simulation(SOURCES, state_dir)
    sim.begin(1)
    policy = RoundPolicy(min_agents=2, deadline=5, gather_agents=2)
    spec = {"run": "r1", "scheme": "frt", "parameters": EXACT, "rounds": policy, "window": window}
    sim.cloud.timeline.wall = lambda: NOW
    sim.start_run(RunSpec.from_document(RunSpec(**spec).to_document()))
    if faults is not None:
        for _ in range(6):
            schedule_fault(sim, faults, list(SOURCES), within=10, gone=8, returns=0.8)
        sim.at(sim.hub.now + 40, sim.heal_everything)
    document = sim.run_until_ended("r1", within=600)
    return sim, document


@pytest.mark.parametrize("window", [{"rows": 30}, {"days": 7}, {"days": 7, "time": "time"}], ids=str)
def test_model_of_a_window_is_the_central_one_of_these_rows(state_dir: Any, window: Any) -> None:
    sim, document = learned(state_dir, window)
    record = sim.record("model")
    until = {"until": NOW} if "days" in window else {}
    assert record.parameters["window"] == Window(**window, **until).model_dump(exclude_none=True)
    taking_part = [name for name in SOURCES if name != "parked" or "rows" in window]
    expected = {name: recent(SOURCES[name].train, Window(**window, **until)).rows for name in taking_part}
    assert record.cohort == sorted(expected)
    assert record.training.rows == sum(expected.values()) < sum(each.train.rows for each in SOURCES.values())
    assert record.digest == central_digest(record, SOURCES)
    unlimited = record.model_copy(update={"parameters": {**record.parameters, "window": None}})
    with pytest.raises(AssertionError):  # that one has another typical row
        central_digest(unlimited, SOURCES)
    if "days" in window:
        reason = document["agents"]["parked"]["reason"]
        assert f"rows of the last 7 days, since 2026-05-21 20:26 UTC; a run needs {FEWEST}" in reason


@pytest.mark.parametrize("seed", range(3))
def test_window_holds_whatever_is_killed(state_dir: Any, seed: int) -> None:
    chance = random.Random(seed)
    window = {"rows": chance.randrange(20, 60)} if seed else {"days": 9.5}
    sim, document = learned(state_dir, window, chance)
    assert_promises(sim, document, SOURCES, model=True, rest=150)


def test_rows_that_came_since_the_run_began_do_not_count_and_those_that_went_are_kept(state_dir: Any) -> None:
    data = SOURCES["v0"].train
    late = replace(data, X=np.vstack([data.X, data.X[-1] + [0, 0, 0, 60.0]]), y=np.append(data.y, 9.0), memo={})
    window = Window(days=7, until=NOW)
    assert recent(late, window).rows == recent(data, window).rows
    assert recent(late, window.model_copy(update={"until": NOW + 61})).y[-1] == 9.0


@pytest.mark.parametrize(
    ("names", "time", "scale", "words"),
    [
        (("a", "b", "c", "d"), "", 1.0, "no column tells when"),
        (("time", "b", "c", "at"), "", 1.0, "time and at may tell when a row was: the run must name it"),
        (("a", "b", "c", "at"), "when", 1.0, "there is no column 'when'"),
        (("a", "b", "c", "t"), "", 1000.0, "column 't' does not hold seconds since 1970"),
        (("a", "b", "c", "t"), "", 1e-9, "column 't' does not hold seconds since 1970"),
    ],
)
def test_vehicle_says_why_it_cannot_tell_its_last_days(names: Any, time: str, scale: float, words: str) -> None:
    data = SOURCES["v0"].train
    other = Dataset(names, "y", data.X * [1, 1, 1, scale], data.y)
    with pytest.raises(DataError, match=words):
        recent(other, Window(days=7, time=time, until=NOW))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window": {}}, "give rows or days"),
        ({"window": {"rows": 5, "days": 2}}, "give rows or days"),
        ({"window": {"rows": 5, "time": "t"}}, "time and until go with days"),
        ({"window": {"days": 0}}, "greater than 0"),
        ({"window": {"rows": 50}, "private": {}}, "a private run takes no window"),
    ],
)
def test_window_that_cannot_be_meant_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RunSpec.from_document({"scheme": "tree", **wrong})
