"""Benches for the transport's conformance suite: clients, a broker that can be restarted, and a way to wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from broker.credentials import FolderCredentials
from broker.paho_transport import PahoTransport, wait_until_ready
from broker.port import Handlers, Link, Message, Transport
from broker.servers.launch import EmbeddedProcess
from broker.servers.mosquitto import MosquittoProcess
from broker.servers.process import ChildBroker
from broker.signed import signed
from broker.tls import tls_of
from broker.url import parse_url
from schemas.errors import WireError
from schemas.topics import PROTOCOL, Address, Topics
from schemas.trust.signing import split
from tests.support.authorities import FleetCa
from tests.support.brokers import NatsProcess
from tests.support.memory_broker import MemoryHub, MemoryTransport, Saved
from tests.support.needs.programs import NEEDS
from tests.support.processes import eventually

PATIENCE = 30.0
"""Seconds after which a condition that should come true is given up. Not a measure of speed."""


@dataclass
class Client:
    """A transport, and what it called back."""

    transport: Transport
    messages: list[Message] = field(default_factory=list)
    connects: int = 0
    losses: list[str] = field(default_factory=list)
    on_message: Callable[[Message], None] | None = None
    is_ready: bool = False

    def start(self) -> Client:
        self.transport.start(Handlers(self._message, self._connected, self.losses.append))
        return self

    def ask_ready(self) -> None:
        """Have `is_ready` come true when the broker has worked off the subscriptions made so far.

        A connection that stands does not say so. The message to itself is retained because a broker may handle a
        publication before the subscription that came before it.
        """
        topic = f"gf/1/ready/{uuid.uuid4().hex}"
        self.is_ready = False
        self.transport.subscribe(topic)
        self.transport.publish(topic, b"ready", retain=True)

    def _message(self, message: Message) -> None:
        if message.topic.startswith("gf/1/ready/"):
            self.is_ready = True
            return
        self.messages.append(message)
        if self.on_message is not None:
            self.on_message(message)

    def _connected(self) -> None:
        self.connects += 1

    def payloads(self, topic: str | None = None) -> list[bytes]:
        """Payloads in the order of their first arrival: duplicates are allowed, so they do not count."""
        return list(dict.fromkeys(m.payload for m in self.messages if topic is None or m.topic == topic))


def connected(link: Link, *patterns: str) -> Client:
    """Return a client of paho's that has subscribed and is connected."""
    client = Client(PahoTransport(link))
    for pattern in patterns:
        client.transport.subscribe(pattern)
    client.start()
    eventually(lambda: client.connects, f"{link.client_id} connected")
    return client


class Victim(Protocol):
    """A client that can be killed."""

    def kill(self) -> None: ...


def make_ready(settle: Callable[[Callable[[], bool], str], None], *clients: Client) -> None:
    """Wait until the broker has worked off what these clients subscribed to."""
    for client in clients:
        client.ask_ready()
    settle(lambda: all(client.is_ready for client in clients), "all subscriptions stand")


class MemoryBench:
    """The in-memory broker in virtual time."""

    name = "memory"
    remembers = True

    def __init__(self) -> None:
        self.hub = MemoryHub(seed=1)
        self._clients: list[Client] = []

    def client(self, client_id: str, **options: Any) -> Client:
        client = Client(MemoryTransport(self.hub, Link("memory://", client_id, **options)))
        self._clients.append(client)
        return client

    def victim(self, client_id: str, will: Message) -> Victim:
        client = self.client(client_id, will=will).start()
        self.settle(lambda: client.connects > 0, "victim connected")
        hub = self.hub

        class Killed:
            def kill(self) -> None:
                hub.kill(client_id)

        return Killed()

    def settle(self, condition: Callable[[], bool], what: str) -> None:
        self.hub.pump()
        for _ in range(1000):
            if condition():
                return
            self.hub.advance(0.1)
        raise AssertionError(f"never came true: {what}")

    def pass_time(self, seconds: float) -> None:
        self.hub.advance(seconds)

    def cut(self, client: Client) -> None:
        assert isinstance(client.transport, MemoryTransport)
        self.hub.drop_link(client.transport.link.client_id)

    def stop_broker(self) -> None:
        self.hub.stop_broker()

    def start_broker(self) -> None:
        self.hub.start_broker(None if self.remembers else Saved())

    def close(self) -> None:
        for client in self._clients:
            client.transport.stop()


