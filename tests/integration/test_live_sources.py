"""Live sources and the way back, through the commands: brokers, a databroker, a bus, and what is on disk afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.mosquitto import find_mosquitto
from broker.servers.process import free_port
from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.publish import into_vehicle
from edge_agent.live.adapters import viss
from edge_agent.live.port import LiveSample, SampleRequest, SeenValues, ServerAccess, parse
from edge_agent.live.rows import Samples
from edge_agent.sources import read_source
from edge_agent.sources.window import WindowStore
from schemas.errors import UsageError
from tests.support.coordinator_http import record_of, small_document
from tests.support.processes import Call, Processes, eventually

TOPIC = "vehicle/samples"
PLAN = """
[time]
column = "time"
rows = "Vehicle.Speed"
start = 0

[time.inputs]
gear = { signal = "Vehicle.Powertrain.Transmission.SelectedGear", seconds = 60 }
mean = { signal = "Vehicle.Speed", take = "mean", seconds = 1.5 }
speed = { signal = "Vehicle.Speed", seconds = 1 }
"""


@pytest.fixture
def url(processes: Processes) -> str:
    """A broker in the vehicle, for this machine alone."""
    program, port = find_mosquitto(), free_port()
    assert program is not None
    processes.start("-p", str(port), program=[program])
    return f"mqtt://127.0.0.1:{port}"


@pytest.fixture
def car(url: str) -> Iterator[PahoTransport]:
    transport = PahoTransport(Link(url, "car"))
    transport.start(Handlers(lambda _: None, lambda: None, lambda _: None))
    eventually(lambda: transport.is_connected)
    yield transport
    transport.stop()


@pytest.mark.needs("mosquitto")
def test_stored_sample_is_one_row_however_often_the_collector_starts_and_a_missed_one_too(
    url: str, car: PahoTransport, tmp_path: Path, call: Call
) -> None:
    store = tmp_path / "drive.window"

    def collect() -> list[int]:
        source = ("--source", f"{url}/{TOPIC}", "--count", "1", "--store", str(store), "--json")
        done = call("data", "collect", *source)
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        return [printed[name] for name in ("taken", "known", "rows")]

    def publish(speed: int) -> None:
        car.publish(TOPIC, json.dumps({"speed": speed, "quality": 0.5}).encode(), retain=True)
        car.flush(5.0)

    publish(55)
    assert collect() == [1, 0, 1]
    for _ in range(2):
        assert collect() == [0, 1, 1]
    publish(56)
    assert collect() == [1, 0, 2]


@pytest.mark.needs("mosquitto")
def test_viss_server_is_asked_for_each_signal_and_its_values_come_with_their_times(url: str) -> None:
    asked: list[dict[str, Any]] = []
    server = PahoTransport(Link(url, "viss"))
    path = "Vehicle.Speed"

    def answer(message: Message) -> None:
        request = json.loads(message.payload)
        asked.append(request["request"])
        is_get = request["request"]["action"] == "get"
        points = [{"value": "12.5", "ts": "2026-03-01T12:00:01Z"}]
        if not is_get:
            points = [
                {"value": "visserr:Data-not-available", "ts": "2026-03-01T12:00:03Z"},
                *points,
                {"value": "13", "ts": "2026-03-01T12:00:02Z"},
            ]
        printed = {"action": "get" if is_get else "subscription", "data": {"path": path, "dp": points}, "ts": ""}
        server.publish(request["topic"], json.dumps(printed).encode())

    server.subscribe("VIN1/Vehicle")
    server.start(Handlers(answer, lambda: None, lambda _: None))
    eventually(lambda: server.is_connected)
    samples = Samples(SampleRequest(f"viss+{url}/VIN1", signals=(path,), is_urgent=True))
    got = list(islice(samples, 3))
    samples.close()
    server.stop()
    assert [request["action"] for request in asked] == ["get", "subscribe"]
    at = 1772366400.0
    assert got == [
        LiveSample({path: value}, at + late, is_whole=False, is_stored=late == 1)
        for value, late in ((12.5, 1), (13.0, 2), (None, 3))
    ]


@pytest.mark.needs("mosquitto")
def test_forecasts_come_back_on_a_topic_as_one_object_each(url: str, tmp_path: Path) -> None:
    got: list[Any] = []
    listener = PahoTransport(Link(url, "application"))
    listener.subscribe("vehicle/forecast")
    listener.start(Handlers(lambda message: got.append(parse(message.payload)), lambda: None, lambda _: None))
    eventually(lambda: listener.is_connected)
    config = ForecastConfig(id="v0", source="-", publish=f"{url}/vehicle/forecast", state_dir=tmp_path)
    record = {"prediction": 0.25, "rule": 3, "alert": True, "time": 1.7e9}
    with ExitStack() as stack:
        # From the same broker that samples come from, as from one process.
        samples = Samples(SampleRequest(f"{url}/{TOPIC}", is_urgent=True))
        stack.callback(samples.close)
        give = into_vehicle(config, ServerAccess(), stack)
        eventually(lambda: (give(record), got)[1], "one comes")
        listener.publish(TOPIC, b'{"a": 1}')
        assert next(sample for sample in samples if isinstance(sample, LiveSample)).values == {"a": 1}
    listener.stop()
    names = ("Value", "Class", "Rule", "IsAlert")
    values = {
        f"Vehicle.Glassfleet.Forecast.{name}": value for name, value in zip(names, (0.25, None, 3, True), strict=True)
    }
    assert got[0] == LiveSample({"ts": 1.7e9, **values})
    with pytest.raises(UsageError, match=r"give kuksa\[s\]://HOST"), ExitStack() as stack:
        into_vehicle(config.model_copy(update={"publish": "http://x"}), ServerAccess(), stack)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"[]", "no message of VISS v2"),
        (b'{"data": {"path": "a"}}', "no message of VISS v2: KeyError 'dp'"),
        (b'{"action": "get", "error": {"number": "404", "reason": "unavailable_data"}}', "the VISS server says"),
        (b'{"data": {"path": "a", "dp": {"value": "1", "ts": "now"}}}', "'now' is no time"),
    ],
)
def test_what_is_no_value_of_a_viss_server_is_told(payload: bytes, words: str) -> None:
    (text,) = viss.samples_of(payload, SeenValues())
    assert isinstance(text, str)
    assert words in text


def test_databroker_fills_a_window_is_learned_from_and_gets_forecasts_back(
    tmp_path: Path, processes: Processes, call: Call
) -> None:
    pytest.importorskip("kuksa_client")
    from tests.support.vehicle.databroker import GEAR, SPEED, TYPES, Databroker, overlay

    server = Databroker(TYPES | overlay())
    url, store, plan = f"kuksa://127.0.0.1:{server.port}", tmp_path / "drive.window", tmp_path / "plan.toml"
    plan.write_text(PLAN)

    def drive(begin: int, end: int) -> None:
        for second in range(begin, end):
            server.set(
                {SPEED: float(second)} | ({GEAR: f"G{second // 10}"} if second % 10 == 0 else {}), 1.7e9 + second
            )

    def collect(rows: int) -> None:
        process = processes.start("data", "collect", "--source", url, "--plan", str(plan), "--store", str(store))
        eventually(lambda: server.subscribers)
        begin = int(server.points[SPEED].value.float) + 1 if SPEED in server.points else 0
        drive(begin, begin + rows)
        eventually(lambda: WindowStore.open(store).span()[0] >= begin + rows - 1)
        process.kill()
        eventually(lambda: not server.subscribers)

    collect(30)
    collect(30)  # the databroker still has the last value, which was a row already
    names, kept = WindowStore.open(store).read()
    assert names == ("drive", "time", "gear", "mean", "speed")
    assert [row[0] for row in kept] == [1] * 29 + [2] * 30, "a drive ends with the process that saw it"
    assert [row[-1] for row in kept] == list(range(59)), "each once"
    assert read_source(store, categories=True).train.categories["gear"] == tuple(f"G{ten}" for ten in range(6))

    models = tmp_path / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(record_of(small_document()).to_bytes())
    (tmp_path / "live.toml").write_text(PLAN.replace("gear =", "a =").replace("mean =", "b =").replace(GEAR, SPEED))
    process = processes.start(
        *("forecast", "run", "--id", "v", "--source", url, "--plan", str(tmp_path / "live.toml"), "--every", "0"),
        *("--publish", url, "--alert", "1000"),
    )
    eventually(lambda: server.subscribers)
    threading.Thread(target=drive, args=(60, 70)).start()
    eventually(lambda: sum(path.endswith(".IsAlert") for path, _ in server.published) >= 1)
    assert process.end(20) == 0, process.logged()
    printed = [(path.rpartition(".")[2], value) for path, value in server.published[:3]]
    assert [name for name, _ in printed] == ["Value", "Rule", "IsAlert"]
    assert printed[-1] == ("IsAlert", True)

    done = call("doctor", "--kuksa", url, "--json")
    found = [each for each in json.loads(done.stdout) if each["check"] == "databroker"]
    assert [each["level"] for each in found] == ["ok", "ok", "ok"], found
    assert "IsAlert is true" in found[-1]["says"]
    server.stop()
    done = call("doctor", "--kuksa", url, "--json")
    assert done.returncode == 1
    assert "Does it run there" in done.stdout
