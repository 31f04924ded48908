"""Commands that ask a coordinator: before a run starts and when it has ended, plans, and signing what was shown."""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from console.main import run
from console.operator.runs import _check_end, could_be_private, quorum_lines
from console.operator.specification import document_of
from coordinator.http.api import ApiServer
from coordinator.specification.rollout import RolloutPlan
from schemas.errors import GlassfleetError, RunFailedError, UsageError
from tests.support.authorities import FleetCa
from tests.support.coordinator_bench import Cloud, authorities, is_believed, record_of
from tests.support.processes import eventually

OFFER = "this fleet could learn privately, nobody would see a single vehicle's numbers: --private"
SPEC: dict[str, Any] = {"run": "", "scheme": "frt", "parameters": {}, "rounds": {}}


@pytest.mark.parametrize(
    ("vehicles", "kinds", "offered"), [(7, [], False), (8, [], True), (8, ["numbers", "words"], False)]
)
def test_private_run_is_offered_in_one_line_to_a_fleet_of_numbers_that_reaches_the_floor(
    vehicles: int, kinds: list[str], offered: bool
) -> None:
    known = [{"agent": f"v{n}", "status": "up", "kinds": kinds} for n in range(vehicles)]
    fleet: Any = SimpleNamespace(get=lambda _path: known)
    result = quorum_lines(fleet, SPEC, 0.0)
    assert result[0] == f"{vehicles} of {vehicles} known vehicles are up: the model will rest on those that answer"
    assert result[1:] == ([OFFER] if offered else [])


def test_what_nobody_here_can_do_is_said_before_the_run_waits_for_it() -> None:
    fleet: Any = SimpleNamespace(get=lambda _path: [{"agent": "v1", "status": "up", "target": "fuel"}])
    asked = SPEC | {"rounds": {"gather_agents": 30}, "target": "nope", "without": ["q99", "v1"]}
    assert quorum_lines(fleet, asked, 0.0) == [
        "1 of 1 known vehicles is up: the run waits for 30",
        "none of them has the target 'nope'",
        "not known here, left out if they come: q99",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"private": {}},
        {"scheme": "fedga"},
        {"scheme": "tsk", "parameters": {"antecedents": "local"}},
        {"participation": "elastic"},
        {"rollout": {"stages": [{"share": 0.5}]}},
        {"rounds": {"sample": 0.5}},
        {"max_rows_each": 5},
        {"parameters": {"no_such": 1}},
        {"scheme": "no-such"},
    ],
)
def test_private_run_is_not_offered_where_it_is_one_or_could_be_none(changes: dict[str, Any]) -> None:
    assert could_be_private(SPEC, 20)
    assert not could_be_private({**SPEC, **changes}, 20)


MODEL = {"name": "qoe", "version": 3, "digest": "0" * 64}
STATUS: dict[str, Any] = {"run": "r1", "outcome": "finished", "model": MODEL, "spec": {"private": {}}}


def api(candidate: int | None) -> Any:
    decisions = [{"kind": "candidate", "version": 3, "reason": "too-bad: error +20 %"}]
    history = {"candidate": None if candidate is None else {"version": candidate}, "decisions": decisions}
    return SimpleNamespace(get=lambda path: {"/api/models/qoe/history": history}[path])


def test_model_that_stayed_a_candidate_is_a_failure_with_the_reason_and_the_way_out() -> None:
    with pytest.raises(RunFailedError, match=r"qoe v3 did not pass the gate.*too-bad.*model promote qoe@3") as fault:
        _check_end(api(3), STATUS, None, 0.0)
    assert fault.value.exit_code == 6


@pytest.mark.parametrize("candidate", [None, 2])
def test_model_that_became_current_is_none(candidate: int | None) -> None:
    _check_end(api(candidate), STATUS, None, 0.0)


