"""What a newcomer meets: services started together, things that are there already, a coordinator that comes back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.launch import launch
from coordinator.http.dashboard.actions import DEFAULTS, spec_of
from coordinator.spec.run import with_participation
from glassfleet import catalogue
from schemas.errors import BrokerError
from tests.unit.edge_agent.forecast.test_forecast import PLAIN

GLASSFLEET = [sys.executable, "-m", "console.main"]


class House:
    """One state folder, and the commands that work in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GLASSFLEET_")},
            "GLASSFLEET_STATE_DIR": str(folder),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        number = len(self.processes)
        with (self.folder / f"{number}.out").open("wb") as out, (self.folder / f"{number}.err").open("wb") as err:
            process = subprocess.Popen([*GLASSFLEET, *words], stdout=out, stderr=err, env=self._environment)
        self.processes.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes], where: str = "err") -> str:
        return (self.folder / f"{self.processes.index(process)}.{where}").read_text()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GLASSFLEET, *words], capture_output=True, text=True, check=False, env=self._environment, timeout=60
        )

    def note(self, name: str) -> str:
        path = self.folder / name
        return path.read_text().strip() if path.exists() else ""

    def healthy(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            url = self.note("api-url")
            return bool(url) and httpx.get(f"{url}/api/health", trust_env=False).json()["connected"] is True
        return False


def until(condition: Callable[[], Any], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def taken_port() -> tuple[socket.socket, int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener, listener.getsockname()[1]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in made.processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_coordinator_finds_the_broker_when_both_are_started_together(house: House) -> None:
    coordinator = house.start("coordinator", "--api-port", "0", "--broker-wait", "40")
    until(lambda: "no broker yet" in house.said(coordinator))
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(house.healthy)
    assert coordinator.poll() is None


@pytest.mark.parametrize("service", ["coordinator", "agent"])
def test_service_names_the_way_out_when_no_broker_comes(house: House, service: str) -> None:
    rest = ["--id", "v1", "--data", "rows.csv"] if service == "agent" else ["--no-api"]
    done = house.ask(service, *rest, "--broker-wait", "0.3")
    assert done.returncode == 4
    assert "no broker: give --broker URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_run_start_says_that_there_is_no_broker_while_the_coordinator_waits_for_it(house: House) -> None:
    house.start("coordinator", "--api-port", "0", "--broker", "mqtt://127.0.0.1:9", "--broker-wait", "60")
    until(lambda: house.note("api-url"))
    done = house.ask("run", "start", "--scheme", "frt")
    assert done.returncode == 11
    assert "the coordinator has no broker yet" in done.stderr


def test_run_start_wait_survives_a_coordinator_that_is_killed_and_started_again(house: House) -> None:
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    first = house.start("coordinator", "--api-port", "0")
    until(house.healthy)
    url = house.note("api-url")
    waiting = house.start("run", "start", "--scheme", "fedga", "--run", "r1", "--wait", "--gather-timeout", "300")
    until(lambda: httpx.get(f"{url}/api/runs/r1", trust_env=False).is_success)
    first.kill()
    first.wait()
    until(lambda: "no coordinator answers" in house.said(waiting))
    house.start("coordinator", "--api-port", "0", "--take-over")
    until(house.healthy)
    assert house.note("api-url") == url
    assert house.ask("run", "cancel", "r1").returncode == 0
    until(lambda: waiting.poll() is not None)
    assert waiting.returncode == 6
    assert house.said(waiting).count("no coordinator answers") == 1
    assert "cancelled" in house.said(waiting)


def test_coordinator_takes_a_free_port_when_its_former_one_is_taken(house: House) -> None:
    listener, port = taken_port()
    with listener:
        (house.folder / "api-port").write_text(f"{port}\n")
        house.start("coordinator", "--api-port", "0", "--broker", "mqtt://127.0.0.1:9", "--broker-wait", "0")
        until(lambda: house.note("api-url"))
        assert not house.note("api-url").endswith(f":{port}")


def test_second_broker_is_refused_and_leaves_the_first_ones_note(house: House) -> None:
    first = house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    url = house.note("broker-url")
    done = house.ask("broker", "--kind", "embedded", "--port", "0")
    assert done.returncode == 5
    assert "another `glassfleet broker` works in" in done.stderr
    assert house.note("broker-url") == url
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    assert house.note("broker-url") == ""


def test_broker_leaves_a_note_that_is_not_its_own(house: House) -> None:
    broker = house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    (house.folder / "broker-url").write_text("mqtt://other\n")
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(20) == 0
    assert house.note("broker-url") == "mqtt://other"


def test_note_of_a_broker_that_was_killed_is_not_believed(house: House) -> None:
    first = house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    assert house.ask("model", "list").returncode == 0
    first.kill()
    first.wait()
    url = house.note("broker-url")
    assert url
    for words in (["model", "list"], ["tap", "--count", "1"]):
        done = house.ask(*words)
        assert done.returncode == 4
        assert f"the `glassfleet broker` that wrote {house.folder / 'broker-url'} was killed" in done.stderr
    found = {each["check"]: each for each in json.loads(house.ask("doctor", "--json").stdout)}
    assert found["broker"]["level"] == "wrong"
    assert found["broker"]["fix"].startswith("start it again with `glassfleet broker`")
    # A service waits for the next one, and takes what that one notes.
    coordinator = house.start("coordinator", "--api-port", "0", "--broker-wait", "40")
    until(lambda: "was killed" in house.said(coordinator))
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(house.healthy)
    assert coordinator.poll() is None
    assert house.ask("model", "list").returncode == 0


@pytest.mark.parametrize("kind", ["embedded", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
@pytest.mark.parametrize("again", [["--port", "0"], []], ids=["free-port", "plain"])
def test_broker_that_was_killed_gets_its_port_again_and_the_coordinator_is_back(
    house: House, kind: str, again: list[str]
) -> None:
    first = house.start("broker", "--kind", kind, "--port", "0")
    until(lambda: house.note("broker-url"))
    url = house.note("broker-url")
    coordinator = house.start("coordinator", "--api-port", "0")
    until(house.healthy)
    first.kill()
    first.wait()
    until(lambda: not house.healthy())
    second = house.start("broker", "--kind", kind, *again)
    until(house.healthy)
    # The coordinator may be back before the note is written.
    until(lambda: house.note("broker-url"))
    assert house.note("broker-url") == url
    assert coordinator.poll() is None
    # Taken by somebody else, it is given up where no port was asked for.
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 0
    with socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1]))):
        house.start("broker", "--kind", kind, "--port", "0")
        until(lambda: house.note("broker-url") not in {"", url})


def test_doctor_says_how_to_start_a_broker_when_none_is_there(house: House) -> None:
    done = house.ask("doctor", "--json")
    (found,) = [each for each in json.loads(done.stdout) if each["check"] == "broker"]
    assert found["level"] == "warning"
    assert "glassfleet broker" in found["fix"] or "--broker" in found["fix"]
    (found,) = [
        each
        for each in json.loads(house.ask("doctor", "--as-coordinator", "--json").stdout)
        if each["check"] == "broker"
    ]
    assert found["level"] == "wrong"


def test_agent_whose_rows_are_none_names_the_fault_and_the_check_that_tells_all(house: House) -> None:
    rows = house.folder / "accounts"
    rows.write_text("root:x:0:0:root:/root:/bin/sh\n" + "a:x:1:1:b,c,,:/:/bin/sh\n" * 3)
    done = house.ask("agent", "--id", "v1", "--data", str(rows), "--broker", "mqtt://127.0.0.1:9")
    assert done.returncode == 3
    assert done.stderr.startswith(f"glassfleet: error: {rows}")
    assert f"glassfleet data check {rows}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_run_start_wait_waits_for_a_coordinator_that_is_not_there_yet(house: House) -> None:
    listener, port = taken_port()
    listener.close()
    at = ("--coordinator", f"http://127.0.0.1:{port}")
    waiting = house.start("run", "start", *at, "--scheme", "fedga", "--run", "r1", "--wait", "--gather-timeout", "300")
    until(lambda: "no coordinator answers" in house.said(waiting))
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    house.start("coordinator", "--api-port", str(port))
    until(lambda: house.ask("run", "cancel", "r1", *at).returncode == 0)
    until(lambda: waiting.poll() is not None)
    assert waiting.returncode == 6
    assert "cancelled" in house.said(waiting)


@pytest.mark.parametrize(
    "words", [("run", "start", "--wait"), ("run", "show", "r1", "--wait"), ("rollout", "start", "m", "2", "--wait")]
)
def test_waiting_gives_up_after_the_time_that_it_was_given(house: House, words: tuple[str, ...]) -> None:
    at = ("--coordinator", "http://127.0.0.1:9")
    done = house.ask(*words, *at, "--coordinator-wait", "0.7")
    assert done.returncode == 11
    assert "trying for 0.7 s" in done.stderr
    patient_not = house.ask(*words[:-1], *at) if words[1] == "start" else house.ask("run", "show", "r1", *at)
    assert patient_not.returncode == 11
    assert "trying" not in patient_not.stderr


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_launch_says_which_port_is_in_use(tmp_path: Path, kind: str) -> None:
    listener, port = taken_port()
    with listener, pytest.raises(BrokerError, match=f"port {port} is in use: --port 0 takes a free one"):
        launch(kind, state_dir=tmp_path, port=port)


def test_spec_gets_the_schemes_only_participation_when_it_names_none() -> None:
    assert with_participation({"scheme": "fedga"}, catalogue.load)["participation"] == "elastic"
    assert "participation" not in with_participation({"scheme": "frt", "participation": None}, catalogue.load)
    named = {"scheme": "fedga", "participation": "cohort"}
    assert with_participation(named, catalogue.load) == named
    assert json.dumps(with_participation(["no", "spec"], catalogue.load)) == '["no", "spec"]'


@pytest.mark.parametrize(("scheme", "participation"), [("fedga", "elastic"), ("frt", "cohort")])
def test_form_for_a_new_run_takes_the_participation_that_the_scheme_has(scheme: str, participation: str) -> None:
    assert spec_of({**DEFAULTS, "scheme": scheme}).participation == participation


@pytest.fixture
def vehicle(house: House) -> tuple[str, ...]:
    """A forecast of two rows, the model not there yet."""
    (house.folder / "rows.csv").write_text("a,b\n0.1,0.2\n0.9,0.8\n")
    source = str(house.folder / "rows.csv")
    return ("forecast", "run", "--id", "v", "--source", source, "--speed", "0", "--alert", "1000")


def keep_model(house: House) -> None:
    models = house.folder / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(PLAIN.to_bytes())


def test_forecast_run_prints_a_line_for_each_forecast(house: House, vehicle: tuple[str, ...]) -> None:
    keep_model(house)
    done = house.ask(*vehicle)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        time_, _value, rule = line.split("  ")[:3]
        assert time_.endswith("+00:00")
        assert rule.startswith("rule ")
        assert line.endswith("  ALERT")


def test_forecast_run_prints_records_when_asked_for_json(house: House, vehicle: tuple[str, ...]) -> None:
    keep_model(house)
    records = [json.loads(line) for line in house.ask(*vehicle, "--json").stdout.splitlines()]
    assert [record["kind"] for record in records] == ["forecast", "forecast"]
    assert records[0]["inputs"] == {"a": 0.1, "b": 0.2}


def test_forecast_run_prints_nothing_when_told_so(house: House, vehicle: tuple[str, ...]) -> None:
    keep_model(house)
    done = house.ask(*vehicle, "--no-print")
    assert (done.returncode, done.stdout) == (0, "")


def test_forecast_run_says_once_what_it_waits_for_when_there_is_no_model(
    house: House, vehicle: tuple[str, ...]
) -> None:
    done = house.ask(*vehicle)
    assert (done.returncode, done.stdout) == (9, "")
    assert done.stderr.count("waits-for-model") == 1
    assert "glassfleet agent" in done.stderr


def test_forecast_run_names_the_agents_that_are_there_when_its_own_never_was(
    house: House, vehicle: tuple[str, ...]
) -> None:
    fleet = house.folder / "agents" / "fleet"
    for folder in ("v7/models", "v8/models", "v9/forecasts"):
        (fleet / folder).mkdir(parents=True, exist_ok=True)
    for _again in range(2):  # its own log in that agent's folder makes it none that was here
        done = house.ask(*("vehicle-99" if word == "v" else word for word in vehicle))
        assert (done.returncode, done.stdout) == (9, "")
        assert "no agent 'vehicle-99' of fleet 'fleet' was ever in" in done.stderr
        assert "there are: v7, v8. Waiting" in done.stderr
        assert "the source ended, and not one forecast was made" in done.stderr.splitlines()[-1]


def test_forecast_run_says_nothing_of_agents_when_its_own_was_there(house: House, vehicle: tuple[str, ...]) -> None:
    keep_model(house)
    done = house.ask(*vehicle)
    assert done.returncode == 0
    assert "no-such-agent" not in done.stderr


def test_operator_is_told_what_cannot_be_done_with_a_run(house: House) -> None:
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    house.start("coordinator", "--api-port", "0")
    until(house.healthy)
    none = house.ask("report", "nosuch")
    assert (none.returncode, "there are none yet" in none.stderr) == (9, True)
    assert house.ask("run", "start", "--run", "base", "--gather-timeout", "0.3", "--wait").returncode == 6
    assert house.ask("run", "start", "--run", "other", "--gather-timeout", "300").returncode == 0

    ended = house.ask("run", "cancel", "base")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "base has failed already; nothing to cancel" in ended.stderr
    for _again in range(2):
        cancelled = house.ask("run", "cancel", "other")
        assert (cancelled.returncode, cancelled.stdout) == (0, "other cancelled\n")
    for words in (("report", "nosuch"), ("run", "cancel", "nosuch"), ("run", "show", "nosuch")):
        unknown = house.ask(*words)
        assert unknown.returncode == 9
        assert "no run 'nosuch'; the newest: other, base. All of them: glassfleet run list" in unknown.stderr
    misspelt = house.ask("run", "start", "--scheme", "fmt", "--param", "max_rule=6")
    assert misspelt.returncode == 2
    assert "no parameter 'max_rule' in scheme fmt; did you mean max_rules? It has: " in misspelt.stderr


def test_operator_reads_without_the_token_and_is_told_of_it_when_it_is_needed(house: House) -> None:
    house.start("broker", "--kind", "embedded", "--port", "0")
    until(lambda: house.note("broker-url"))
    house.start("coordinator", "--api-port", "0")
    until(house.healthy)
    token = house.note("api-token")
    (house.folder / "api-token").unlink()
    (house.folder / "api-token").mkdir()  # unreadable for root, too
    listed = house.ask("run", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    refused = house.ask("run", "start", "--gather-timeout", "300", "--run", "r1")
    assert refused.returncode == 2
    assert "api-token" in refused.stderr
    assert "give --token (or GLASSFLEET_TOKEN)" in refused.stderr
    assert house.ask("run", "start", "--gather-timeout", "300", "--run", "r1", "--token", token).returncode == 0


@pytest.mark.parametrize("style", [[], ["--json"]], ids=["words", "json"])
def test_password_of_the_broker_is_in_no_output_and_nobody_else_can_read_the_state(
    house: House, style: list[str]
) -> None:
    state = house.folder / "new" / "state"
    umask = os.umask(0o022)
    try:
        broker = house.start("broker", "--port", "0", "--kind", "embedded", "--state-dir", str(state), *style)
        coordinator = house.start("coordinator", "--api-port", "0", "--state-dir", str(state), "--broker-wait", "40")
        until(lambda: house.note("new/state/api-url") and house.said(broker, "out"))
    finally:
        os.umask(umask)
    assert (state / "broker-url").name in house.said(broker, "out")
    password = (state / "broker" / "secret").read_text().strip()
    assert password in house.note("new/state/broker-url")
    assert all(password not in house.said(each, end) for each in (broker, coordinator) for end in ("out", "err"))
    places = [state.parent, state, *state.rglob("*")]
    assert [str(path) for path in places if path.exists() and path.stat().st_mode & 0o077] == []
