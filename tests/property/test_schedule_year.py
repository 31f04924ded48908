"""A year of nights, with both changes of summer time: each night once, at its time, however the coordinator dies."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.journal.port import Decision
from coordinator.runs import nights
from coordinator.runs.nights import Facts, Night, Standing
from coordinator.specification.schedule import Schedule

ZONES = (
    # Clocks change at 1:00 UTC, at 2:00, by half an hour, at midnight, in the southern summer, and never.
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "Asia/Kolkata"),
)
YEAR = 2026


def local(day: date, hour: int, minute: int, zone: str) -> datetime:
    """The first moment at which the zone's clock shows this time, or has gone over it: found minute by minute."""
    here = ZoneInfo(zone)
    moment = datetime.combine(day, time(), tzinfo=here).astimezone(UTC) - timedelta(hours=3)
    while (seen := moment.astimezone(here)).replace(tzinfo=None) < datetime.combine(day, time(hour, minute)):
        moment += timedelta(minutes=1)
    assert seen.date() == day
    return moment


def days(year: int) -> list[date]:
    first = date(year, 1, 1)
    return [first + timedelta(days=number) for number in range((date(year + 1, 1, 1) - first).days)]


@settings(max_examples=3, deadline=None)
@given(zone=st.sampled_from(ZONES), hour=st.integers(0, 4), minute=st.sampled_from([0, 1, 29, 30, 59]))
def test_a_daily_schedule_has_each_day_once_where_the_clock_shows_its_time(zone: str, hour: int, minute: int) -> None:
    schedule = Schedule(name="n", at=f"{minute} {hour} * * *", zone=zone, spec={})
    expected = [local(day, hour, minute, zone).timestamp() for day in days(YEAR)]
    times = schedule.after(expected[0] - 1)
    found: list[float] = []
    while len(found) < len(expected):
        found.append(next(times))
    assert found == expected
    for each in expected:  # asked from any moment, the answers are the same
        for before in (1, 1800, 5400):
            assert next(schedule.after(each - before)) == each
            assert schedule.last(each - before, each) == each
            assert schedule.last(each - before, each - 0.5) is None


@settings(max_examples=4, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    at=st.sampled_from(["30 2 * * *", "0 0 * * *", "0 1,13 * * *", "15 */6 * * 1-5", "0 3 1 * *", "*/30 * * * *"]),
    quiet=st.sampled_from(["", "06:00-22:00", "23:30-04:30"]),
    seed=st.integers(0, 2**32),
)
def test_every_night_of_a_year_ends_exactly_once(zone: str, at: str, quiet: str, seed: int) -> None:
    """Looks at random moments, with restarts and whole weeks without a coordinator; the journal is all that stays."""
    rng = random.Random(seed)
    schedule = Schedule(name="n", at=at, zone=zone, quiet=quiet, vehicles=2, spec={})
    begin = datetime(YEAR, 1, 1, tzinfo=ZoneInfo(zone)).timestamp()
    now, waited, journal = begin, None, [Decision("", nights.ADDED, 0.0, begin, {"schedule": schedule.model_dump()})]
    live_until = 0.0

    def resumed() -> Standing:
        standing: Standing | None = None
        for each in journal:
            standing = nights.fold(standing, each)
        assert standing is not None
        return standing

    standing = resumed()
    while now < begin + 365 * 86_400:
        now += rng.choice([60, 600, 3600, 3600, 20_000, 90_000, 600_000 if rng.random() < 0.05 else 60])
        if rng.random() < 0.1:  # killed, and another one resumes
            standing, waited = resumed(), None
        live = {"model": "r"} if now < live_until else {}
        facts = Facts(now, has_broker=rng.random() < 0.9, up=rng.choice([1, 2, 3]), live=live)
        verdict = nights.judged(standing, facts, waited)
        ends = [verdict.missed] if verdict.missed else []
        if verdict.what in ("start", "skip"):
            assert verdict.night is not None
            assert schedule.quiet_until(now) is None
            ends.append(verdict.night)
            live_until = now + rng.choice([60, 7200, 100_000]) if verdict.what == "start" else live_until
        waited = verdict.night if verdict.what == "wait" else None
        for night in ends:
            journal.append(Decision("", nights.NIGHT, 0.0, now, vars(night)))
            after = nights.fold(standing, journal[-1])
            assert after is not None
            standing = after

    written = [Night(**each.body) for each in journal[1:]]
    times, last = schedule.after(begin), standing.mark
    expected = []
    while (each := next(times)) <= last:
        expected.append(each)
    ended, place = Counter[float](), 0
    for night in written:
        ended.update(expected[place : place + night.count])
        place += night.count
        assert expected[place - 1] == night.at, "in order, and none between two is left out"
    assert ended == Counter(expected)
    runs = [night.run for night in written if night.outcome == "started"]
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize(
    ("quiet", "now", "until"),
    [
        ("06:00-22:00", "2026-03-29T05:59+02:00", None),
        ("06:00-22:00", "2026-03-29T06:00+02:00", "2026-03-29T22:00+02:00"),
        ("22:00-02:30", "2026-03-28T23:00+01:00", "2026-03-29T03:30+02:00"),  # as 2:30 would have been
        ("22:00-02:30", "2026-10-25T00:30+02:00", "2026-10-25T02:30+02:00"),
        ("22:00-02:30", "2026-10-25T02:10+01:00", "2026-10-25T02:30+01:00"),
        ("22:00-02:30", "2026-10-25T12:00+01:00", None),
    ],
)
def test_quiet_hours_are_of_the_clock_of_the_zone(quiet: str, now: str, until: str | None) -> None:
    schedule = Schedule(name="n", at="0 2 * * *", zone="Europe/Berlin", quiet=quiet, spec={})
    found = schedule.quiet_until(datetime.fromisoformat(now).timestamp())
    assert found == (None if until is None else datetime.fromisoformat(until).timestamp())
