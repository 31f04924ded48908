"""Drift by rule and input: found within two nights, seldom where nothing moves, the same over restarts."""

import json
from typing import get_args

import numpy as np
import pytest

from glassfleet.evaluation.drift import COLUMNS, FEWEST_ROWS, KEPT, MOST, DriftMemory, drifted, figures
from lab.benchmarks.drift import BEGIN, INPUT, NIGHTS, RULE, Kind, judged, simulated


@pytest.mark.parametrize("kind", ["rule", "input"])
def test_abrupt_drift_is_found_within_two_nights(kind: Kind) -> None:
    assert kind in get_args(Kind)
    found = simulated(15, kind, seed=5)
    hit, _ = judged(found, kind)
    assert hit in {1, 2}
    [moved] = [each for each in found[-1] if each.line == (RULE if kind == "rule" else INPUT)]
    assert abs(moved.since - BEGIN) <= 1
    assert moved.change == pytest.approx(np.log(1.5) if kind == "rule" else -0.5, abs=0.2)


@pytest.mark.parametrize("kind", ["none", "restless"])
def test_nothing_is_found_where_nothing_moves(kind: Kind) -> None:
    assert sum(judged(simulated(8, kind, seed), kind)[1] for seed in (1, 2)) <= 1, f"in {2 * NIGHTS} nights"


def test_memory_tells_the_same_after_a_restart_however_often_it_is_asked() -> None:
    rng, line = np.random.default_rng(1), np.repeat([0, 1], 50)
    memory = DriftMemory()
    for night in range(4):
        tonight = figures(np.abs(rng.normal(size=100)), line, 2, rng.uniform(size=(100, 3)))
        before = json.dumps(memory.to_value())
        memory.meet("m", f"r{night}", tonight)
        sums = memory.changes("m", f"r{night}")
        for kept in (before, json.dumps(memory.to_value())):  # killed before it was kept, and after
            again = DriftMemory.from_value(json.loads(kept))
            again.meet("m", f"r{night}", tonight)
            assert str(again.changes("m", f"r{night}")) == str(sums)
            assert again.to_value() == memory.to_value()
    assert sums is not None
    assert sums.shape == (5, COLUMNS)
    assert sums[:, 0].all()


def test_memory_tells_nothing_of_few_rows_nor_of_the_first_night_and_is_bounded() -> None:
    memory, few = DriftMemory(), np.zeros(FEWEST_ROWS - 1, dtype=np.intp)
    tonight = figures(np.ones(few.size), few, 1, np.random.default_rng(0).uniform(size=(few.size, 1)))
    for night in range(3):
        memory.meet("m", str(night), tonight)
        sums = memory.changes("m", str(night))
        assert sums is not None
        assert not sums.any()
    for number in range(KEPT + 5):
        memory.meet(str(number), "r", tonight)
    assert list(memory.models) == [str(number) for number in range(5, KEPT + 5)]


def test_one_vehicle_alone_raises_no_alarm_whatever_it_says() -> None:
    honest = np.array([[9, 0, 9, 0, 0, 0]])
    lie = np.array([[1, MOST, MOST**2, MOST, 1, MOST]])
    assert drifted([honest + lie] * 10, 1) == []
