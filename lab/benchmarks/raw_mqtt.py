"""MQTT 3.1.1 on a bare socket: what a vehicle of the benchmarks needs of it, and hardly any work."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from broker import packets
from broker.connection import LATER
from broker.port import Message
from broker.tls import client_context, tls_of
from broker.url import BrokerAddress

KEEPALIVE = 300


class Peer:
    """One connection; `messages` gives the messages that came, each of which is acknowledged."""

    def __init__(
        self, address: BrokerAddress, name: str, will: Message | None = None, identity: Path | None = None
    ) -> None:
        self.socket = socket.create_connection((address.host, address.port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if identity is not None:
            self.socket = client_context(tls_of(identity)).wrap_socket(self.socket, server_hostname=address.host)
        self.socket.setblocking(False)
        self.packets = packets.Reader()
        self.unsent = bytearray()
        self.subscribing = 0
        login = None if identity is not None else (address.username or "", address.password or "")
        self.send(packets.connect(name, keepalive=KEEPALIVE, clean=True, will=will, login=login))

    def subscribe(self, *patterns: str) -> None:
        """Subscribe with QoS 1."""
        self.subscribing += 1
        self.send(packets.subscribe(1, *patterns))

    def send(self, data: bytes) -> None:
        """Send, or keep what the socket does not take."""
        if not self.unsent:
            with contextlib.suppress(*LATER):
                data = data[self.socket.send(data) :]
        self.unsent += data

    def flush(self) -> None:
        """Send what was kept."""
        with contextlib.suppress(*LATER):
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Yield topic and payload of each message that has arrived; raises OSError when the connection has ended."""
        with contextlib.suppress(*LATER):
            while data := self.socket.recv(1 << 18):
                yield from self._heard(data)
                if len(data) < 1 << 18 and not isinstance(self.socket, ssl.SSLSocket):
                    return
            raise OSError("the broker ended the connection")

    def _heard(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        for head, body in self.packets.feed(data):
            if head == packets.CONNACK and body[1]:
                raise OSError(f"the broker refuses the connection: {body[1]}")
            self.subscribing -= head == packets.SUBACK
            if head & 0xF0 == packets.PUBLISH:
                message, number = packets.read_message(head, body)
                if number:
                    self.send(packets.packet(packets.PUBACK, number))
                yield message.topic, message.payload
