"""A client that says over MQTT what no library would, as fast as it can, and reads only when it is told to."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from pathlib import Path

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
