"""The revocation list on its topic: in one message, or as blobs that a manifest names where one does not hold it.

Neither has a seal: the CA signed the list, and a manifest that somebody forges costs some bytes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.port import Message, Transport
from schemas.envelope import Envelope, clearing, frames_for_crl
from schemas.errors import BrokerError, WireError
from schemas.limits import MAX_CRL_BYTES
from schemas.messages import Manifest
from schemas.topics import Topics
from schemas.trust.joining import BlobStore


class ListTopic:
    """What one process publishes and hears there.

    Parameters
    ----------
    transport : Transport
        Is subscribed to the topic already.
    topics : Topics
    """

    def __init__(self, transport: Transport, topics: Topics) -> None:
        self._transport = transport
        self._topics = topics
        self._store = BlobStore(topics, max_bytes=MAX_CRL_BYTES, max_open=1)
        self._wanted: tuple[str, ...] = ()
        self._heard = ""
        self._published: tuple[str, ...] = ()

    def publish(self, crl: bytes) -> None:
        """Publish a list (PEM) for all, retained.

        Raises
        ------
        BrokerError
            It is longer than others read, or too large even for parts.
        """
        if len(crl) > MAX_CRL_BYTES:
            raise BrokerError(
                f"the revocation list has {len(crl)} bytes, and nobody reads more than {MAX_CRL_BYTES}. "
                "`glassfleet agent renew` does not get them either. A revoked certificate leaves the list when it has "
                "expired: issue shorter ones (--days)"
            )
        retained = frames_for_crl(crl, self._topics, self._transport.max_message_bytes)
        former, self._published = self._published, retained.blobs
        self._clear(former)
        for frame in retained.frames:
            self._transport.publish(*frame, retain=True)

    def is_ours(self, digest: str) -> bool:
        """Whether a blob of this digest is a part of a list that is being heard."""
        return digest in self._store.open_digests

    def hear(self, message: Message, *, clears: bool) -> bytes | None:
        """Take a message from the topic, or a blob `is_ours`; the list (PEM), when it completed that.

        Parameters
        ----------
        clears : bool
            Whether this process publishes here, too: parts of what it did not publish are cleared when they were heard.

        Raises
        ------
        WireError
            What it is cannot be read, or it is too large.
        """
        if message.topic != self._topics.revoked():
            try:
                content = self._store.add(message.topic, message.payload)
            except WireError:
                self._heard = ""  # the same manifest may come again, with parts that are right
                raise
            if content is not None:
                self._leave(clears=clears)
            return content
        if message.payload.startswith(b"-----BEGIN"):
            return message.payload
        body = Envelope.from_bytes(message.payload, fleet=self._topics.fleet).body
        if not isinstance(body, Manifest) or body.what != "revoked":
            raise WireError("malformed", "neither a revocation list nor the manifest of one")
        if body.digest != self._heard:
            self._store.want(body)
            self._leave(clears=clears)
            self._heard = body.digest
            self._wanted = tuple(self._topics.blob(body.digest, index) for index in range(body.count))
            for topic in self._wanted:
                self._transport.subscribe(topic)
        return None

    def _leave(self, *, clears: bool) -> None:
        """End what was heard before."""
        for topic in self._wanted:
            self._transport.unsubscribe(topic)
        if clears:
            self._clear(self._wanted)
        self._wanted = ()

    def _clear(self, topics: Iterable[str]) -> None:
        for frame in clearing(sorted({*topics} - {*self._published})):
            self._transport.publish(*frame, retain=True)
