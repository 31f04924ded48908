"""What learning may take of a vehicle in a month is counted by the vehicle, over kills, and kept whoever asks."""

import datetime as dt
from pathlib import Path

import pytest

from edge_agent.session.accounts import OTHER, Allowance, Monthly, OverBudgetError, spent

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC).timestamp()
DAY = 86400.0


class Clock:
    now = NOON

    def __call__(self) -> float:
        return self.now


def test_allowance_counts_over_a_kill_and_begins_anew_with_the_month(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "spent.sqlite"
    limits = Monthly(megabytes=2.0)
    killed = Allowance(path, limits, clock)
    for run in ("r0", "r1"):
        killed.spend(run, size=1_100_000, seconds=1.5, answers=1)
    again = Allowance(path, limits, clock)
    with pytest.raises(OverBudgetError, match=r"gave 2.2 of 2 MB of the month .*more from 2026-12-01 on"):
        again.check("r1")
    clock.now += 3 * DAY
    again.check("r1")
    clock.now -= 2 * DAY  # a clock that jumps back finds what was spent
    assert again.why_not(OTHER).startswith("over-budget: ")
    again.close()
    assert spent(path) == [{"month": "2026-11", "megabytes": 2.2, "seconds": 3.0}]


@pytest.mark.parametrize(("limits", "word"), [(Monthly(megabytes=1.0), "MB"), (Monthly(seconds=10.0), "seconds")])
def test_allowance_refuses_a_run_that_it_could_not_end_and_ends_one_that_has_begun(
    tmp_path: Path, limits: Monthly, word: str
) -> None:
    allowance = Allowance(tmp_path / "spent.sqlite", limits, Clock())
    allowance.spend("r1", size=600_000, seconds=6.0, answers=9)
    allowance.check("r1")
    allowance.spend("r2", size=10)  # its request came
    with pytest.raises(OverBudgetError, match=rf"gave .* {word} of the month .*, and a run takes "):
        allowance.check("r2")
    assert not allowance.why_not(OTHER)


def test_allowance_of_a_vehicle_without_limits_counts_and_never_refuses(tmp_path: Path) -> None:
    allowance = Allowance(tmp_path / "spent.sqlite", Monthly(), Clock())
    allowance.spend("r1", size=10**12, seconds=1e9)
    allowance.check("r2")
