"""Schedules over a coordinator and scripted vehicles: what starts, what waits, what is written down."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.runs.nights import NOBODY
from coordinator.specification.schedule import Schedule
from schemas.errors import StorageError, UsageError
from tests.support.coordinator_bench import Fleet
from tests.support.engine_bench import toy_spec

EVERY = 3600
BEGIN = 1.7e9  # 22:13:20 UTC on 14 November 2023


def schedule(name: str = "hourly", at: str = "0 * * * *", **more: Any) -> Schedule:
    spec = toy_spec("").to_document() | {"run": ""} | more.pop("spec", {})
    return Schedule.from_document({"name": name, "at": at, "spec": spec, **more})


def scheduled(*agents: str, **more: Any) -> Fleet:
    fleet = Fleet()
    fleet.birth(*agents)
    fleet.core.add_schedule(schedule(**more))
    return fleet


def nights(fleet: Fleet, name: str = "hourly") -> list[tuple[str, str, str, int]]:
    """What became of the nights, oldest first: time of day, outcome, reason, count."""
    found = fleet.core.schedules.document(name)["nights"][::-1]
    return [(each["at"][11:16], each["outcome"], each["reason"], each["count"]) for each in found]


def run_of(fleet: Fleet) -> str:
    (run,) = fleet.core.runs.live
    return run


def test_schedule_starts_its_run_once_at_each_time() -> None:
    fleet = scheduled("a", "b")
    for hour in (23, 0, 1):
        while not fleet.core.runs.live:
            fleet.pass_time(30)
        run = run_of(fleet)
        assert run == f"hourly-202311{14 + (hour < 23)}-{hour:02}00"
        fleet.finish("a", "b", run=run)
    assert nights(fleet) == [(each, "started", "", 1) for each in ("23:00", "00:00", "01:00")]
    assert len(fleet.core.runs.past) == 3


def test_schedule_is_followed_by_the_next_coordinator_and_makes_up_for_missed_nights_once() -> None:
    fleet = scheduled("a", "b")
    fleet.hub.kill("coordinator")
    fleet.hub.advance(5 * EVERY)
    fleet.crash()
    fleet.pass_time(3)
    assert not fleet.core.runs.live, "vehicles have not had the time to say that they are up"
    for _ in range(3):
        fleet.pass_time(5)
    assert run_of(fleet) == "hourly-20231115-0300"
    assert nights(fleet) == [("02:00", "missed", NOBODY, 4), ("03:00", "started", "", 1)]


def test_night_and_its_run_are_written_in_one_transaction() -> None:
    fleet = scheduled("a", "b")
    fleet.journal.is_full = True
    fleet.hub.advance(EVERY)
    with pytest.raises(StorageError, match="no room"):
        fleet.core.tick()
    assert nights(fleet) == []
    fleet.crash()
    assert nights(fleet) == []
    for _ in range(3):
        fleet.pass_time(5)
    assert nights(fleet) == [("23:00", "started", "", 1)]
    fleet.crash()
    for _ in range(3):
        fleet.pass_time(5)
    assert (nights(fleet), run_of(fleet)) == ([("23:00", "started", "", 1)], "hourly-20231114-2300")


@pytest.mark.parametrize(
    ("if_running", "expected", "live"),
    [
        ("skip", ("00:00", "skipped", "hourly-20231114-2300 still goes on", 1), "hourly-20231114-2300"),
        ("wait", None, "hourly-20231114-2300"),
        ("cancel", ("00:00", "started", "", 1), "hourly-20231115-0000"),
    ],
)
def test_schedule_does_as_told_while_the_last_run_goes_on(if_running: str, expected: Any, live: str) -> None:
    fleet = scheduled("a", "b", if_running=if_running, spec={"rounds": {"deadline": 600_000}})
    for _ in range(2):
        fleet.pass_time(EVERY)
        fleet.pass_time(5)
    assert (nights(fleet)[1:], list(fleet.core.runs.live)) == ([expected] if expected else [], [live])
    if if_running == "wait":
        fleet.finish("a", "b", run=live)
        fleet.pass_time(5)
        assert run_of(fleet) == "hourly-20231115-0000"


def test_two_schedules_of_one_model_never_run_at_once() -> None:
    fleet = scheduled("a", "b", name="one")
    fleet.core.add_schedule(schedule("two"))
    fleet.core.add_schedule(schedule("other", spec={"model": "another"}))
    fleet.pass_time(EVERY)
    assert sorted(fleet.core.runs.live) == ["one-20231114-2300", "other-20231114-2300"]
    assert nights(fleet, "two") == [("23:00", "skipped", "one-20231114-2300 still goes on", 1)]


def test_start_waits_for_vehicles_and_out_of_quiet_hours_and_says_so() -> None:
    fleet = scheduled("a", vehicles=2, quiet="22:30-23:30")
    fleet.pass_time(EVERY)
    assert fleet.core.schedules.document("hourly")["reason"] == "quiet hours until 23:30"
    fleet.pass_time(1200)
    shown = fleet.core.schedules.document("hourly")
    assert (shown["state"], shown["reason"]) == ("waiting", "1 of 2 vehicles up")
    fleet.pass_time(EVERY)
    fleet.birth("b")
    fleet.pass_time(5)
    assert nights(fleet) == [("23:00", "missed", "1 of 2 vehicles up", 1), ("00:00", "started", "", 1)]


def test_schedule_rests_while_it_is_paused_and_makes_up_for_nothing() -> None:
    fleet = scheduled("a", "b")
    fleet.core.schedules.pause("hourly", "roadworks")
    fleet.pass_time(3 * EVERY)
    fleet.crash()
    shown = fleet.core.schedules.document("hourly")
    assert (shown["state"], shown["reason"], shown["next"]) == ("paused", "roadworks", [])
    fleet.core.schedules.resumed("hourly")
    fleet.pass_time(60)
    assert (nights(fleet), fleet.core.runs.live) == ([], {})
    fleet.pass_time(EVERY)
    assert [night[1] for night in nights(fleet)] == ["started"]
    fleet.core.schedules.remove("hourly")
    fleet.crash()
    assert fleet.core.schedules.documents() == []


def test_clock_that_jumps_doubles_no_night_and_loses_none() -> None:
    fleet = scheduled("a", "b")
    fleet.pass_time(EVERY)
    fleet.finish("a", "b", run=run_of(fleet))
    shift = [0.0]
    fleet.core.schedules.wall = lambda: BEGIN + fleet.hub.now + shift[0]
    shift[0] = 24 * EVERY  # a day ahead: one night is made up for
    fleet.pass_time(61)
    fleet.finish("a", "b", run=run_of(fleet))
    shift[0] = -1800.0  # and half an hour behind the right time: before 23:00, which was started
    for _ in range(40):
        fleet.pass_time(60)
    assert not fleet.core.runs.live
    fleet.pass_time(EVERY)
    assert run_of(fleet) == "hourly-20231115-0000"
    started = [night[0] for night in nights(fleet) if night[1] == "started"]
    assert started == ["23:00", "23:00", "00:00"], "of the 14th, of the 15th, and of the 15th"


def test_a_run_that_cannot_be_started_any_more_is_written_down() -> None:
    fleet = scheduled("a", "b")
    fleet.core.start_run(toy_spec("hourly-20231114-2300", model="else"))
    fleet.pass_time(EVERY)
    ((_, outcome, why, _),) = nights(fleet)
    assert (outcome, "exists already" in why) == ("failed", True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"at": "0 25 * * *"}, "bad hour"),
        ({"at": "0 2 * *"}, "five fields"),
        ({"at": "0 0 2 * * *"}, "seconds are for"),
        ({"at": "0 0 31 2 *"}, "bad day-of-month"),
        ({"zone": "Europe/Berln"}, "no time zone 'Europe/Berln'"),
        ({"zone": "../../etc/passwd"}, "no time zone"),
        ({"quiet": "22-6"}, "quiet"),
        ({"name": "a b"}, "name"),
        ({"spec": {"scheme": "toy", "run": "r"}}, "leave run out"),
        ({"spec": {"scheme": "toy", "seed": -1}}, "seed"),
        ({"if_running": "panic"}, "if_running"),
        ({"vehicles": 0}, "vehicles"),
    ],
)
def test_schedule_that_cannot_be_meant_is_refused_with_the_fault(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Schedule.from_document({"name": "n", "at": "0 2 * * *", "spec": {"scheme": "toy"}, **wrong})
