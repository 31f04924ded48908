"""Fetches the blobs of large requests and models: subscribes while wanted, asks again when they do not come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.port import Transport
from schemas.messages import Manifest
from schemas.topics import Topics
from schemas.trust.joining import BlobStore

FIRST = 5.0
"""Seconds until blobs that did not come are asked for again; each time twice as long."""

LONGEST = 60.0
"""Longest of these waits, seconds."""

AT_ONCE = 4
"""Requests and models in parts that are fetched at once; the oldest gives way."""


@dataclass
class _Wanted:
    manifest: Manifest
    done: Callable[[bytes], None]
    due: float
    wait: float


class Fetcher:
    """What is wanted now, by a name that the caller chooses; a newer want of the same name replaces the older.

    Parameters
    ----------
    topics : Topics
    transport : Transport

    Attributes
    ----------
    wanted : dict
        By name.
    """

    def __init__(self, topics: Topics, transport: Transport) -> None:
        self._topics = topics
        self._store = BlobStore(topics, max_open=AT_ONCE)
        self._transport = transport
        self.wanted: dict[str, _Wanted] = {}

    def want(self, name: str, manifest: Manifest, now: float, done: Callable[[bytes], None]) -> None:
        """Fetch what `manifest` stands for and call `done` with its content.

        Raises
        ------
        WireError
            ``oversize``.
        """
        known = self.wanted.get(name)
        if known is not None and known.manifest == manifest:
            known.done = done
            return
        self.cancel(name)
        self._store.want(manifest)
        self.wanted[name] = _Wanted(manifest, done, now + FIRST, FIRST)
        self._transport.subscribe(self._topics.blobs(manifest.digest))
        # The store bounds what is open; what gave way there must not stay subscribed here.
        for other, wanted in list(self.wanted.items()):
            if wanted.manifest.digest not in self._store.open_digests:
                self.cancel(other)

    def cancel(self, name: str) -> None:
        """Stop fetching (idempotent)."""
        wanted = self.wanted.pop(name, None)
        if wanted is None:
            return
        digest = wanted.manifest.digest
        if all(other.manifest.digest != digest for other in self.wanted.values()):
            self._store.close(digest)
            self._transport.unsubscribe(self._topics.blobs(digest))

    def add(self, topic: str, payload: bytes, digest: str) -> None:
        """Take a message from a blob topic.

        Raises
        ------
        WireError
            The blobs are not what was promised; they are no longer wanted.
        """
        try:
            content = self._store.add(topic, payload)
        except ValueError:
            self._settle(digest)
            raise
        if content is not None:
            for wanted in self._settle(digest):
                wanted.done(content)

    def tick(self, now: float) -> None:
        """Ask again for what did not come: a subscription made anew brings what is retained."""
        for wanted in self.wanted.values():
            if wanted.due <= now:
                wanted.wait = min(LONGEST, wanted.wait * 2)
                wanted.due = now + wanted.wait
                pattern = self._topics.blobs(wanted.manifest.digest)
                self._transport.unsubscribe(pattern)
                self._transport.subscribe(pattern)

    def next_due(self) -> float | None:
        """Return when `tick` has something to do."""
        return min((wanted.due for wanted in self.wanted.values()), default=None)

    def _settle(self, digest: str) -> list[_Wanted]:
        names = [name for name, wanted in self.wanted.items() if wanted.manifest.digest == digest]
        settled = [self.wanted[name] for name in names]
        for name in names:
            self.cancel(name)
        return settled
