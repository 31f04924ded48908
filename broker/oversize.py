"""Which message it is that ends every connection, when the broker does not say. Pure.

An MQTT 5 broker tells its largest packet when it accepts a connection. A 3.1.1 broker ends the connection over a larger
one, without a word, and again on every resend. So when a connection ends, each message that was not acknowledged yet
and is larger than all that the broker ever acknowledged is a suspect. From then on messages leave one at a time, so
that it is certain which of them ended the connection; one that ends `tries` connections in a row, alone, is too large.

A network that breaks often can put the blame on a wrong message, but only on one that is larger than anything that ever
came through. And it takes so many breaks in a row, each between the message and its acknowledgement.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.limits import MIN_MESSAGE_BYTES


class OversizeDetector:
    """What is known about one transport's messages, by the sequence number in which they were published.

    Parameters
    ----------
    tries : int
        Connections in a row that a message must end, >= 2.

    Attributes
    ----------
    largest : int
        Bytes of the largest payload that a broker acknowledged; what every broker must carry, at first.
    limit : int or None
        Learned: payloads above it are too large for this broker.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._until = -1
        self._accused = -1
        self._count = 0
        self.largest = MIN_MESSAGE_BYTES
        self.limit: int | None = None

    @property
    def is_alert(self) -> bool:
        """Whether messages must leave one at a time."""
        return self._until >= 0

    def acknowledged(self, sequence: int, size: int) -> None:
        """Take note: the broker took a message of `size` bytes."""
        self.largest = max(self.largest, size)
        if sequence == self._accused:
            self._accused, self._count = -1, 0
        if sequence >= self._until:
            self._until = -1

    def lost(self, under_way: Sequence[tuple[int, int]]) -> int | None:
        """Take note: a connection ended; the message that is too large, if that is certain now.

        Parameters
        ----------
        under_way : sequence of (sequence number, bytes)
            What was sent on it and not acknowledged.
        """
        suspects = [(sequence, size) for sequence, size in under_way if size > self.largest]
        if not suspects:
            return None
        self._until = max(self._until, *(sequence for sequence, _ in suspects))
        if len(under_way) > 1:
            return None
        sequence, size = suspects[0]
        self._count = self._count + 1 if sequence == self._accused else 1
        self._accused = sequence
        if self._count < self._tries:
            return None
        self._accused, self._count = -1, 0
        if self._until <= sequence:
            self._until = -1
        # The true limit lies between the largest that it took and this; halving finds a size that passes.
        self.limit = max(self.largest, size // 2)
        return sequence
