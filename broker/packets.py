"""MQTT 3.1.1 and 5 in bytes: the packets that a client of QoS 1 sends, and those that a broker sends it.

Numbers and names are those of the OASIS standards. What is not asked for is not read: properties of messages, QoS 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from broker.port import Message

CONNECT, CONNACK, PUBLISH, PUBACK = 0x10, 0x20, 0x30, 0x40
SUBSCRIBE, SUBACK, UNSUBSCRIBE, PINGREQ, PINGRESP, DISCONNECT = 0x82, 0x90, 0xA2, 0xC0, 0xD0, 0xE0
"""First bytes, without the flags of a message."""

LEVELS = {"3.1.1": 4, "5": 5}
"""By version of the protocol, what stands for it in CONNECT."""

FAILURE = 0x80
"""Reasons from here on are failures."""

_NAMES = (
    "Unspecified error", "Malformed packet", "Protocol error", "Implementation specific error",
    "Unsupported protocol version", "Client identifier not valid", "Bad user name or password", "Not authorized",
    "Server unavailable", "Server busy", "Banned", "Server shutting down", "Bad authentication method",
    "Keep alive timeout", "Session taken over", "Topic filter invalid", "Topic name invalid",
    "Packet identifier in use", "Packet identifier not found", "Receive maximum exceeded", "Topic alias invalid",
    "Packet too large", "Message rate too high", "Quota exceeded", "Administrative action", "Payload format invalid",
    "Retain not supported", "QoS not supported", "Use another server", "Server moved",
    "Shared subscription not supported", "Connection rate exceeded", "Maximum connect time",
    "Subscription identifiers not supported", "Wildcard subscription not supported",
)  # fmt: skip
"""Of the reasons from `FAILURE` on."""

_REFUSED_311 = {1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Why MQTT 3.1.1 refuses a connection, in the reasons of MQTT 5."""

SESSION_EXPIRY, KEEPALIVE, RECEIVE_MAXIMUM, MAXIMUM_PACKET = 0x11, 0x13, 0x21, 0x27
_WIDTHS = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
"""Bytes of the numbers among the properties of CONNACK; the others are texts, `_PAIR` two."""
_PAIR = 0x26


class MalformedError(Exception):
    """What arrives is no MQTT."""


class Greeting(NamedTuple):
    """A broker's answer to CONNECT: a reason, 0 for success, and the numbers among its properties."""

    reason: int
    properties: dict[int, int]


def name_of(reason: int) -> str:
    """Return a failure in words."""
    at = reason - FAILURE
    return _NAMES[at] if 0 <= at < len(_NAMES) else f"reason {reason}"


def varint(number: int) -> bytes:
    """Return a number as lengths are written: seven bits a byte, the low ones first."""
    digits = bytearray()
    while True:
        number, digit = divmod(number, 128)
        digits.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(digits)


def read_varint(data: bytes | bytearray, place: int) -> tuple[int, int] | None:
    """Return a number that `varint` wrote, and the place behind it; None: it has not arrived as a whole."""
    number = 0
    for shift in range(0, 28, 7):
        if place >= len(data):
            return None
        digit = data[place]
        number |= (digit & 0x7F) << shift
        place += 1
        if digit < 0x80:
            return number, place
    raise MalformedError("a length of more than four bytes")


