"""Brokers that we start: Mosquitto and the embedded one."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator

import pytest

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Link
from broker.servers.launch import EmbeddedProcess
from broker.servers.mosquitto import MosquittoProcess
from schemas.errors import BrokerError
from tests.support.processes import eventually
from tests.support.transports import Client, make_ready

pytestmark = pytest.mark.needs("mosquitto")


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


def test_retained_messages_reach_subscribers_only_when_a_client_comes_back(broker):
    a = Client(PahoTransport(Link(broker.url, "r-a"))).start()
    a.transport.subscribe("gf/1/r/secret")
    a.transport.publish("gf/1/r/secret", b"for a", retain=True)
    b = Client(PahoTransport(Link(broker.url, "r-b")))
    b.transport.subscribe("gf/1/r/b")
    b.start()
    make_ready(eventually, a, b)
    b.transport.stop()
    back = Client(PahoTransport(Link(broker.url, "r-b")))
    back.transport.subscribe("gf/1/r/b")
    back.start()
    a.transport.publish("gf/1/r/b", b"for b")
    eventually(lambda: b"for b" in back.payloads(), "message arrived")
    assert {m.topic for m in back.messages} == {"gf/1/r/b"}
    a.transport.stop()
    back.transport.stop()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    running = EmbeddedProcess(tmp_path_factory.mktemp("embedded"))
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize(
    "junk", [b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\xff\xff", b"\x10\x05\xff\xffMQ", b""]
)
def test_broker_survives_what_is_not_mqtt(embedded, junk):
    with socket.create_connection((embedded.address.host, embedded.address.port)) as peer:
        peer.sendall(junk)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(10) == b""
    assert connect_once(Link(embedded.url, "after-junk")) == "3.1.1"


def test_broker_ends_when_the_process_that_started_it_is_killed(processes):
    code = (
        "import sys, pathlib, time\n"
        "from broker.servers.launch import launch\n"
        "b = launch(sys.argv[1], state_dir=pathlib.Path(sys.argv[2]))\n"
        "print(b.url, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = processes.start("embedded", str(processes.folder), program=(sys.executable, "-c", code))
    url = eventually(parent.printed).strip()
    assert connect_once(Link(url, "x")) == "3.1.1"
    parent.kill()

    def is_gone() -> bool:
        try:
            connect_once(Link(url, "x"), 0.5)
        except BrokerError:
            return True
        return False

    eventually(is_gone, "the broker ended")
