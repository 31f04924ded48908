"""Mosquitto with the configuration that we write: started, refused, restarted, and its limits as promised."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Link
from broker.servers.acl import agent_rules, coordinator_rules, mosquitto_acl
from broker.servers.mosquitto import MosquittoConfig, MosquittoProcess
from broker.servers.passwords import mosquitto_hash, write_private
from schemas.errors import BrokerError
from schemas.topics import Topics
from tests.support.transports import Client, make_ready

pytestmark = pytest.mark.mosquitto
TOPICS = Topics("fleet")


def eventually(condition, what: str = "", seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoProcess]:
    running = MosquittoProcess(tmp_path_factory.mktemp("broker"), max_message_bytes=200_000)
    running.start()
    yield running
    running.stop()


def test_mosquitto_speaks_both_versions(broker):
    assert connect_once(Link(broker.url, "x")) == "5"
    assert connect_once(Link(broker.url, "x", protocol="3.1.1")) == "3.1.1"


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("user", ["", "fleet:wrong@"])
def test_mosquitto_refuses_strangers(broker, user, protocol):
    with pytest.raises(BrokerError, match="check user and password"):
        connect_once(Link(f"mqtt://{user}{broker.address.place}", "x", protocol=protocol))


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


def test_mosquitto_keeps_answers_and_retained_messages_when_it_restarts(broker):
    a, b = (Client(PahoTransport(Link(broker.url, i))).start() for i in ("keep-a", "keep-b"))
    b.transport.subscribe("gf/1/keep/#")
    make_ready(eventually, b)
    b.transport.stop()
    a.transport.publish("gf/1/keep/state", b"1", retain=True)
    a.transport.publish("gf/1/keep/answer", b"2")
    assert a.transport.flush(30)
    broker.restart()
    back = Client(PahoTransport(Link(broker.url, "keep-b"))).start()
    eventually(lambda: len(back.payloads()) == 2, "what was kept arrived")
    assert back.payloads() == [b"1", b"2"]
    a.transport.stop()
    back.transport.stop()


def test_clients_come_back_when_mosquitto_is_killed(broker):
    a = Client(PahoTransport(Link(broker.url, "killed"))).start()
    eventually(lambda: a.connects, "connected")
    os.kill(broker.pid, signal.SIGKILL)
    eventually(lambda: a.losses and not broker.is_running, "lost")
    broker.start()
    eventually(lambda: a.connects == 2, "connected again")
    a.transport.stop()


def test_rules_rendered_for_each_agent_stop_forged_receipts(tmp_path):
    running = MosquittoProcess(tmp_path)
    users = {"coordinator": coordinator_rules(TOPICS), **{v: agent_rules(TOPICS, v) for v in ("v1", "v2")}}
    passwords = "".join(f"{user}:{mosquitto_hash(user + '-secret')}\n" for user in users)
    write_private(tmp_path / "acl", mosquitto_acl({**users, "fleet": []}))
    write_private(tmp_path / "passwords", passwords + (tmp_path / "passwords").read_text())
    running.start()
    try:
        clients = {
            user: Client(PahoTransport(Link(f"mqtt://{user}:{user}-secret@{running.address.place}", user)))
            for user in users
        }
        for user, client in clients.items():
            client.transport.subscribe(TOPICS.receipt("v1") if user != "coordinator" else TOPICS.contribution("+", "+"))
            client.start()
        eventually(lambda: all(client.connects for client in clients.values()), "all connected")
        time.sleep(0.2)  # no message to itself can tell: the rules forbid it
        forger, victim, coordinator = clients["v2"].transport, clients["v1"], clients["coordinator"]
        forger.publish(TOPICS.receipt("v1"), b"forged")
        forger.publish(TOPICS.contribution("v1", "r"), b"forged")
        assert forger.flush(30)
        victim.transport.publish(TOPICS.contribution("v1", "r"), b"true")
        coordinator.transport.publish(TOPICS.receipt("v1"), b"true")
        eventually(lambda: victim.messages and coordinator.messages, "the true ones arrived")
        assert victim.payloads() == [b"true"]
        assert coordinator.payloads() == [b"true"]
        assert clients["v2"].messages == [], "another's receipts cannot be read"
        for client in clients.values():
            client.transport.stop()
    finally:
        running.stop()


def test_mosquitto_says_when_its_port_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = MosquittoProcess(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(BrokerError, match=r"did not start: .*in use"):
            second.start(timeout=3)
        assert not second.is_running


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
    assert "persistence false" in MosquittoConfig(port=1, state_dir=tmp_path, persistence=False).render()
