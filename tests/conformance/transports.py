"""Benches for the transport's conformance suite: clients, a broker that can be restarted, and a way to wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest

from broker.launch import EmbeddedProcess
from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.mosquitto import MosquittoProcess
from broker.nats import NatsProcess
from broker.paho_transport import PahoTransport, wait_until_ready
from broker.port import Handlers, Link, Message, Transport
from broker.rabbitmq import RabbitmqProcess
from broker.url import parse_url

BrokerProcess: TypeAlias = EmbeddedProcess | MosquittoProcess | RabbitmqProcess | NatsProcess

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


class Victim(Protocol):
    """A client that can be killed."""

    def kill(self) -> None: ...


class Bench(Protocol):
    """One broker with its transport."""

    name: str
    remembers: bool
    """Whether sessions and retained messages survive a restart of the broker."""

    def client(self, client_id: str, **options: Any) -> Client: ...
    def victim(self, client_id: str, will: Message) -> Victim: ...
    def settle(self, condition: Callable[[], bool], what: str) -> None: ...
    def pass_time(self, seconds: float) -> None: ...
    def cut(self, client: Client) -> None: ...
    def restart_broker(self) -> None: ...
    def stop_broker(self) -> None: ...
    def start_broker(self) -> None: ...
    def close(self) -> None: ...


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
        client = Client(self.hub.transport(Link("memory://", client_id, **options)))
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

    def restart_broker(self) -> None:
        self.stop_broker()
        self.start_broker()

    def stop_broker(self) -> None:
        self.hub.stop_broker()

    def start_broker(self) -> None:
        self.hub.start_broker(remembers=self.remembers)

    def close(self) -> None:
        for client in self._clients:
            client.transport.stop()


class RealBench:
    """A broker process and paho clients."""

    def __init__(self, name: str, broker: BrokerProcess, protocol: str) -> None:
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
        link = asdict(Link(self._broker.url, client_id, protocol=self._protocol))
        link["will"] = {"topic": will.topic, "payload": will.payload.decode(), "retained": will.retained}
        process = subprocess.Popen([sys.executable, __file__, json.dumps(link)], stdout=subprocess.PIPE)
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

    def restart_broker(self) -> None:
        self._broker.restart()

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


NAMES = ("memory", "embedded", "mosquitto-5", "mosquitto-3.1.1", "rabbitmq", "nats")

_PROGRAMS: dict[str, Callable[[Path], BrokerProcess]] = {
    "embedded": EmbeddedProcess,
    "mosquitto-5": MosquittoProcess,
    "mosquitto-3.1.1": MosquittoProcess,
    "rabbitmq": RabbitmqProcess,
    "nats": NatsProcess,
}

_PROTOCOLS = {"mosquitto-5": "5", "mosquitto-3.1.1": "3.1.1"}


def mark_of(name: str) -> list[pytest.MarkDecorator]:
    """Give the mark of a test that needs the program behind a bench."""
    program = name.partition("-")[0]
    return [getattr(pytest.mark, program)] if program in ("mosquitto", "rabbitmq", "nats") else []


def start_broker(name: str, folder: Path) -> BrokerProcess | None:
    """Start the broker process that a bench needs; None for the one in memory."""
    if name == "memory":
        return None
    broker = _PROGRAMS[name](folder)
    broker.start()
    return broker


def bench_on(name: str, broker: BrokerProcess | None) -> MemoryBench | RealBench:
    """Make a bench of this name."""
    if broker is None:
        return MemoryBench()
    return RealBench(name, broker, _PROTOCOLS.get(name, "auto"))


def _be_a_victim(link: dict[str, Any]) -> None:
    will = link.pop("will")
    message = Message(will["topic"], will["payload"].encode(), will["retained"])
    client = Client(PahoTransport(Link(**link, will=message))).start()
    while not client.connects:
        time.sleep(0.002)
    assert parse_url(link["url"]).port
    print("connected", flush=True)
    time.sleep(PATIENCE * 2)


if __name__ == "__main__":
    _be_a_victim(json.loads(sys.argv[1]))
