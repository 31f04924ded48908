"""The embedded broker as a process: a hundred agents, its faults mended, its words when it cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Link, Message
from broker.servers.embedded import prepare_embedded
from broker.servers.launch import EmbeddedProcess
from schemas.errors import BrokerError, UsageError
from tests.support.processes import eventually
from tests.support.transports import Client, make_ready


def test_hundred_agents_answer_a_request_and_get_their_receipts(broker):
    coordinator = Client(PahoTransport(Link(broker.url, "h-coordinator")))
    coordinator.on_message = lambda m: coordinator.transport.publish(m.topic.replace("answer", "receipt"), m.payload)
    coordinator.transport.subscribe("gf/1/h/agent/+/answer")
    coordinator.start()
    agents = []
    for n in range(100):
        agent = Client(
            PahoTransport(Link(broker.url, f"h-{n}", will=Message(f"gf/1/h/agent/{n}/state", b"down", True)))
        )
        agent.transport.subscribe("gf/1/h/request")
        agent.transport.subscribe(f"gf/1/h/agent/{n}/receipt")

        def answer(message: Message, agent: Client = agent, n: int = n) -> None:
            if message.topic.endswith("request"):
                agent.transport.publish(f"gf/1/h/agent/{n}/answer", message.payload + b"x" * 4000)

        agent.on_message = answer
        agents.append(agent.start())
    make_ready(eventually, coordinator, *agents)
    for number in range(3):
        coordinator.transport.publish("gf/1/h/request", b"round %d" % number, retain=True)
        eventually(
            lambda number=number: all(
                any(m.topic.endswith("receipt") and m.payload.startswith(b"round %d" % number) for m in a.messages)
                for a in agents
            ),
            "all receipts arrived",
        )
    for each in [coordinator, *agents]:
        each.transport.stop()


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


def test_client_that_leaves_in_the_middle_of_traffic_gets_the_rest_in_order_when_it_is_back(broker):
    sender = Client(PahoTransport(Link(broker.url, "o-sender"))).start()
    for attempt in range(12):
        topic = f"gf/1/o/{attempt}"
        leaver = Client(PahoTransport(Link(broker.url, f"o-{attempt}")))
        leaver.transport.subscribe(topic)
        make_ready(eventually, leaver.start())
        stopping = threading.Thread(target=leaver.transport.stop)
        stopping.start()
        for n in range(20):
            sender.transport.publish(topic, b"%d" % n)
        stopping.join()
        assert sender.transport.flush(30)
        back = Client(PahoTransport(Link(broker.url, f"o-{attempt}"))).start()
        eventually(lambda back=back: b"19" in back.payloads(), "the last one arrived")
        assert back.payloads() == sorted(back.payloads(), key=int)
        back.transport.stop()
    sender.transport.stop()


def test_client_that_was_taken_over_and_came_back_is_served_at_once(broker):
    sender = Client(PahoTransport(Link(broker.url, "t-sender"))).start()
    for attempt in range(5):
        one = Client(PahoTransport(Link(broker.url, "t-same")))
        one.transport.subscribe("gf/1/t/x")
        one.start()
        eventually(lambda one=one: one.connects, "connected")
        two = Client(PahoTransport(Link(broker.url, "t-same")))
        two.transport.subscribe("gf/1/t/x")
        two.start()
        eventually(lambda one=one: one.losses, "taken over")
        one.transport.stop()
        make_ready(eventually, two)
        sender.transport.publish("gf/1/t/x", b"%d" % attempt)
        eventually(lambda two=two, attempt=attempt: b"%d" % attempt in two.payloads(), "served")
        two.transport.stop()
    sender.transport.stop()


def text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def connected(broker: EmbeddedProcess, flags: int, keepalive: int, *payload: bytes) -> socket.socket:
    """Return a connection that said CONNECT (version 3.1.1, with user and password) and was let in."""
    user, password = b"fleet", (broker.address.password or "").encode()
    rest = text(b"MQTT") + bytes([4, flags | 0b11000000]) + keepalive.to_bytes(2, "big")
    rest += b"".join(text(part) for part in (*payload, user, password))
    peer = socket.create_connection((broker.address.host, broker.address.port))
    peer.sendall(bytes([0x10, len(rest)]) + rest)
    assert peer.recv(4)[:1] == b"\x20"
    return peer


@pytest.mark.parametrize(
    "junk", [b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\xff\xff", b"\x10\x05\xff\xffMQ", b""]
)
def test_broker_survives_what_is_not_mqtt(broker, junk):
    with socket.create_connection((broker.address.host, broker.address.port)) as peer:
        peer.sendall(junk)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(10) == b""
    assert connect_once(Link(broker.url, "after-junk")) == "3.1.1"


def test_embedded_broker_refuses_to_listen_to_the_network(tmp_path):
    with pytest.raises(UsageError, match="this machine only"):
        prepare_embedded(tmp_path, host="0.0.0.0")


def test_broker_ends_when_the_process_that_started_it_is_killed(tmp_path):
    code = (
        "import sys, pathlib, time\n"
        "from broker.servers.launch import launch\n"
        "b = launch('embedded', state_dir=pathlib.Path(sys.argv[1]))\n"
        "print(b.pid, b.url, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    _pid, url = parent.stdout.readline().split()
    assert connect_once(Link(url, "x")) == "3.1.1"
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def is_gone() -> bool:
        try:
            connect_once(Link(url, "x"), 0.5)
        except BrokerError:
            return True
        return False

    eventually(is_gone, "the broker ended")
