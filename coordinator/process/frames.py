"""What a coordinator and its intake workers say to each other: values, encoded as messages are, with their lengths."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

from schemas import codec
from schemas.limits import MAX_DECODED_BYTES

READ_BYTES = 1 << 20
"""Bytes that are read at once."""

_HEAD = 4


def framed(*value: Any) -> bytes:
    """Return a value as it is sent."""
    data = codec.encode(value)
    return len(data).to_bytes(_HEAD, "big") + data


class FrameReader:
    """Puts together what arrives in pieces."""

    def __init__(self) -> None:
        self._read = bytearray()

    def add(self, data: bytes) -> Iterator[Sequence[Any]]:
        """Yield the values that are whole now. Raises WireError when the other side is none of ours."""
        self._read += data
        read, at = self._read, 0
        while len(read) >= (start := at + _HEAD):
            end = start + int.from_bytes(read[at:start], "big")
            if len(read) < end:
                break
            yield codec.decode(bytes(read[start:end]), max_bytes=3 * MAX_DECODED_BYTES)
            at = end
        del read[:at]


def received(pipe: socket.socket) -> Iterator[Sequence[Any]]:
    """Yield what the other side says, until it has ended."""
    frames = FrameReader()
    while data := pipe.recv(READ_BYTES):
        yield from frames.add(data)