def test_policy_file_is_toml_or_json_and_refused_when_it_cannot_be_meant(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"stages": [0.1, 1.0], "deadline": 60}')
    (tmp_path / "plan.toml").write_text("stages = [0.1, 1.0]\ndeadline = 60\n")
    result = [RolloutPlan.from_document(document_of(tmp_path / f"plan.{kind}", "policy")) for kind in ("json", "toml")]
    assert result == [RolloutPlan(stages=(0.1, 1.0), deadline=60.0)] * 2
    with pytest.raises(GlassfleetError, match="missing"):
        document_of(tmp_path / "missing.json", "policy")
    (tmp_path / "plan.json").write_text("[0.1]")
    with pytest.raises(UsageError, match="object of JSON"):
        document_of(tmp_path / "plan.json", "policy")
    for name, value in {"stages": [0.5, 0.2], "min_reports": 1.5, "deadline": 0, "patience": 1}.items():
        with pytest.raises(UsageError, match=name):
            RolloutPlan.from_document({name: value})


Call = Callable[..., tuple[int, str, str]]
UNSIGNED = "unsigned: the record of m carries no signature"


@pytest.fixture
def ca(tmp_path: Path) -> FleetCa:
    return authorities(tmp_path, "one")[0]


@pytest.fixture
def cloud(ca: FleetCa, tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(ca.identity("coordinator", "cloud"))
    made.register(record_of(), record_of(2, software="a\x1b[2Jb"), record_of(3).to_bytes()[:-9])
    made.start()
    (tmp_path / "state").mkdir()
    service = made.service(tmp_path / "state")
    server = ApiServer(service.config.state_dir, service.config.http.api_host, service.config.http.api_port)
    server.start(service)
    eventually((tmp_path / "state" / "api-url").exists)
    yield made
    server.stop()


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    del cloud  # it is up

    def typed_in(*arguments: str, typed: str | None = None) -> tuple[int, str, str]:
        main, side = pty.openpty()
        os.write(main, (typed or "").encode())
        with os.fdopen(side if typed is not None else os.open(os.devnull, os.O_RDONLY)) as stdin, capture_logs():
            monkeypatch.setattr(sys, "stdin", stdin)
            code = run(["model", "sign", *arguments, "--state-dir", str(tmp_path / "state")])
        os.close(main)
        if typed is None:
            os.close(side)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return typed_in


def test_operator_is_shown_the_record_and_asked_before_it_is_signed(call: Call, cloud: Cloud, ca: FleetCa) -> None:
    code, out, err = call("m@2", typed="n\n")
    assert code != 0
    assert not is_believed(cloud.stored(2), ca)
    assert record_of(2).digest in err
    assert "from run r2" in err
    assert "learned from v1" in err
    assert "signed, as it says, by nobody" in err
    assert "\x1b" not in err, "control characters of a record are shown as escapes"
    code, out, err = call("m@2", "--reason", "compared", typed="y\n")
    assert (code, out) == (0, f"m v2  {record_of(2).digest[:12]}: signed by coordinator cloud (before: {UNSIGNED})\n")
    assert is_believed(cloud.stored(2), ca)


def test_operator_who_cannot_be_asked_says_yes_or_nothing_is_signed(call: Call, cloud: Cloud, ca: FleetCa) -> None:
    code, _, err = call("m@1")
    assert code == 2
    assert "then say --yes" in err
    assert not is_believed(cloud.stored(), ca)
    code, out, err = call("m", "--yes", "--json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1, err
    for version in ("²", "latest"):
        assert "write NAME@VERSION" in call(f"m@{version}", "--yes")[2]
    code, out, err = call("m@3", "--yes")
    assert code == 2
    assert "version 3 is not signed" in err
    code, out, _ = call("m@1", "--yes", "--json")
    assert code == 0
    assert json.loads(out) == {
        "name": "m", "version": 1, "digest": record_of().digest, "signer": "coordinator cloud", "former": UNSIGNED,
        "signed": True,
    }  # fmt: skip
    assert is_believed(cloud.stored(), ca)
    assert call("m@1", "--yes")[1].endswith("its signature is good, nothing was done\n")
