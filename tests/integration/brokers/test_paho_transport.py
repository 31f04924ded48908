"""The paho adapter against sockets that are silent, foreign, closed or refuse; and against handlers that fail."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import paho_transport
from broker.connection import Connection
from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Message
from broker.servers.launch import EmbeddedProcess
from broker.servers.mosquitto import MosquittoProcess
from broker.servers.process import free_port
from schemas.errors import BrokerError
from tests.support.processes import eventually
from tests.support.transports import Client

CONNACK_V311_REFUSED = b"\x20\x02\x00\x01"
CONNACK_V311 = b"\x20\x02\x00\x00"


@contextlib.contextmanager
def listener(meet) -> Iterator[str]:
    """A TCP server at the yielded address; `meet` gets each connection and the first bytes that came over it."""
    listening = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listening.accept()
                kept.append(peer)
                meet(peer, peer.recv(4096))

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()
        for peer in kept:
            peer.close()


@contextlib.contextmanager
def server(answer) -> Iterator[str]:
    """A TCP server; `answer` maps the protocol level of a CONNECT to the bytes to send, None: say nothing."""

    def meet(peer: socket.socket, asked: bytes) -> None:
        given = answer(asked[8])
        if given == b"":
            peer.close()
        elif given is not None:
            peer.sendall(given)

    with listener(meet) as place:
        yield f"mqtt://{place}"


def test_probe_says_when_nothing_listens():
    with pytest.raises(BrokerError, match=r"nothing listens at 127.0.0.1:.*is the broker running"):
        connect_once(Link(f"mqtt://127.0.0.1:{free_port()}", "x"))


def test_client_goes_on_to_the_next_node_of_a_cluster_until_one_answers(broker):
    dead = [f"mqtt://127.0.0.1:{free_port()}" for _ in range(2)]
    assert connect_once(Link(",".join([*dead, broker.url]), "x")) == "3.1.1"
    with pytest.raises(BrokerError, match=r"nothing listens at .*; nothing listens at "):
        connect_once(Link(",".join(dead), "x"))
    for name in ("a", "b", "c"):  # which begin at different ones
        client = PahoTransport(Link(",".join([*dead, broker.url]), name, session_expiry=0))
        client.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
        eventually(lambda client=client: client.is_connected)
        client.stop()


def test_probe_says_when_the_host_is_unknown():
    with pytest.raises(BrokerError, match=r"host name 'nowhere\.invalid' cannot be found"):
        connect_once(Link("mqtt://nowhere.invalid", "x", insecure_plaintext=True))


@pytest.mark.parametrize("text", [None, b"", b"\x15\x03\x03\x00\x02\x02\x46"], ids=["silence", "closing", "TLS alert"])
def test_probe_says_when_no_broker_answers(text):
    words = r"does not answer as an MQTT broker: .* If it is a TLS port, write mqtts://"
    with server(lambda level: text) as url, pytest.raises(BrokerError, match=words) as caught:
        connect_once(Link(url, "x"), 0.3)
    assert caught.value.exit_code == 4


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize(
    ("greeted", "result"),
    [
        (reset, r"broken off \(Connection reset by peer\): what listens there probably does not speak TLS"),
        (lambda peer: peer.close(), "broken off: what listens there probably does not speak TLS"),
        (lambda _peer: None, r"nobody answered the handshake within 0\.5 s: what listens there probably does not"),
        (lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "what listens there does not speak TLS"),
    ],
    ids=["reset", "closing", "silence", "http"],
)
def test_probe_says_what_it_probably_is_when_a_plain_port_is_greeted_with_tls(greeted, result):
    with (
        listener(lambda peer, _hello: greeted(peer)) as place,
        pytest.raises(BrokerError, match=rf"^TLS with {place}: .*{result}.*write mqtt:// for it") as caught,
    ):
        connect_once(Link(f"mqtts://{place}", "x"), 0.5)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("user", ["", "fleet:wrong@", "stranger:x@"])
def test_probe_says_when_the_password_is_wrong(broker, user):
    with pytest.raises(BrokerError, match="check user and password") as caught:
        connect_once(Link(f"mqtt://{user}{broker.address.place}", "x"))
    assert "wrong" not in str(caught.value)


def test_probe_falls_back_when_the_broker_stays_silent_on_version_5():
    with server(lambda level: None if level == 5 else CONNACK_V311) as url:
        assert connect_once(Link(url, "x"), 0.3) == "3.1.1"


def test_probe_falls_back_when_the_broker_refuses_version_5_in_the_old_form():
    with server(lambda level: CONNACK_V311_REFUSED if level == 5 else CONNACK_V311) as url:
        assert connect_once(Link(url, "x"), 2.0) == "3.1.1"


def test_probe_leaves_the_session_of_its_client_alone(broker):
    client = Client(PahoTransport(Link(broker.url, "keeper"))).start()
    eventually(lambda: client.connects)
    assert connect_once(Link(broker.url, "keeper")) == "3.1.1"
    assert client.losses == []
    client.transport.stop()


def test_subscription_that_is_refused_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(paho_transport, "SUBSCRIBE_AGAIN", 0.1)
    message = b"\x30\x05\x00\x01th\x21"  # on the topic t: "h!"

    def meet(peer: socket.socket, _connect: bytes) -> None:
        peer.sendall(CONNACK_V311)
        peer.sendall(b"\x90\x03\xff\xff\x80")  # of a subscription that nobody made
        for granted in (b"\x80", b"\x80", b"\x01"):
            asked = peer.recv(4096)
            peer.sendall(b"\x90\x03" + asked[2:4] + granted)
        peer.sendall(message)

    with listener(meet) as place:
        client = Client(PahoTransport(Link(f"mqtt://{place}", "x", protocol="3.1.1"))).start()
        client.transport.subscribe("t")
        eventually(lambda: client.payloads("t") == [b"h!"], "subscribed")
        assert client.connects == 1
        client.transport.stop()


def test_client_connects_when_the_broker_comes_up_later(tmp_path):
    port = free_port()
    later = EmbeddedProcess(tmp_path, port=port)
    client = Client(PahoTransport(Link(later.url, "early"))).start()
    client.transport.publish("gf/1/f/x", b"queued")
    assert not client.transport.flush(0.3)
    later.start()
    try:
        eventually(lambda: client.connects)
        assert client.transport.flush(30)
    finally:
        client.transport.stop()
        later.stop()


def test_connection_survives_handlers_that_fail(broker):
    seen: list[bytes] = []

    def message(arrived: Message) -> None:
        seen.append(arrived.payload)
        raise ValueError("a handler's fault")

    def connected() -> None:
        raise ValueError("another one")

    transport = PahoTransport(Link(broker.url, "failing"))
    transport.subscribe("gf/1/f/handlers")
    transport.start(Handlers(message, connected, lambda why: None))
    for n in range(3):
        transport.publish("gf/1/f/handlers", b"%d" % n)
    eventually(lambda: len(seen) == 3)
    assert transport.is_connected
    transport.stop()


def test_client_that_was_woken_to_publish_sleeps_again(broker, monkeypatch):
    steps = []
    monkeypatch.setattr(Connection, "step", lambda self, *given, real=Connection.step: steps.append(real(self, *given)))
    client = PahoTransport(Link(broker.url, "x", session_expiry=0))
    client.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
    eventually(lambda: client.is_connected)
    for number in range(10):
        client.publish(f"t/{number}", b"")
    assert client.flush(10)
    steps.clear()
    time.sleep(0.3)
    client.stop()
    assert len(steps) < 20


def test_client_stops_from_within_a_handler(broker):
    transport = PahoTransport(Link(broker.url, "quitter"))
    transport.subscribe("gf/1/f/quit")
    transport.start(Handlers(lambda m: transport.stop(), lambda: None, lambda why: None))
    transport.publish("gf/1/f/quit", b"now")
    eventually(lambda: not transport.is_connected and not any(t.name == "mqtt-quitter" for t in threading.enumerate()))


@pytest.mark.needs("mosquitto")
def test_transport_gives_up_a_message_that_ends_every_connection_and_carries_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mosquitto = MosquittoProcess(tmp_path, max_message_bytes=64 * 1024)
    mosquitto.start()
    try:
        reader = Client(PahoTransport(Link(mosquitto.url, "reader", protocol="3.1.1")))
        reader.transport.subscribe("gf/1/f/run/+/request")
        reader.start().ask_ready()
        eventually(lambda: reader.is_ready)
        link = Link(
            mosquitto.url,
            "writer",
            protocol="3.1.1",
            reconnect_first=0.05,
            reconnect_longest=0.2,
            max_message_bytes=2**20,
        )
        transport = PahoTransport(link)
        for index in range(5):
            transport.publish(f"gf/1/f/run/a{index}/request", b"x" * 100)
        transport.publish("gf/1/f/run/big/request", b"x" * 200_000)
        for index in range(5):
            transport.publish(f"gf/1/f/run/b{index}/request", b"x" * 100)
        writer = Client(transport).start()
        try:
            assert transport.flush(30.0), "nothing waits for ever"
            assert transport.dropped == 1
            assert transport.max_message_bytes == 100_000, "the next one is cut into parts of a size that may pass"
            with pytest.raises(ValueError, match="split"):
                transport.publish("gf/1/f/run/big/request", b"x" * 200_000)
            wanted = {f"gf/1/f/run/{name}{index}/request" for name in "ab" for index in range(5)}
            eventually(lambda: {message.topic for message in reader.messages} >= wanted)
            assert {message.topic for message in reader.messages} == wanted
            assert 3 <= len(writer.losses) <= 6, writer.losses
        finally:
            transport.stop()
            reader.transport.stop()
    finally:
        mosquitto.stop()
    assert "message-too-large" in capsys.readouterr().err
