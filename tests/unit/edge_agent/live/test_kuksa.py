"""A databroker as a source and as a place for forecasts: the official client, and a server of its own stubs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from edge_agent.forecast import publish
from edge_agent.forecast.config import ForecastConfig
from edge_agent.live import databroker
from edge_agent.live.adapters import kuksa
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample, SampleRequest, ServerAccess
from edge_agent.live.rows import LiveRows, Samples
from glassfleet.data.timeplan import Input, TimePlan
from schemas.errors import DataError, UsageError
from tests.support.processes import eventually
from tests.support.vehicle.databroker import ARRAY, DOOR, GEAR, SPEED, TYPES, Databroker, certificate, overlay

grpc_client = pytest.importorskip("kuksa_client.grpc")

Broker = Callable[..., Databroker]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Start databrokers, and stop them at the end."""
    made: list[Databroker] = []

    def start(*arguments: Any, **options: Any) -> Databroker:
        made.append(Databroker(*arguments, **options))
        return made[-1]

    yield start
    for each in made:
        each.stop()


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Iterator[LiveSample | str]]]:
    """Listen to signals of a databroker."""
    monkeypatch.setattr(kuksa, "AGAIN", 0.05)
    made: list[Samples] = []

    def start(port: int, *signals: str, **more: Any) -> Iterator[LiveSample | str]:
        scheme = more.pop("scheme", "kuksa")
        made.append(Samples(SampleRequest(f"{scheme}://127.0.0.1:{port}", signals=signals, **more)))
        return iter(made[-1])

    yield start
    for each in made:
        each.close()


def first_of(samples: Iterator[LiveSample | str], count: int) -> list[Any]:
    return [each if isinstance(each, str) else (each.time, each.values) for each in islice(samples, count)]


def test_values_come_with_their_own_times_oldest_first_and_absent_ones_as_none(broker: Broker, listen: Any) -> None:
    server = broker()
    server.set({SPEED: 2.5}, 101.0)
    server.set({GEAR: "D"}, 20.5)
    samples = listen(server.port, SPEED, GEAR, DOOR, ARRAY)
    assert first_of(samples, 4) == [
        (None, {DOOR: None}),
        (None, {ARRAY: None}),
        (20.5, {GEAR: "D"}),
        (101.0, {SPEED: 2.5}),
    ]
    server.set({SPEED: None, DOOR: False}, 102.25)
    assert first_of(samples, 2) == [(102.25, {DOOR: False}), (102.25, {SPEED: None})]
    server.set({ARRAY: ["P0420"]}, 103.0)
    assert first_of(samples, 1) == [f"{ARRAY}: it is an array, and a cell is a number or a text"]


def test_nothing_is_given_twice_when_the_databroker_goes_away_and_comes_back(broker: Broker, listen: Any) -> None:
    first = broker()
    first.set({SPEED: 1.0, GEAR: "P"}, 10.0)
    samples = listen(first.port, SPEED, GEAR)
    assert len(first_of(samples, 2)) == 2
    first.stop()
    second = broker(port=first.port)
    second.points = dict(first.points)
    second.set({SPEED: 2.0}, 11.0)
    assert first_of(samples, 1) == [(11.0, {SPEED: 2.0})]


def test_rows_are_made_of_what_is_young_enough(broker: Broker, listen: Any) -> None:
    inputs = {"speed": Input(signal=SPEED, seconds=1), "gear": Input(signal=GEAR, seconds=60)}
    rows = LiveRows(LivePlan(TimePlan(rows=SPEED, inputs=inputs)))
    server = broker()
    server.set({GEAR: "D"}, 100.0)
    server.set({SPEED: 2.0}, 130.0)
    samples = listen(server.port, SPEED, GEAR)
    made = [row for sample in islice(samples, 2) for row in rows.push(sample)]
    server.set({SPEED: 3.0}, 170.0)
    server.set({SPEED: 4.0}, 171.0)
    made += [row for sample in islice(samples, 2) for row in rows.push(sample)]
    assert made == [{"speed": 2.0, "gear": "D"}, {"speed": 3.0, "gear": None}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"signals": ("Vehicle.Nothing",)}, "Path not found: Vehicle.Nothing.*its --vss"),
        ({"access": ServerAccess()}, "a token is needed.*token-file"),
    ],
)
def test_what_does_not_go_away_by_itself_is_an_error(
    options: dict[str, Any], words: str, broker: Broker, tmp_path: Path
) -> None:
    server = broker(token="secret")
    (tmp_path / "token").write_text("secret\n")
    asked = {"signals": (SPEED,), "access": ServerAccess(token_file=tmp_path / "token"), **options}
    with pytest.raises(DataError, match=words):
        next(iter(Samples(SampleRequest(f"kuksa://127.0.0.1:{server.port}", **asked))))


