"""MQTT 3.1.1 on a bare socket: what a vehicle of the benchmarks needs of it, and hardly any work."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

from broker.buffered import LATER
from broker.tls import client_context, tls_of
from broker.url import BrokerAddress

KEEPALIVE = 300

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90, 0xC0


def packet(head: int, *parts: bytes) -> bytes:
    """Return an MQTT packet."""
    length, sizes = sum(map(len, parts)), bytearray()
    while True:
        length, digit = divmod(length, 128)
        sizes.append(digit | (0x80 if length else 0))
        if not length:
            return b"".join((bytes([head]), bytes(sizes), *parts))


def text(value: str | bytes) -> bytes:
    """Return a text with its length before it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def publish(topic: str, payload: bytes, number: int, *, retain: bool = False) -> bytes:
    """Return a message with QoS 1."""
    return packet(PUBLISH | 2 | retain, text(topic), struct.pack("!H", number), payload)


class Peer:
    """One connection; `messages` gives the messages that came, each of which is acknowledged."""

    def __init__(
        self, address: BrokerAddress, name: str, will: tuple[str, bytes] | None = None, identity: Path | None = None
    ) -> None:
        self.socket = socket.create_connection((address.host, address.port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if identity is not None:
            self.socket = client_context(tls_of(identity)).wrap_socket(self.socket, server_hostname=address.host)
        self.socket.setblocking(False)
        self.read = bytearray()
        self.unsent = bytearray()
        self.subscribing = 0
        flags = 2 | (0xC0 if identity is None else 0) | (0 if will is None else 0x04 | 0x08 | 0x20)
        fields = [text(name), *([] if will is None else [text(will[0]), text(will[1])])]
        if identity is None:
            fields += [text(address.username or ""), text(address.password or "")]
        self.send(packet(CONNECT, text("MQTT"), bytes([4, flags]), struct.pack("!H", KEEPALIVE), *fields))

    def subscribe(self, *patterns: str) -> None:
        """Subscribe with QoS 1."""
        self.subscribing += 1
        self.send(packet(SUBSCRIBE, b"\0\1", *(text(pattern) + b"\1" for pattern in patterns)))

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
                self.read += data
                if len(data) < 1 << 18 and not isinstance(self.socket, ssl.SSLSocket):
                    break
            else:
                raise OSError("the broker ended the connection")
        while (parsed := self._next()) is not None:
            head, body = parsed
            if head == CONNACK and body[1]:
                raise OSError(f"the broker refuses the connection: {body[1]}")
            self.subscribing -= head == SUBACK
            if head & 0xF0 == PUBLISH:
                end = 2 + int.from_bytes(body[:2], "big")
                topic = body[2:end].decode()
                if head & 0x06:
                    self.send(packet(PUBACK, body[end : end + 2]))
                    end += 2
                yield topic, bytes(body[end:])

    def _next(self) -> tuple[int, bytes] | None:
        length = shift = 0
        for place in range(1, min(5, len(self.read))):
            digit = self.read[place]
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                end = place + 1 + length
                if len(self.read) < end:
                    return None
                head, body = self.read[0], bytes(self.read[place + 1 : end])
                del self.read[:end]
                return head, body
        return None
