"""What a newcomer meets: services started together, things that are there already, a coordinator that comes back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.servers.launch import launch
from schemas.errors import BrokerError
from tests.support.processes import Processes, eventually
from tests.unit.edge_agent.forecast.test_forecast import PLAIN


def is_healthy(processes: Processes) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        url = processes.note("api-url")
        return bool(url) and httpx.get(f"{url}/api/health", trust_env=False, verify=False).json()["connected"] is True
    return False


def taken_port() -> tuple[socket.socket, int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener, listener.getsockname()[1]


@pytest.mark.slow
def test_run_start_wait_waits_for_a_coordinator_that_is_not_there_yet_and_for_one_that_was_killed(
    processes: Processes,
) -> None:
    listener, port = taken_port()
    listener.close()
    at = ("--coordinator", f"http://127.0.0.1:{port}")
    waiting = processes.start(
        *("run", "start", *at, "--scheme", "fedga", "--run", "r1", "--wait", "--gather-timeout", "300")
    )
    eventually(lambda: processes.output(waiting).count("no coordinator answers") == 1)
    processes.start("broker", "--kind", "embedded", "--port", "0")
    eventually(lambda: processes.note("broker-url"))
    first = processes.start("coordinator", "--api-port", str(port))
    eventually(lambda: is_healthy(processes))
    url = processes.note("api-url")
    eventually(lambda: httpx.get(f"{url}/api/runs/r1", trust_env=False).is_success)
    first.kill()
    first.wait()
    eventually(lambda: processes.output(waiting).count("no coordinator answers") == 2)
    processes.start("coordinator", "--api-port", str(port), "--take-over")
    eventually(lambda: is_healthy(processes))
    assert processes.note("api-url") == url
    assert processes.call("run", "cancel", "r1").returncode == 0
    assert waiting.wait(60) == 6
    assert processes.output(waiting).count("no coordinator answers") == 2
    assert "cancelled" in processes.output(waiting)


@pytest.mark.parametrize(
    ("kind", "again"), [("embedded", []), pytest.param("mosquitto", ["--port", "0"], marks=pytest.mark.mosquitto)]
)
@pytest.mark.slow
def test_broker_that_was_killed_gets_its_port_again_and_the_coordinator_is_back(
    processes: Processes, kind: str, again: list[str]
) -> None:
    first = processes.start("broker", "--kind", kind, "--port", "0")
    eventually(lambda: processes.note("broker-url"))
    url = processes.note("broker-url")
    coordinator = processes.start("coordinator", "--api-port", "0")
    eventually(lambda: is_healthy(processes))
    first.kill()
    first.wait()
    eventually(lambda: not is_healthy(processes))
    second = processes.start("broker", "--kind", kind, *again)
    eventually(lambda: is_healthy(processes))
    # The coordinator may be back before the note is written.
    eventually(lambda: processes.note("broker-url"))
    assert processes.note("broker-url") == url
    assert coordinator.poll() is None
    # Taken by somebody else, it is given up where no port was asked for.
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 0
    with socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1]))):
        processes.start("broker", "--kind", kind, "--port", "0")
        eventually(lambda: processes.note("broker-url") not in {"", url})


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_launch_says_which_port_is_in_use(tmp_path: Path, kind: str) -> None:
    listener, port = taken_port()
    with listener, pytest.raises(BrokerError, match=f"port {port} is in use: --port 0 takes a free one"):
        launch(kind, state_dir=tmp_path, port=port)


@pytest.fixture
def vehicle(processes: Processes) -> tuple[str, ...]:
    """A forecast of two rows, the model not there yet."""
    (processes.folder / "rows.csv").write_text("a,b\n0.1,0.2\n0.9,0.8\n")
    source = str(processes.folder / "rows.csv")
    return ("forecast", "run", "--id", "v", "--source", source, "--speed", "0", "--alert", "1000")


def keep_model(processes: Processes) -> None:
    models = processes.folder / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(PLAIN.to_bytes())


def test_forecast_run_prints_a_line_for_each_forecast(processes: Processes, vehicle: tuple[str, ...]) -> None:
    keep_model(processes)
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A broker and a coordinator."""
    made = Processes(tmp_path_factory.mktemp("running"))
    try:
        made.start("broker", "--kind", "embedded", "--port", "0")
        eventually(lambda: made.note("broker-url"))
        made.start("coordinator", "--api-port", "0")
        eventually(lambda: is_healthy(made))
        yield made
    finally:
        made.end()


