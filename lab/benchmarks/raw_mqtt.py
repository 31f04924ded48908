"""MQTT 3.1.1 on a bare connection: what a vehicle of the benchmarks needs of it, and hardly any work."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from broker.tls import client_context, tls_of
from broker.url import BrokerAddress

KEEPALIVE = 300

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90, 0xC0

Hear = Callable[[str, bytes], None]
"""Is given topic and payload of a message."""


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


class Peer(asyncio.Protocol):
    """One connection; each message that comes is acknowledged, and then heard."""

    def __init__(self, hear: Hear) -> None:
        self.hear = hear
        self.read = bytearray()
        self.ended = asyncio.Event()
        self.subscribed = asyncio.Event()

    async def subscribe(self, *patterns: str) -> None:
        """Subscribe with QoS 1, and wait until the broker has done so; raises OSError when it ends the connection."""
        self.subscribed.clear()
        self.send(packet(SUBSCRIBE, b"\0\1", *(text(pattern) + b"\1" for pattern in patterns)))
        await self.subscribed.wait()
        if self.ended.is_set():
            raise OSError("the broker ended the connection")

    def send(self, data: bytes) -> None:
        """Send, as soon as the connection takes it."""
        self.transport.write(data)

    def close(self) -> None:
        """End the connection without a word."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to give signs of life."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        asyncio.get_running_loop().call_later(KEEPALIVE / 2, self._stay)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason is
        """Wake who waits."""
        self.ended.set()
        self.subscribed.set()

    def data_received(self, data: bytes) -> None:
        """Take the packets that are complete."""
        self.read += data
        while not self.transport.is_closing() and (parsed := self._next()) is not None:
            head, body = parsed
            if head == CONNACK and body[1]:
                raise OSError(f"the broker refuses the connection: {body[1]}")
            if head == SUBACK:
                self.subscribed.set()
            if head & 0xF0 == PUBLISH:
                end = 2 + int.from_bytes(body[:2], "big")
                topic = body[2:end].decode()
                if head & 0x06:
                    self.send(packet(PUBACK, body[end : end + 2]))
                    end += 2
                self.hear(topic, body[end:])

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

    def _stay(self) -> None:
        if not self.ended.is_set():
            self.send(packet(PINGREQ))
            asyncio.get_running_loop().call_later(KEEPALIVE / 2, self._stay)


async def connect(
    address: BrokerAddress, name: str, hear: Hear, will: tuple[str, bytes] | None = None, identity: Path | None = None
) -> Peer:
    """Connect as a client of this name; raises OSError when the broker is not there."""
    loop, tls = asyncio.get_running_loop(), None if identity is None else client_context(tls_of(identity))
    _, peer = await loop.create_connection(partial(Peer, hear), address.host, address.port, ssl=tls)
    flags = 2 | (0xC0 if identity is None else 0) | (0 if will is None else 0x04 | 0x08 | 0x20)
    fields = [text(each) for each in (name, *(will or ()))]
    if identity is None:
        fields += [text(address.username or ""), text(address.password or "")]
    peer.send(packet(CONNECT, text("MQTT"), bytes([4, flags]), struct.pack("!H", KEEPALIVE), *fields))
    return peer
