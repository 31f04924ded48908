"""A socket that asks the operating system once for many packets: paho asks it three times or more for each."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, cast

import paho.mqtt.client as paho

if TYPE_CHECKING:
    from paho.mqtt.client import SocketLike

READ_BYTES = 1 << 16
"""What is read at once."""

LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises when it has nothing to give, or takes nothing."""


class BufferedSocket:
    """What paho needs of a socket, with a buffer for each direction. Used by one thread.

    Parameters
    ----------
    sock : socket.socket
        Connected. Whether it blocks is said by `setblocking`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._read, self._at = b"", 0
        self._unsent = bytearray()

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; raises what the socket raises when it has none."""
        if self._at == len(self._read):
            if size >= READ_BYTES:
                return self.socket.recv(size)
            self._read, self._at = self.socket.recv(READ_BYTES), 0
        begin, self._at = self._at, min(self._at + size, len(self._read))
        return self._read[begin : self._at]

    def send(self, data: bytes | bytearray) -> int:
        """Keep all of `data` for the next `flush`."""
        self._unsent += data
        return len(data)

    def flush(self) -> None:
        """Send what was kept, as far as the socket takes it now. Raises OSError when the connection is gone."""
        with contextlib.suppress(*LATER):
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]

    @property
    def has_unread(self) -> bool:
        """Whether bytes wait here that no selector sees: those of the buffer, and those that TLS has decrypted."""
        return self._at < len(self._read) or (isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0)

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the next `flush`."""
        return bool(self._unsent)

    def close(self) -> None:
        """Send what is left, if the socket takes it at once, and close."""
        with contextlib.suppress(OSError):
            self.flush()
        self.socket.close()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """Say whether calls wait."""
        self.socket.setblocking(flag)


class BufferedClient(paho.Client):
    """paho's client over a `BufferedSocket`; who drives it calls `flush`."""

    def _create_socket(self) -> SocketLike:
        return BufferedSocket(cast("socket.socket", super()._create_socket()))
