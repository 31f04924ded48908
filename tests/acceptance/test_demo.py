"""The demonstration, whole: real processes, a real broker, SIGKILL."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.processes import Process
from tests.support.processes import Processes, glassfleet, policy_file

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
SMALL = ["demo", "--vehicles", "5", "--seed", "3"]


def demo(*arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = glassfleet(*SMALL, "--json", *arguments, timeout=200)
    return done, json.loads(done.stdout) if done.stdout else {}


def check_summary(summary: dict[str, Any], metric: str = "rmse") -> None:
    for item in summary["rounds"]:
        counts = [item[name] for name in ("asked", "accepted", "late", "duplicate", "rejected", "dropped")]
        assert all(isinstance(count, int) for count in counts)
        assert item["accepted"] + item["dropped"] <= item["asked"]
        assert item["seconds"] >= 0
    assert summary["cohort"] == sorted(summary["cohort"])
    assert set(summary["cohort"]) <= set(summary[metric]["per_vehicle"])
    assert summary["model"]["digest"] == summary["verify"]["federated"]
    for vehicle, score in summary[metric]["per_vehicle"].items():
        assert score["in_cohort"] == (vehicle in summary["cohort"])
        assert 0 < score["federated"] < 1


def started(processes: Processes) -> Process:
    """Start a demonstration; return it once all its processes are started."""
    process = processes.start(*SMALL, "--vehicles", "2", "--keep", str(processes.folder / "work"))
    processes.until(lambda: "waiting until all are up" in process.logged() and len(children_of(process)) >= 4, process)
    return process


def children_of(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def test_fleet_learns_the_central_model_of_its_cohort_when_vehicles_are_killed_and_lag(kind: str) -> None:
    done, summary = demo("--drop", "0.4", "--kind", kind)
    assert done.returncode == 0, done.stderr
    check_summary(summary)
    assert summary["broker"] == kind
    assert summary["verify"]["equal"] is True
    assert summary["verify"]["federated"] == summary["verify"]["central"]
    assert len(summary["dropped"]) == 2
    assert len(summary["slow"]) == 1
    gone = set(summary["dropped"]) - set(summary["rejoined"])
    assert not (gone | set(summary["slow"])) & set(summary["cohort"])
    assert len(summary["cohort"]) >= 2
    assert any(item["dropped"] for item in summary["rounds"])
    (slow,) = summary["slow"]
    late = [item for item in summary["rounds"] if slow in item["late_agents"]]
    assert late, "an answer that is computed travels to its end, however late"
    assert all(item["late"] == len(item["late_agents"]) for item in summary["rounds"])
    assert f"{slow} answers domain 1 too late" in done.stderr
    assert re.search(r"_s is (below|above|between) [\d.]+ (and [\d.]+ )?s\b", done.stderr), "units are told"
    assert summary["scheme"] == "tree"
    rules = int(summary["model"]["complexity"]["leaves"])
    assert 1 < rules <= 12
    assert f"all {rules} rules:" in done.stderr, "few enough to be shown, all of them"
    assert done.stderr.count("    THEN displayed_in_3s_share = ") == rules + 1, "the last explains a forecast"
    assert "one forecast explained" in done.stderr
    result, _, _ = done.stderr.partition("vehicles up")
    assert [line for line in result.splitlines() if len(line) > 100] == [], "no line is cut on a screen of 100 columns"
    steps = ("preflight", "starting", "making")
    assert [line for line in result.splitlines() if line.startswith(steps) and len(line) > 80 - 12] == []


@pytest.mark.parametrize(
    ("options", "policy", "text"),
    [
        (
            "--drop 0 --vehicles 2",
            {"parameters": {"min_rows": 1, "max_rules": 3}, "model": "video"},
            "their own rows, as they are",
        ),
        pytest.param("--scheme frt --drop 0.4", {}, "the 5 most used of", marks=pytest.mark.slow),
        pytest.param("--scheme frbc --drop 0.4", {}, "THEN quality_in_3s is (Good|Poor)", marks=pytest.mark.slow),
    ],
)
def test_fleet_learns_the_central_model_with_other_schemes_and_from_rows_as_they_are(
    options: str, policy: dict[str, Any], text: str, tmp_path: Path
) -> None:
    done, summary = demo(*options.split(), *policy_file(tmp_path, **policy))
    assert done.returncode == 0, done.stderr
    metric = "f1" if summary["scheme"] == "frbc" else "rmse"
    check_summary(summary, metric)
    assert {"f1", "rmse"} & set(summary) == {metric}
    assert summary["verify"]["equal"] is True
    assert bool(summary["dropped"]) == ("--drop 0.4" in options)
    assert (summary["exact"], summary["model"]["name"]) == ((True, "video") if policy else (False, "qoe"))
    assert metric == "rmse" or summary["f1"]["federated"] > 0.6
    assert re.search(text, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "policy", "reason"),
    [
        ("--scheme frbc --drop 0", {"parameters": {"weights": "owners"}}, "does not promise the central model"),
        ("--scheme frt --drop 0.4", {"participation": "elastic"}, "elastic"),
    ],
)
def test_difference_is_told_honestly_when_the_central_model_is_not_promised(
    options: str, policy: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    done, summary = demo(*options.split(), *policy_file(tmp_path, **policy))
    assert done.returncode == 0, done.stderr
    check_summary(summary, "f1" if summary["scheme"] == "frbc" else "rmse")
    assert summary["participation"] == policy.get("participation", "cohort")
    assert summary["verify"]["promised"] is ("participation" in policy)
    assert summary["verify"]["equal"] or reason in summary["verify"]["reason"]


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_fleet_learns_the_central_model_over_mutual_tls_when_vehicles_are_killed(tmp_path: Path) -> None:
    work = tmp_path / "w"
    done, summary = demo("--secure", "--keep", str(work))
    assert done.returncode == 0, done.stderr
    assert summary["verify"]["equal"] is True
    assert "mutual TLS" in done.stderr
    lines = (work / "broker" / "mosquitto.conf").read_text().splitlines()
    assert {"require_certificate true", "use_identity_as_username true", "tls_version tlsv1.3"} <= set(lines)
    assert len([line for line in lines if line.startswith("listener ")]) == 1
    # The broker knows each by the name in its certificate (u'...'), which is also its client id.
    log = (work / "broker" / "mosquitto.log").read_text()
    for name in ("coordinator", *(f"vehicle-{number:02}" for number in range(5))):
        assert f" as {name} (" in log
        assert f"u'{name}'" in log


@pytest.mark.slow
def test_fleet_of_real_vehicles_learns_when_given_their_files(glassfleet_data: Path) -> None:
    folder = glassfleet_data / "qoe"
    done, summary = demo("--data", str(folder), "--drop", "0.3")
    assert done.returncode == 0, done.stderr
    check_summary(summary)
    assert summary["verify"]["equal"] is True
    assert len(summary["rmse"]["per_vehicle"]) == 3
    assert summary["model"]["name"] == folder.name
    assert len(summary["dropped"]) == 1


@pytest.mark.slow
def test_demo_says_so_when_the_broker_is_killed(processes: Processes) -> None:
    process = started(processes)
    (broker,) = [
        child
        for child in children_of(process)
        if "mosquitto" in child.name() or "broker.servers.embedded" in child.cmdline()
    ]
    broker.kill()
    assert process.reap(30) == 4
    result = process.logged()
    assert re.search(r"glassfleet: error: the broker \((mosquitto|embedded)\) ended by itself, or was killed", result)
    assert "Traceback" not in result


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGINT)), signal.SIGKILL],
)
def test_demo_leaves_no_process_behind_when_it_is_ended(number: signal.Signals, processes: Processes) -> None:
    process = started(processes)
    children = children_of(process)
    assert re.search(r"dashboard: http://127\.0\.0\.1:\d+/", process.logged())
    process.signal(number)
    code = process.reap(30)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    if number != signal.SIGKILL:
        assert code == 130
        result = process.logged().rstrip()
        assert result.endswith("glassfleet: error: interrupted")
        assert "interrupted: stopping vehicles, coordinator and broker" in result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vehicles", "killed", "options"),
    [(11, 3, ("--drop", "0.3", "--scheme", "frt")), (15, 5, ("--drop", "0.33", "--secure"))],
)
def test_private_demo_equals_central_learning_when_vehicles_are_killed(
    vehicles: int, killed: int, options: tuple[str, ...]
) -> None:
    done, summary = demo("--private", "--vehicles", str(vehicles), *options)
    assert done.returncode == 0, done.stderr
    check_summary(summary)
    assert summary["private"]
    assert summary["verify"]["equal"]
    assert len(summary["dropped"]) == killed
    assert not set(summary["dropped"]) & set(summary["cohort"])
    assert len(summary["cohort"]) == vehicles - 3 * -(-killed // 3)  # nobody leaves alone
