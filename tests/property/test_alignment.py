"""Rows in time: the same offline and live, to the last bit, as declared, and never from a row's future."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data import timeplan
from glassfleet.data.alignment import Aligned, Aligner, Row, Series, align
from glassfleet.data.clock import cleaned, cleaned_together
from glassfleet.data.timeplan import Input, TimePlan

Event = tuple[float, str, Any]
SPEED = st.none() | st.floats(-1e3, 1e3)
SIGNALS: dict[str, st.SearchStrategy[Any]] = {
    "speed": SPEED, "load": st.floats(0, 1), "gear": st.sampled_from(["P", "D", None])
}  # fmt: skip
STEPS = st.sampled_from([0.0, 0.0, 0.001, 0.05, 0.1, 0.1, 0.1, 0.25, 1.0, 3.7, -0.3, -1.5, -50.0, 90.0, 600_000.0])
EVENTS = st.lists(
    st.sampled_from(sorted(SIGNALS)).flatmap(lambda name: st.tuples(STEPS, st.just(name), SIGNALS[name])), max_size=60
)
INPUTS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Input,
        signal=st.sampled_from(["speed", "load"]),
        take=st.sampled_from(["last", "interpolated", "mean", "min", "max", "slope", "count"]),
        seconds=st.sampled_from([0.001, 0.1, 0.3, 1.0, 5.0]),
        change=st.sampled_from([None, None, 0.1, 1.0, 7.0]),
    )
    | st.builds(Input, signal=st.just("gear"), take=st.sampled_from(["last", "count"]), seconds=st.just(2.0)),
    min_size=1,
)
PLANS = st.builds(
    lambda times, **other: TimePlan(**times, **other),
    st.sampled_from([{"rows": "speed"}, {"rows": "gear"}, {"every_ms": 100}, {"every_ms": 70}]),
    gap=st.sampled_from([2.0, 60.0]),
    start=st.none() | st.just(0.0),
    inputs=INPUTS,
)


def events_of(steps: list[Event], start: float) -> list[Event]:
    times = start + np.cumsum([step for step, _, _ in steps])
    return [(float(time), name, value) for time, (_, name, value) in zip(times, steps, strict=True)]


def offline(events: list[Event], plan: TimePlan) -> Aligned:
    # What the plan does not need has no part in its clock, as live.
    events = [event for event in events if event[1] in plan.signals]
    clean = cleaned(np.array([time for time, _, _ in events]), plan.gap)
    signals = {}
    for name in sorted({name for _, name, _ in events}):
        of = np.array([each == name for _, each, _ in events])
        values = [value for _, each, value in events if each == name]
        signals[name] = Series(
            clean.time[of], np.array(values, dtype=object if name == "gear" else np.float64), clean.drive[of]
        )
    return align(signals, plan)


def live(events: list[Event], plan: TimePlan) -> list[Row]:
    aligner = Aligner(plan)
    return [row for time, name, value in events for row in aligner.push(time, {name: value})] + aligner.flush()


def cells(row: Row) -> list[tuple[str, Any]]:
    return [(name, cell.hex() if isinstance(cell, float) else cell) for name, cell in row.cells.items()]


def rows_of(aligned: Aligned) -> list[Row]:
    columns = {name: column.tolist() for name, column in aligned.columns.items()}
    return [
        Row(time, drive, {name: None if column[at] != column[at] else column[at] for name, column in columns.items()})
        for at, (time, drive) in enumerate(zip(aligned.time.tolist(), aligned.drive.tolist(), strict=True))
    ]


@settings(max_examples=300)
@given(EVENTS, PLANS, st.sampled_from([0.0, 12.3456, 1.7e9]))
def test_recording_gives_the_same_rows_offline_and_live(steps: list[Event], plan: TimePlan, start: float) -> None:
    events = events_of(steps, start)
    wanted, got = rows_of(offline(events, plan)), live(events, plan)
    assert [(row.time, row.drive, cells(row)) for row in got] == [(row.time, row.drive, cells(row)) for row in wanted]


@settings(max_examples=100)
@given(EVENTS, EVENTS, PLANS)
def test_rows_do_not_change_by_what_comes_later(steps: list[Event], more: list[Event], plan: TimePlan) -> None:
    events = events_of(steps, 0.0)
    last = max((time for time, _, _ in events), default=0.0)
    later = events_of([(abs(step) + 0.001, name, value) for step, name, value in more], last)
    now, then = rows_of(offline(events, plan)), rows_of(offline(events + later, plan))
    assert [cells(row) for row in now] == [cells(row) for row in then[: len(now)]]


def value_of(part: Input, events: list[tuple[float, Any]], row: float) -> Any:
    """What is declared, said once more: slowly."""
    if part.change is not None:
        whole = part.model_copy(update={"change": None})
        now, before = value_of(whole, events, row), value_of(whole, events, row - part.change)
        return None if now is None or before is None else now - before
    window = [(time, value) for time, value in events if row - part.seconds + 5e-7 < time <= row + 5e-7]
    if part.take == "last":
        return window[-1][1] if window else None
    if part.take == "interpolated":
        moment = row - part.seconds
        before = [each for each in events if moment - part.seconds + 5e-7 < each[0] <= moment + 5e-7]
        after = [each for each in events if moment - 5e-7 <= each[0] <= row + 5e-7]
        if before and abs(before[-1][0] - moment) < 5e-7:
            return before[-1][1]
        if not before or not after or None in (before[-1][1], after[0][1]):
            return None
        return float(np.interp(moment, [before[-1][0], after[0][0]], [before[-1][1], after[0][1]]))
    known = [(time, value) for time, value in window if value is not None]
    if part.take == "count":
        return float(len(known))
    if part.take == "slope":
        if len({time for time, _ in known}) < 2:
            return None
        return float(np.polyfit([time - row for time, _ in known], [value for _, value in known], 1)[0])
    values = [value for _, value in known]
    statistics = {"mean": lambda: sum(values) / len(values), "min": lambda: min(values), "max": lambda: max(values)}
    return statistics[part.take]() if values else None


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 15), SPEED), min_size=1, max_size=25), PLANS)
def test_each_cell_is_what_the_plan_says(steps: list[tuple[int, float | None]], plan: TimePlan) -> None:
    plan = plan.model_copy(update={"inputs": {n: p for n, p in plan.inputs.items() if p.signal == "speed"}})
    times = (np.cumsum([step for step, _ in steps]) / 10).tolist()
    events = list(zip(times, [value for _, value in steps], strict=True))
    for row in live([(time, "speed", value) for time, value in events], plan.model_copy(update={"gap": 60.0})):
        for name, cell in row.cells.items():
            wanted = value_of(plan.inputs[name], events, row.time)
            assert (cell is None) == (wanted is None), (name, plan.inputs[name], row, events)
            assert cell is None or math.isclose(cell, wanted, rel_tol=1e-6, abs_tol=1e-6), (name, row, events)


@settings(max_examples=50)
@given(st.lists(STEPS, max_size=40))
def test_signals_are_cut_alike_when_only_each_ones_own_order_is_known(steps: list[float]) -> None:
    times = np.repeat(np.cumsum(steps), 2)
    whole = cleaned(times, 60.0)
    for clean in cleaned_together([times[::2], times[1::2]], 60.0):
        assert clean.cuts == whole.cuts
        assert clean.drive.tolist() == whole.drive[::2].tolist()
        assert clean.time.tolist() == whole.time[::2].tolist()


def test_slopes_are_the_same_however_many_rows_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    series = {"a": Series(np.arange(500) / 10, random.normal(size=500), np.zeros(500, dtype=np.int64))}
    plan = TimePlan(rows="a", inputs={"slope": Input(signal="a", take="slope", seconds=3)})
    at_once = align(series, plan).columns["slope"]
    monkeypatch.setattr(timeplan, "_AT_ONCE", 17)
    assert (align(series, plan).columns["slope"] == at_once).all()


def test_objects_that_are_whole_become_rows_at_once_and_a_time_that_was_taken_gives_none() -> None:
    plan = TimePlan(rows="a", inputs={"a": Input(signal="a", seconds=1), "b": Input(signal="b", seconds=1)})
    live = Aligner(plan)
    made = [
        live.push(time, {"a": time, "b": 1.0, "other": [1]}, is_whole=True) for time in (10.0, 10.5, 10.5, 10.2, 11.0)
    ]
    assert [[row.time for row in rows] for rows in made] == [[10.0], [10.5], [], [], [11.0]]
    assert (live.left_out, live.late) == (2, 1)
    assert live.push(12, {"other": 1.0}) == live.flush() == []
    live.end_drive()
    assert [(row.drive, row.cells) for row in live.push(11.5, {"a": 0.0}, is_whole=True)] == [
        (1, {"a": 0.0, "b": None})
    ]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([0, 1, 2, 7200, 7201], ["nothing comes for 7198 s, up to 7200"]),
        ([5000, 5001, 1401, 1402], ["the clock steps back by 3600 s, to 1401, as local time does when summer ends"]),
        (
            [0, 1, 619_315_202, 3],
            ["the clock jumps ahead by 7168 days, up to 619315202", "the clock steps back by 7168 days, to 3"],
        ),
        ([0, 1, 0.5, 0.5, 2], []),
    ],
)  # fmt: skip
def test_what_a_clock_does_wrong_is_named_and_begins_a_drive(times: list[float], words: list[str]) -> None:
    clean = cleaned(np.array(times, dtype=np.float64), 60.0)
    assert [str(cut) for cut in clean.cuts] == words
    assert clean.drive[-1] == len(words)
    aligner = Aligner(TimePlan(rows="a", inputs={"a": Input(signal="a", seconds=1)}))
    for time in times:
        aligner.push(time, {"a": 1.0})
    assert ([str(cut) for cut in aligner.cuts], aligner.late) == (words, clean.late)


def test_live_keeps_no_more_than_a_later_row_can_see() -> None:
    aligner = Aligner(TimePlan(rows="never", inputs={"a": Input(signal="a", take="mean", seconds=1)}))
    for time in range(10_000):
        aligner.push(time / 10, {"a": 1.0})
    assert len(aligner._samples["a"][0]) < 50


@pytest.mark.parametrize("value", ["P", "12"])
def test_statistic_of_a_text_is_refused_and_nothing_is_taken(value: str) -> None:
    plan = TimePlan(rows="a", inputs={"a": Input(signal="a", take="mean", seconds=1)})
    aligner = Aligner(plan)
    with pytest.raises(ValueError, match="its mean is asked for"):
        aligner.push(5, {"a": value})
    with pytest.raises(ValueError, match="'a' is neither a number nor a text"):
        aligner.push(5, {"a": [1]})
    with pytest.raises(ValueError, match="no finite number of seconds"):
        aligner.push(math.nan, {"a": 1.0})
    aligner.push(1, {"a": 1.0})
    assert not aligner.cuts
    with pytest.raises(ValueError, match="texts"):
        align({"a": Series(np.zeros(1), np.array(["P"], dtype=object), np.zeros(1, dtype=np.int64))}, plan)
