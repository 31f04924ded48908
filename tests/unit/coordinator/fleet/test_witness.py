"""Which heads of vehicles' logs a coordinator remembers, and that no flood and no restart makes it forget them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from structlog.testing import capture_logs

from coordinator.fleet.witness import DAYS, FALLS, KEPT, PAUSE, thinned
from schemas.messages import LogHead
from tests.support.coordinator_bench import Fleet


def head(n: int, letter: str = "a") -> LogHead:
    return LogHead(n=n, hash=letter * 64)


def test_coordinator_remembers_a_later_head_when_it_was_restarted_and_an_old_copy_was_put_back() -> None:
    fleet = Fleet()
    for n in (50, 119):
        fleet.birth("v1", forecasts=head(n))
        fleet.pass_time(PAUSE)
    fleet.birth("v1")
    fleet.crash()
    fleet.birth("v1", forecasts=head(50))
    fleet.birth("v2", forecasts=head(7))
    seen = fleet.core.witness.heads("v1")
    assert [each["n"] for each in seen] == [50, 119]
    assert [each["n"] for each in fleet.core.witness.heads("v2")] == [7]
    assert seen[0]["at"] < seen[1]["at"] <= fleet.core.timeline.wall()


def test_head_that_differs_from_the_one_that_was_seen_is_kept_beside_it() -> None:
    fleet = Fleet()
    with capture_logs() as log:
        for letter in "ab":
            fleet.birth("v1", forecasts=head(119, letter))
            fleet.pass_time(PAUSE)
    assert [each["hash"][0] for each in fleet.core.witness.heads("v1")] == ["a", "b"]
    assert [each["agent"] for each in log if each["event"] == "forecast-log-shorter"] == ["v1"]


def test_flood_of_heads_costs_one_in_a_while_and_drives_out_none_that_was_seen_before() -> None:
    fleet = Fleet()
    fleet.birth("v1", forecasts=head(10))
    fleet.pass_time(86400)
    for n in range(20, 220):
        fleet.birth("v1", forecasts=head(n))
    assert [each["n"] for each in fleet.core.witness.heads("v1")] == [10, 20]


def kept_of(numbers: Iterable[int], every: float) -> list[dict[str, float]]:
    kept: list[dict[str, float]] = []
    for place, number in enumerate(numbers):
        kept = thinned([*kept, {"n": number, "at": every * place}], every * place)
    return kept


def test_heads_are_kept_the_fewer_the_farther_back_and_always_the_first_and_the_newest() -> None:
    ages = [100 - int(each["n"]) for each in kept_of(range(101), 600.0)][::-1]
    assert (len(ages), ages[0], ages[-1]) == (KEPT + 2, 0, 100)
    assert all(later <= 2 * earlier + 2 for earlier, later in pairwise(ages)), ages


def test_head_of_each_day_of_a_year_is_kept() -> None:
    kept = kept_of(range(4 * 400), 86400 / 4)
    assert {int(each["at"] // 86400) for each in kept} >= set(range(400 - DAYS, 400))
    assert len(kept) <= DAYS + KEPT + 2


def test_both_heads_are_kept_where_a_log_got_shorter_and_no_liar_makes_the_list_long() -> None:
    kept = [int(each["n"]) for each in kept_of([*range(50), 20, *range(100, 3000)], 600.0)]
    assert kept[kept.index(20) - 1] == 49
    assert len(kept_of([number % 2 for number in range(3000)], 600.0)) <= 2 * FALLS + KEPT + 3000 * 600 // 86400 + 2