def text(value: str | bytes) -> bytes:
    """Return a text with its length before it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def packet(head: int, *parts: bytes) -> bytes:
    """Return a packet that begins with the byte `head`."""
    return b"".join((bytes([head]), varint(sum(map(len, parts))), *parts))


def connect(
    client_id: str,
    *,
    protocol: str = "3.1.1",
    keepalive: int,
    clean: bool,
    session_expiry: int = 0,
    will: Message | None = None,
    login: tuple[str, str] | None = None,
) -> bytes:
    """Return CONNECT.

    Parameters
    ----------
    keepalive, session_expiry : int
        Seconds; the latter is told by MQTT 5 alone.
    login : tuple of (str, str) or None
        User and password.
    """
    is_five = protocol == "5"
    flags = 0x02 * clean | (0 if will is None else 0x0C | 0x20 * will.retained) | (0xC0 if login else 0)
    fields = [text("MQTT"), bytes([LEVELS[protocol], flags]), struct.pack("!H", keepalive)]
    if is_five:
        fields.append(struct.pack("!BBI", 5, SESSION_EXPIRY, session_expiry))
    fields.append(text(client_id))
    if will is not None:
        fields += [b"\0" * is_five, text(will.topic), text(will.payload)]
    return packet(CONNECT, *fields, *map(text, login or ()))


def publish(topic: str, payload: bytes, number: int, *, retain: bool = False, is_five: bool = False) -> bytes:
    """Return a message with QoS 1."""
    return packet(PUBLISH | 2 | retain, text(topic), struct.pack("!H", number), b"\0" * is_five, payload)


def subscribe(number: int, *patterns: str, is_five: bool = False) -> bytes:
    """Return a subscription with QoS 1."""
    return packet(SUBSCRIBE, struct.pack("!H", number), b"\0" * is_five, *(text(each) + b"\1" for each in patterns))


def unsubscribe(number: int, pattern: str, *, is_five: bool) -> bytes:
    """Return the end of a subscription."""
    return packet(UNSUBSCRIBE, struct.pack("!H", number), b"\0" * is_five, text(pattern))


class Reader:
    """Packets out of the bytes that arrive, in whatever pieces they do."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield first byte and body of each packet that is whole by now; raises MalformedError."""
        self._data += data
        place = 0
        try:
            while (found := read_varint(self._data, place + 1)) is not None:
                length, start = found
                if len(self._data) < start + length:
                    return
                head, body = self._data[place], bytes(self._data[start : start + length])
                place = start + length
                yield head, body
        finally:
            del self._data[:place]


def read_greeting(body: bytes) -> Greeting:
    """Read CONNACK of either version, for some brokers refuse MQTT 5 in the form of 3.1.1. Raises MalformedError."""
    if len(body) < 2:
        raise MalformedError("CONNACK is too short")
    return Greeting(_REFUSED_311.get(body[1], body[1]), _numbers(body[2:]))


def _numbers(data: bytes) -> dict[int, int]:
    numbers: dict[int, int] = {}
    _, place = read_varint(data, 0) or (0, len(data))
    while place < len(data):
        key = data[place]
        place += 1
        if width := _WIDTHS.get(key):
            numbers[key] = int.from_bytes(data[place : place + width], "big")
            place += width
            continue
        for _ in range(2 if key == _PAIR else 1):
            place += 2 + int.from_bytes(data[place : place + 2], "big")
    return numbers


def read_message(head: int, body: bytes, *, is_five: bool = False) -> tuple[Message, bytes]:
    """Read PUBLISH; return the message and its two bytes of number, empty with QoS 0. Raises MalformedError."""
    end = 2 + int.from_bytes(body[:2], "big")
    topic, number = body[2:end].decode(errors="replace"), b""
    if head & 0x06:
        number = body[end : end + 2]
        end += 2
    if is_five:
        length, end = read_varint(body, end) or (0, len(body))
        end += length
    return Message(topic, body[end:], bool(head & 1)), number


def read_receipt(body: bytes) -> tuple[int, str]:
    """Read PUBACK: the number of the message, and the broker's complaint; empty for success."""
    return int.from_bytes(body[:2], "big"), "".join(_failures(body[2:3]))


def read_grants(body: bytes, *, is_five: bool) -> tuple[int, list[str]]:
    """Read SUBACK: the number of the subscription, and why patterns are refused, if any. Raises MalformedError."""
    length, start = (read_varint(body, 2) or (0, 2)) if is_five else (0, 2)
    return int.from_bytes(body[:2], "big"), _failures(body[start + length :])


def _failures(reasons: bytes) -> list[str]:
    return [name_of(reason) for reason in reasons if reason >= FAILURE]
