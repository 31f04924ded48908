"""``glassfleet forecast run``: a line for each forecast, and who has none."""

from __future__ import annotations

import pytest

from tests.support.coordinator_http import record_of, small_document
from tests.support.processes import Processes


@pytest.fixture
def vehicle(processes: Processes) -> tuple[str, ...]:
    """A forecast of two rows, the model not there yet."""
    (processes.folder / "rows.csv").write_text("a,b\n0.1,0.2\n0.9,0.8\n")
    source = str(processes.folder / "rows.csv")
    return ("forecast", "run", "--id", "v", "--source", source, "--speed", "0", "--alert", "1000")


def test_forecast_run_prints_a_line_for_each_forecast(processes: Processes, vehicle: tuple[str, ...]) -> None:
    models = processes.folder / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(record_of(small_document()).to_bytes())
    done = processes.call(*vehicle)
    assert done.returncode == 0, done.stderr
    assert "no-such-agent" not in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        time_, _value, rule = line.split("  ")[:3]
        assert time_.endswith("+00:00")
        assert rule.startswith("rule ")
        assert line.endswith("  ALERT")


def test_forecast_run_names_the_agents_that_are_there_when_its_own_never_was(
    processes: Processes, vehicle: tuple[str, ...]
) -> None:
    fleet = processes.folder / "agents" / "fleet"
    for folder in ("v7/models", "v8/models", "v9/forecasts"):
        (fleet / folder).mkdir(parents=True, exist_ok=True)
    for _again in range(2):  # its own log in that agent's folder makes it none that was here
        done = processes.call(*("vehicle-99" if word == "v" else word for word in vehicle))
        assert (done.returncode, done.stdout) == (9, "")
        assert "no agent 'vehicle-99' of fleet 'fleet' was ever in" in done.stderr
        assert "there are: v7, v8. Waiting" in done.stderr
        assert "the source ended, and not one forecast was made" in done.stderr.splitlines()[-1]