def test_databroker_that_is_not_there_is_an_error_for_who_cannot_wait_alone(broker: Broker, listen: Any) -> None:
    server = broker()
    server.stop()
    with pytest.raises(DataError, match="Does it run there"):
        next(listen(server.port, SPEED, is_urgent=True))
    samples = listen(server.port, SPEED)
    again = broker(port=server.port)
    again.set({SPEED: 1.0}, 5.0)
    assert next(sample for sample in samples if sample.time)


@pytest.mark.parametrize(
    ("url", "access", "words"),
    [
        ("kuksa://192.0.2.1", ServerAccess(), "everybody can read and change"),
        ("kuksas://192.0.2.1", ServerAccess(), "certificate authority"),
        ("kuksa://127.0.0.1", ServerAccess(ca_file=Path("ca.pem")), "without TLS"),
        ("kuksa://127.0.0.1/Vehicle.Speed", ServerAccess(), "name signals in the plan"),
        ("kuksa://127.0.0.1:x", ServerAccess(), "Port could not be cast"),
        ("kuksa://127.0.0.1", ServerAccess(identity=Path("id")), "takes a token"),
        ("kuksa://127.0.0.1", ServerAccess(token_file=Path("none")), "none"),
    ],
)
def test_place_that_cannot_be_used_is_told_with_the_way_out(url: str, access: ServerAccess, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Samples(SampleRequest(url, signals=(SPEED,), access=access))
    with pytest.raises(UsageError, match="table \\[time\\] that names them"):
        Samples(SampleRequest(url))


def test_forecasts_come_back_as_signals_over_tls_with_a_token_the_alert_last(broker: Broker, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    server = broker(TYPES | overlay(), token="secret", tls=files)
    (tmp_path / "token").write_text("secret")
    access = ServerAccess(ca_file=files[1], token_file=tmp_path / "token")
    config = ForecastConfig(id="v0", source="-", publish=f"kuksas://localhost:{server.port}")
    with ExitStack() as stack:
        give = publish.into_vehicle(config, access, stack)
        give({"prediction": 0.25, "rule": 3, "alert": True, "time": 1.7e9})
        eventually(lambda: len(server.published) == 3, "the forecast is published")
        give({"prediction": "Poor", "rule": 0, "alert": False, "time": 1.7e9 + 1})
        eventually(lambda: len(server.published) == 6, "the next forecast is published")
    published = [(path.rpartition(".")[2], value) for path, value in server.published]
    assert published == [
        ("Value", 0.25), ("Rule", 3), ("IsAlert", True), ("Class", "Poor"), ("Rule", 0), ("IsAlert", False),
    ]  # fmt: skip
    with databroker.client_of(config.publish, access) as client:  # as another application reads it
        (updates,) = islice(client.v2_subscribe([f"{publish.BRANCH}.Value"]), 1)
    assert updates[0].entry.value.value == 0.25
    (tmp_path / "token").write_text("wrong")
    with (
        databroker.client_of(config.publish, access) as client,
        pytest.raises(grpc_client.VSSClientError, match="token is needed"),
    ):
        next(client.v2_subscribe([SPEED]))
    assert updates[0].entry.value.timestamp.timestamp() == 1.7e9


def test_forecasts_go_on_when_the_databroker_does_not_know_the_overlay_or_is_away(
    broker: Broker, said: list[dict[str, Any]]
) -> None:
    server = broker()
    config = ForecastConfig(id="v0", source="-", publish=f"kuksa://127.0.0.1:{server.port}")
    with ExitStack() as stack:
        give = publish.into_vehicle(config, ServerAccess(), stack)
        begun = time.monotonic()
        for _ in range(50):
            give({"prediction": 0.25, "rule": 3, "alert": True, "time": 1.7e9})
        assert time.monotonic() - begun < 1, "who forecasts does not wait"
        eventually(lambda: [line["event"] for line in said] == ["not-published"], "the refusal is noted")
    assert not server.published


def test_overlay_for_tools_and_for_databrokers_says_the_same_and_types_are_those_of_the_signals() -> None:
    folder = resources.files("edge_agent.forecast").joinpath("vss")
    document = yaml.safe_load(folder.joinpath("glassfleet.vspec").read_text("utf-8"))
    tree = {"children": json.loads(folder.joinpath("glassfleet.json").read_text("utf-8"))}
    for path, leaf in document.items():
        node: dict[str, Any] = tree
        for part in path.split("."):
            node = node["children"][part]
        assert {key: value for key, value in node.items() if key != "children"} == leaf
    record = {"prediction": 0.5, "rule": 1, "alert": False}
    assert list(publish.signals_of(record)) == list(publish.types_of_signals())