def test_operator_is_told_what_cannot_be_done_with_a_run(running: Processes) -> None:
    none = running.call("report", "nosuch")
    assert (none.returncode, "there are none yet" in none.stderr) == (9, True)
    failed = running.call("run", "start", "--run", "base", "--gather-timeout", "2", "--wait")
    assert failed.returncode == 6
    result, end = failed.stderr.splitlines()
    assert re.search(
        r": needs 2 vehicles that can answer \(to learn from fewer: min_agents\): no vehicle is up; waits until "
        r"(\S{10} )?[\d:]{8} UTC for others$",
        result,
    )
    assert "not-enough-agents" in end
    assert running.call("run", "start", "--run", "other", "--gather-timeout", "300").returncode == 0

    ended = running.call("run", "cancel", "base")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "base has failed already; nothing to cancel" in ended.stderr
    for _again in range(2):
        cancelled = running.call("run", "cancel", "other")
        assert (cancelled.returncode, cancelled.stdout) == (0, "other cancelled\n")
    shown = running.call("run", "show", "last", "--wait", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["run"], "cancelled" in shown.stderr) == (6, "other", True)
    reported = running.call("report", "last", "-o", str(running.folder / "report.html"))
    assert "report of other" in reported.stdout, reported.stderr
    for words in (("report", "nosuch"), ("run", "cancel", "nosuch"), ("run", "show", "nosuch")):
        unknown = running.call(*words)
        assert unknown.returncode == 9
        assert "no run 'nosuch'; the newest: other, base. All of them: glassfleet run list" in unknown.stderr


def test_operator_reads_without_the_token_and_is_told_of_it_when_it_is_needed(running: Processes) -> None:
    token = running.note("api-token")
    (running.folder / "api-token").unlink()
    (running.folder / "api-token").mkdir()  # unreadable for root, too
    listed = running.call("run", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    refused = running.call("run", "start", "--gather-timeout", "300", "--run", "r1")
    assert refused.returncode == 2
    assert "api-token" in refused.stderr
    assert "give --token (or GLASSFLEET_TOKEN)" in refused.stderr
    assert running.call("run", "start", "--gather-timeout", "300", "--run", "r1", "--token", token).returncode == 0
    (running.folder / "api-token").rmdir()
    (running.folder / "api-token").write_text(token)


def test_password_of_the_broker_is_in_no_output_and_nobody_else_can_read_the_state(processes: Processes) -> None:
    state = processes.folder / "new" / "state"
    umask = os.umask(0o022)
    try:
        broker = processes.start("broker", "--port", "0", "--kind", "embedded", "--state-dir", str(state), "--json")
        coordinator = processes.start(
            "coordinator", "--api-port", "0", "--state-dir", str(state), "--broker-wait", "40"
        )
        eventually(lambda: processes.note("new/state/api-url") and processes.output(broker, "out"))
    finally:
        os.umask(umask)
    assert (state / "broker-url").name in processes.output(broker, "out")
    password = (state / "broker" / "secret").read_text().strip()
    assert password in processes.note("new/state/broker-url")
    assert all(password not in processes.output(each, end) for each in (broker, coordinator) for end in ("out", "log"))
    places = [state.parent, state, *state.rglob("*")]
    assert [str(path) for path in places if path.exists() and path.stat().st_mode & 0o077] == []
