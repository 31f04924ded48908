"""What is said before a run starts: on whom it would rest, and whether it could be private."""

from __future__ import annotations

from typing import Any

import pytest

from console.run.quorum import could_be_private, tell_quorum

OFFER = "this fleet could learn privately, nobody would see a single vehicle's numbers: --private"
SPEC: dict[str, Any] = {"run": "", "scheme": "frt", "parameters": {}, "policy": {}}


class Fleet:
    """The coordinator's list of vehicles, all up."""

    def __init__(self, vehicles: int) -> None:
        self._vehicles = [{"agent": f"v{number}", "status": "up"} for number in range(vehicles)]

    def get(self, path: str) -> Any:
        assert path == "/api/agents"
        return self._vehicles


@pytest.mark.parametrize(("vehicles", "offered"), [(7, False), (8, True)])
def test_private_run_is_offered_in_one_line_to_a_fleet_that_reaches_the_floor(
    vehicles: int, offered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_quorum(Fleet(vehicles), SPEC, 0.0)  # type: ignore[arg-type]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"{vehicles} of {vehicles} known vehicles are up: the model will rest on those that answer"
    assert told[1:] == ([OFFER] if offered else [])


@pytest.mark.parametrize(
    "changes",
    [
        {"private": {}},
        {"scheme": "fedga"},
        {"scheme": "tsk", "parameters": {"antecedents": "local"}},
        {"participation": "elastic"},
        {"rollout": {"stages": [{"share": 0.5}]}},
        {"policy": {"sample": 0.5}},
        {"max_rows_each": 5},
        {"parameters": {"no_such": 1}},
        {"scheme": "no-such"},
    ],
)
def test_private_run_is_not_offered_where_it_is_one_or_could_be_none(changes: dict[str, Any]) -> None:
    assert could_be_private(SPEC, 20)
    assert not could_be_private({**SPEC, **changes}, 20)