class RealBench:
    """A broker process and paho clients."""

    def __init__(self, name: str, broker: ChildBroker, protocol: Literal["auto", "5", "3.1.1"]) -> None:
        self.name = name
        self.remembers = broker.kind != "embedded"
        self._broker = broker
        self._protocol = protocol
        self._clients: list[Client] = []
        self._victims: list[subprocess.Popen[bytes]] = []

    def client(self, client_id: str, **options: Any) -> Client:
        link = Link(self._broker.url, client_id, **{"protocol": self._protocol, **options})
        client = Client(PahoTransport(link))
        self._clients.append(client)
        return client

    def victim(self, client_id: str, will: Message) -> Victim:
        return self._victim(Link(self._broker.url, client_id, protocol=self._protocol), will)

    def _victim(self, of: Link, will: Message, identity: Path | None = None) -> Victim:
        link = {**asdict(of), "identity": str(identity or "")}
        link["will"] = {"topic": will.topic, "payload": will.payload.decode(), "retained": will.retained}
        # Not of `lab.processes`: a pipe needs no folder, and tells at once.
        command = [sys.executable, "-m", __spec__.name, json.dumps(link)]  # from here, see tests/__init__.py
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        self._victims.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        process.stdout.close()
        return process

    def settle(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never came true: {what}"
            time.sleep(0.002)

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def cut(self, client: Client) -> None:
        assert isinstance(client.transport, PahoTransport)
        if client.transport._connection is not None:
            client.transport._connection.cut()

    def stop_broker(self) -> None:
        self._broker.stop()

    def start_broker(self) -> None:
        self._broker.start()
        wait_until_ready(Link(self._broker.url, "probe", protocol=self._protocol), PATIENCE)

    def close(self) -> None:
        for client in self._clients:
            client.transport.stop()
        self._clients.clear()
        for victim in self._victims:
            if victim.poll() is None:
                victim.kill()
            victim.wait()
        self._victims.clear()


class AnyTopic(Topics):
    """Topics of which each may be written by every coordinator: the suite's topics are not the protocol's."""

    def parse(self, topic: str) -> Address:
        return Address("revoked" if topic == self.revoked() else "request")


TAIL = b"\xa9signature\xc4\x00\xa4time\xcb" + bytes(8) + b"\xa1v" + bytes([PROTOCOL])
"""How an envelope ends."""


class Enveloped:
    """A `SignedTransport` that carries any bytes: they get the end of an envelope, which is where seals go."""

    def __init__(self, link: Link, folder: Path) -> None:
        self.paho: PahoTransport | None = None

        def make(sealed: Link) -> Transport:
            self.paho = PahoTransport(sealed)
            return self.paho

        self.refused: list[WireError] = []
        credentials = FolderCredentials(folder)
        # What the suite calls the limit is without the seal and the end of the envelope.
        room = len(TAIL) + credentials.signer.overhead + 16
        will = link.will and Message(link.will.topic, link.will.payload + TAIL, link.will.retained)
        link = replace(link, will=will, max_message_bytes=link.max_message_bytes + room, tls=tls_of(folder))
        self._signed = signed(link, AnyTopic("suite"), credentials, lambda _, why: self.refused.append(why), make)

    def start(self, handlers: Handlers) -> None:
        def message(arrived: Message) -> None:
            payload = split(arrived.payload)[0][: -len(TAIL)] if arrived.payload else b""
            handlers.message(Message(arrived.topic, payload, arrived.retained))

        self._signed.start(replace(handlers, message=message))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if len(payload) > self.max_message_bytes:
            raise ValueError(
                f"{len(payload)} bytes for {topic}, at most {self.max_message_bytes} can be sent: split them"
            )
        self._signed.publish(topic, payload and payload + TAIL, retain=retain)

    def subscribe(self, pattern: str) -> None:
        self._signed.subscribe(pattern)

    def unsubscribe(self, pattern: str) -> None:
        self._signed.unsubscribe(pattern)

    def flush(self, timeout: float) -> bool:
        return self._signed.flush(timeout)

    def stop(self) -> None:
        self._signed.stop()

    @property
    def is_connected(self) -> bool:
        return self._signed.is_connected

    @property
    def max_message_bytes(self) -> int:
        return self._signed.max_message_bytes - len(TAIL)


class SignedBench(RealBench):
    """Mosquitto with mutual TLS; each client with a certificate of its own, which seals all that it says."""

    def client(self, client_id: str, **options: Any) -> Client:
        client = Client(Enveloped(Link(self._broker.url, client_id, **options), self._identity(client_id)))
        self._clients.append(client)
        return client

    def _identity(self, client_id: str) -> Path:
        folder = self._ca.folder / client_id
        return folder if folder.exists() else self._ca.identity("coordinator", client_id)

    @property
    def _ca(self) -> FleetCa:
        assert isinstance(self._broker, SecureMosquitto)
        return self._broker.authority

    def victim(self, client_id: str, will: Message) -> Victim:
        return self._victim(Link(self._broker.url, client_id), will, self._identity(client_id))

    def cut(self, client: Client) -> None:
        assert isinstance(client.transport, Enveloped)
        assert client.transport.paho is not None
        super().cut(replace(client, transport=client.transport.paho))

    def start_broker(self) -> None:
        self._broker.start()

    def close(self) -> None:
        transports = [client.transport for client in self._clients]
        super().close()
        assert [each.refused for each in transports if isinstance(each, Enveloped) and each.refused] == []


class SecureMosquitto(MosquittoProcess):
    """Mosquitto with mutual TLS, and the authority that its clients' certificates come from."""

    def __init__(self, folder: Path) -> None:
        self.authority = FleetCa(folder / "fleet")
        identity = self.authority.identity("broker", "broker")
        super().__init__(folder / "state", identity=identity, acl="pattern readwrite gf/1/#\n")


NAMES = ("memory", "embedded", "mosquitto-5", "mosquitto-3.1.1", "nats")

SUITE = (*NAMES, "mosquitto-signed")
"""What the suite runs on: the last one adds nothing for those who learn over a broker, who sign by themselves."""

_PROGRAMS: dict[str, Callable[[Path], ChildBroker]] = {
    "embedded": EmbeddedProcess,
    "mosquitto-5": MosquittoProcess,
    "mosquitto-3.1.1": MosquittoProcess,
    "mosquitto-signed": SecureMosquitto,
    "nats": NatsProcess,
}

_PROTOCOLS: dict[str, Literal["auto", "5", "3.1.1"]] = {"mosquitto-5": "5", "mosquitto-3.1.1": "3.1.1"}


def mark_of(name: str) -> list[pytest.MarkDecorator]:
    """Give the mark of a test that needs the program behind a bench."""
    program = name.partition("-")[0]
    return [pytest.mark.needs(program)] if program in NEEDS else []


def start_broker(name: str, folder: Path) -> ChildBroker | None:
    """Start the broker process that a bench needs; None for the one in memory."""
    if name == "memory":
        return None
    broker = _PROGRAMS[name](folder)
    broker.start()
    return broker


def bench_on(name: str, broker: ChildBroker | None) -> MemoryBench | RealBench:
    """Make a bench of this name."""
    if broker is None:
        return MemoryBench()
    if name == "mosquitto-signed":
        return SignedBench(name, broker, "auto")
    return RealBench(name, broker, _PROTOCOLS.get(name, "auto"))


def _be_a_victim(link: dict[str, Any]) -> None:
    will = link.pop("will")
    message = Message(will["topic"], will["payload"].encode(), will["retained"])
    folder = link.pop("identity")
    made = Link(**link, will=message)
    client = Client(Enveloped(made, Path(folder)) if folder else PahoTransport(made)).start()
    while not client.connects:
        time.sleep(0.002)
    assert parse_url(link["url"]).port
    print("connected", flush=True)
    time.sleep(PATIENCE * 2)


if __name__ == "__main__":
    _be_a_victim(json.loads(sys.argv[1]))
