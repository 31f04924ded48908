"""A broker that only tests start, NATS; and a client that does its worst to any."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.servers.process import (
    ChildBroker,
    Program,
    free_port,
    kept_password,
    new_password,
    prepare_state_dir,
    write_private,
)
from broker.url import BrokerAddress
from tests.support.needs import programs

CONFIG = """
server_name: "glassfleet-{port}"
listen: "127.0.0.1:{client_port}"
max_payload: 1048576
jetstream {{ store_dir: "{jetstream}", max_memory_store: 64M, max_file_store: 1G }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 1000, ack_wait: "5s" }}
authorization {{
  users: [ {{
    user: fleet
    password: "{password}"
    # Topics gf/1/#; the second is how the gateway delivers QoS 1.
    permissions: {{ publish: ["gf.1.>"], subscribe: ["gf.1.>", "$MQTT.sub.>"] }}
  }} ]
}}
"""
"""NATS's own protocol, on `client_port`, cannot be turned off."""

CLUSTER = """
server_name: "{name}"
listen: "127.0.0.1:{client_port}"
max_payload: 1048576
jetstream {{ store_dir: "{jetstream}", max_memory_store: 64M, max_file_store: 1G }}
cluster {{ name: glassfleet, listen: "127.0.0.1:{route}", routes: [{routes}] }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 1000, ack_wait: "5s" }}
accounts {{
  FLEET {{
    jetstream: enabled
    users: [ {{
      user: fleet
      password: "{password}"
      permissions: {{ publish: ["gf.1.>"], subscribe: ["gf.1.>", "$MQTT.sub.>"] }}
    }} ]
  }}
  # A cluster's JetStream needs one of the system's own.
  $SYS {{ users: [ {{ user: system, password: "{password}" }} ] }}
}}
"""


class NatsProcess(ChildBroker):
    """One NATS server on this machine that is not part of a cluster.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist; holds everything that the server writes.
    """

    def __init__(self, state_dir: Path) -> None:
        program = programs.path("nats-server")
        state_dir = prepare_state_dir(state_dir)
        password, port = kept_password(state_dir), free_port()
        config = CONFIG.format(port=port, client_port=free_port(), jetstream=state_dir / "jetstream", password=password)
        write_private(state_dir / "nats.conf", config)
        super().__init__(
            "nats",
            BrokerAddress("127.0.0.1", port, username="fleet", password=password),
            Program("nats", [program, "-c", str(state_dir / "nats.conf")], state_dir),
        )


@contextmanager
def nats_cluster(folder: Path, nodes: int = 3) -> Iterator[list[ChildBroker]]:
    """Start a cluster on this machine, and end it. Sessions and retained messages are kept by all three."""
    program = programs.path("nats-server")
    password, ports = new_password(), [(free_port(), free_port(), free_port()) for _ in range(nodes)]
    routes = ", ".join(f'"nats://127.0.0.1:{route}"' for *_, route in ports)
    made = []
    for port, client_port, route in ports:
        state_dir = prepare_state_dir(folder / f"nats-{port}")
        config = CLUSTER.format(
            name=f"n{port}", port=port, client_port=client_port, route=route, routes=routes,
            jetstream=state_dir / "jetstream", password=password,
        )  # fmt: skip
        write_private(state_dir / "nats.conf", config)
        made.append(
            ChildBroker(
                "nats",
                BrokerAddress("127.0.0.1", port, username="fleet", password=password),
                Program("nats", [program, "-c", str(state_dir / "nats.conf")], state_dir),
            )
        )
    try:
        for node in made:
            node.begin()  # none answers before two are there
        for node in made:
            node.await_answer(60.0)
        yield made
    finally:
        for node in made:
            node.kill()


CHUNK = 4000
"""Bytes of a payload that any broker here takes."""


class HostileClient:
    """A connection of MQTT 3.1.1 with a session that stays, as whoever's certificate is in a folder.

    Parameters
    ----------
    url : str
        Of the broker, ``mqtts://host:port``.
    identity : Path
        Identity folder.
    """

    def __init__(self, url: str, identity: Path) -> None:
        host, _, port = url.rpartition("/")[2].rpartition(":")
        context = ssl.create_default_context(cafile=str(identity / "ca.pem"))
        context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
        self._sock = context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
        self._sock.settimeout(30)
        self._send(0x10, _text("MQTT") + b"\x04\x00" + (300).to_bytes(2, "big") + _text("x"))
        assert self._sock.recv(4)[3] == 0, "let in"

    def _send(self, kind: int, body: bytes) -> None:
        length, head = len(body), bytes([kind])
        while True:
            length, digit = divmod(length, 128)
            head += bytes([digit | (0x80 if length else 0)])
            if not length:
                break
        self._sock.sendall(head + body)

    def subscribe(self, pattern: str, qos: int) -> None:
        """Subscribe, and wait for the answer."""
        self._send(0x82, b"\x00\x01" + _text(pattern) + bytes([qos]))
        self._sock.recv(5)

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool = False, number: int = 1) -> None:
        """Publish, and wait for nothing; no handshake of QoS 2 is ended."""
        self._send(0x30 | qos << 1 | retain, _text(topic) + (number.to_bytes(2, "big") if qos else b"") + payload)

    def flood(self, topic: str, total: int, *, qos: int, retain: bool = False) -> None:
        """Publish so many bytes, in messages that differ; a broker may hang up meanwhile."""
        with contextlib.suppress(OSError):
            for number in range(total // CHUNK):
                self.publish(topic, os.urandom(CHUNK), qos=qos, retain=retain, number=number % 65_000 + 1)

    def close(self) -> None:
        """Leave without a word."""
        self._sock.close()


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()
