"""Signatures at the command line and of a vehicle's forecasts."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.credentials import FolderCredentials
from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.mosquitto import MosquittoProcess
from broker.tls import tls_of
from console.main import run
from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.publish import to_fleet
from lab.demo.secure import secure_broker
from schemas.envelope import Envelope, frames_for_model
from schemas.errors import UsageError
from schemas.messages import Forecast, ModelPointer
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.owner import Owner
from schemas.trust.signing import Signer
from tests.support.authorities import FleetCa
from tests.support.coordinator_http import record_of, small_document

pytestmark = pytest.mark.usefixtures("own_state")
TOPICS = Topics("fleet")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> FleetCa:
    made = FleetCa(tmp_path_factory.mktemp("ca"))
    made.identity("coordinator", "cloud")
    made.identity("operator", "anna")
    made.identity("agent", "v1")
    return made


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> FleetCa:
    made = FleetCa(tmp_path_factory.mktemp("foreign"))
    made.identity("coordinator", "cloud")
    return made


def signer(ca: FleetCa, name: str) -> Signer:
    return FolderCredentials(ca.folder / name).signer


def record(version: int = 1) -> ModelRecord:
    # Made today: a certificate must have been valid when the record was made.
    return record_of(small_document(), version=version, created=datetime.now(UTC).isoformat())


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def ask(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return ask


def test_file_is_believed_when_a_coordinator_of_the_fleet_signed_it(call: Call, ca: FleetCa, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(record().signed_by(signer(ca, "cloud")).to_bytes())
    code, out, err = call("model", "rules", path, "--identity", ca.folder / "anna")
    assert code == 0, err
    assert out
    assert err == "m v1: signed by coordinator cloud, verified\n"
    code, out, err = call("model", "rules", path, "--json")
    assert (code, err.count("\n")) == (0, 1)
    assert json.loads(out)
    assert "not verified: give --identity" in err
    assert call("model", "rules", path, "--quiet")[::2] == (0, "")


@pytest.mark.parametrize("command", ["rules", "show", "export", "diff"])
@pytest.mark.parametrize("forgery", ["unsigned", "by an agent", "by another fleet", "changed"])
def test_file_is_refused_with_the_documented_code_when_it_is_forged(  # noqa: PLR0917 - fixtures
    call: Call, ca: FleetCa, foreign: FleetCa, tmp_path: Path, command: str, forgery: str
) -> None:
    forgeries: dict[str, Callable[[], ModelRecord]] = {
        "unsigned": record,
        "by an agent": lambda: record().signed_by(signer(ca, "v1")),
        "by another fleet": lambda: record().signed_by(signer(foreign, "cloud")),
        "changed": lambda: record().signed_by(signer(ca, "cloud")).model_copy(update={"cohort": ["nobody"]}),
    }
    path = tmp_path / "m.json"
    path.write_bytes(forgeries[forgery]().to_bytes())
    words = ["diff", path, path] if command == "diff" else [command, path]
    code, out, err = call("model", *words, "--identity", ca.folder / "anna")
    assert (code, out) == (8, "")
    assert err.startswith("glassfleet: error: model m v1 is not believed: ")
    assert str(ca.folder / "anna") in err
    assert err.count("\n") == 1


class Publisher:
    """Writes to a broker that lets everybody write what he likes."""

    def __init__(self, url: str, identity: Path) -> None:
        self._transport = PahoTransport(Link(url=url, client_id="forger", session_expiry=0, tls=tls_of(identity)))
        self._transport.start(Handlers(lambda _: None, lambda: None, lambda _: None))

    def publish(self, made: ModelRecord, pointed: Signer | None) -> None:
        name = made.name
        for topic, payload in frames_for_model(made.to_bytes(), TOPICS, name, made.version).frames:
            self._transport.publish(topic, payload, retain=True)
        pointer = ModelPointer(name=name, version=made.version, digest=made.digest)
        payload = Envelope(fleet="fleet", body=pointer).to_bytes()
        topic = TOPICS.model_current(name)
        self._transport.publish(topic, pointed.seal(topic, payload) if pointed else payload, retain=True)
        assert self._transport.flush(20)

    def stop(self) -> None:
        self._transport.stop()


@pytest.fixture
def publisher(tmp_path: Path, ca: FleetCa) -> Iterator[tuple[Publisher, str]]:
    identity = ca.identity("broker", "broker")
    broker = MosquittoProcess(tmp_path / "broker", identity=identity, acl="pattern readwrite #\n")
    broker.start()
    made = Publisher(broker.url, ca.folder / "cloud")
    yield made, broker.url
    made.stop()
    broker.stop()


@pytest.mark.needs("mosquitto")
def test_registry_refuses_what_a_hostile_broker_serves_and_believes_the_rest(
    call: Call, ca: FleetCa, foreign: FleetCa, publisher: tuple[Publisher, str]
) -> None:
    writer, url = publisher
    cloud = signer(ca, "cloud")
    at = ("--broker", url, "--identity", ca.folder / "anna")
    writer.publish(record(1).signed_by(cloud), cloud)
    code, out, err = call("model", "rules", "m", *at)
    assert (code, bool(out)) == (0, True), err
    assert "m v1: signed by coordinator cloud, verified" in err
    code, _, err = call("model", "list", *at)
    assert (code, "signatures verified: 1" in err) == (0, True)

    writer.publish(record(2).signed_by(signer(foreign, "cloud")), signer(foreign, "cloud"))
    code, out, err = call("model", "rules", "m", *at)
    assert (code, out) == (8, "")
    assert "what is current of model m is not believed" in err
    code, out, err = call("model", "rules", "m@2", *at)
    assert (code, out) == (8, "")
    assert "model m version 2 is not believed" in err
    assert call("model", "rules", "m@1", *at)[0] == 0
    code, out, err = call("model", "list", *at, "--json")
    assert code == 8
    assert [row["version"] for row in json.loads(out)] == [1]
    assert "m v2 is not believed" in err


FORECAST = Forecast(name="qoe", version=1, digest="0" * 64, prediction=0.25, rule="IF x is Low", strength=0.5, at=1.0)


@pytest.mark.needs("mosquitto")
def test_forecaster_publishes_signed_under_its_own_certificate_while_the_agent_stays_connected(tmp_path: Path):
    broker, identities = secure_broker(tmp_path, "fleet", "cloud", ["v1", "v1-forecast"])
    heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
    lost: list[str] = []
    with ExitStack() as stack:
        stack.callback(broker.stop)
        for name in ("cloud", "v1"):
            transport = PahoTransport(Link(broker.url, f"test-{name}", tls=tls_of(identities / name)))
            transport.subscribe(TOPICS.forecast("+") if name == "cloud" else TOPICS.receipt("v1"))
            transport.start(Handlers(heard.put, lambda: None, lost.append))
            stack.callback(transport.stop)
            while not transport.is_connected:
                time.sleep(0.01)
        config = ForecastConfig(
            id="v1",
            state_dir=tmp_path,
            source="-",
            report="all",
            broker=broker.url,
            identity=identities / "v1-forecast",
        )
        publish = to_fleet(config, stack)
        message = None
        for _ in range(200):  # what is said before the connection stands is not said at all
            publish(FORECAST)
            try:
                message = heard.get(timeout=0.1)
                break
            except queue.Empty:
                continue
        assert message is not None
        assert message.topic == TOPICS.forecast("v1-forecast")
        verifier = FolderCredentials(identities / "cloud").verifier
        owner = Owner("agent", "v1-forecast")
        assert verifier.open(message.topic, message.payload, (owner,)) == owner
        assert Envelope.from_bytes(message.payload, fleet="fleet").body == FORECAST
        assert lost == []

        with pytest.raises(UsageError, match="Enrol a second one, such as v1-forecast"):
            to_fleet(config.model_copy(update={"identity": identities / "v1"}), stack)
