"""Mosquitto with the configuration that we write: started, refused, restarted, and its limits as promised."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Link
from broker.servers.mosquitto import MosquittoConfig, MosquittoProcess
from schemas.errors import BrokerError
from tests.support.processes import eventually
from tests.support.transports import Client

pytestmark = pytest.mark.mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoProcess]:
    running = MosquittoProcess(tmp_path_factory.mktemp("broker"), max_message_bytes=200_000)
    running.start()
    yield running
    running.stop()


def test_client_learns_the_brokers_limit_and_refuses_what_is_larger(broker):
    a = Client(PahoTransport(Link(broker.url, "limit", max_message_bytes=10_000_000)))
    a.transport.subscribe("gf/1/f/x")
    a.transport.publish("gf/1/f/x", bytes(5_000_000))  # queued before anybody knows the limit
    a.transport.publish("gf/1/f/x", b"small")
    a.start()
    eventually(lambda: a.payloads() == [b"small"], "the small one arrived")
    assert a.transport.flush(30)
    assert a.losses == []
    assert 200_000 <= a.transport.max_message_bytes <= 210_000
    with pytest.raises(ValueError, match="split them"):
        a.transport.publish("gf/1/f/x", bytes(300_000))
    a.transport.stop()


def test_missing_mosquitto_is_said_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    with pytest.raises(BrokerError, match="apt install mosquitto"):
        MosquittoProcess(tmp_path)


def test_configuration_has_the_measured_necessities(tmp_path):
    text = MosquittoConfig(port=1, state_dir=tmp_path).render()
    for line in (
        "set_tcp_nodelay true",
        "max_queued_messages 100000",
        "max_inflight_messages 100",
        "allow_anonymous false",
    ):
        assert line in text.splitlines()
    assert "listener 1 127.0.0.1" in text
