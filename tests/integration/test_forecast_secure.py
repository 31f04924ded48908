"""Forecasts over mutual TLS: signed, under a certificate of the forecaster's own, beside the agent's connection."""

from __future__ import annotations

import queue
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.credentials import FolderCredentials
from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.tls import tls_of
from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.serve import _publisher
from lab.demo.secure import secure_broker
from schemas.envelope import Envelope
from schemas.errors import UsageError
from schemas.messages import Forecast
from schemas.topics import Topics
from schemas.trust.owner import Owner

TOPICS = Topics("fleet")
FORECAST = Forecast(name="qoe", version=1, digest="0" * 64, prediction=0.25, rule="IF x is Low", strength=0.5, at=1.0)


@pytest.mark.mosquitto
@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="needs mosquitto: apt install mosquitto")
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
            publish="all",
            broker=broker.url,
            identity=identities / "v1-forecast",
        )
        publish = _publisher(config, stack)
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
            _publisher(config.model_copy(update={"identity": identities / "v1"}), stack)
