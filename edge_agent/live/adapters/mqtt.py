"""JSON on a topic of a broker in the vehicle."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Message
from broker.tls import tls_of
from edge_agent.live.port import Adapter, LiveSample, SampleRequest, ServerAccess, log, parse
from schemas.errors import UsageError

_WAITING = 1000
"""Messages that wait to be taken; what comes beyond it is lost, and counted."""


def link_of(
    source: str, access: ServerAccess, example: str = "mqtt://127.0.0.1:1883/vehicle/samples", *, who: str = "samples"
) -> tuple[Link, str]:
    """Return how the broker of a source is reached, by a client of the name `who`, and the topic.

    Raises
    ------
    UsageError
        No topic is named, or the identity folder lacks a file.
    """
    scheme, _, rest = source.partition("://")
    host, slash, topic = rest.partition("/")
    if not slash or not topic:
        shown = rest.rpartition("@")[2]
        raise UsageError(f"{scheme}://{shown}: name the topic too, as in {example}")
    link = Link(
        f"{scheme}://{host}",
        f"gf-{who}-{threading.get_native_id()}",
        session_expiry=0,
        tls=tls_of(access.identity, access.ca_file),
        insecure_plaintext=access.insecure_plaintext,
    )
    return link, topic


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Listen to a topic."""
    link, topic = link_of(asked.source, asked.access)
    return listen(asked, link, topic, lambda _transport: None, _samples_of)


def _samples_of(message: Message) -> list[LiveSample | str]:
    sample = parse(message.payload)
    if isinstance(sample, str):
        return [sample]
    return [replace(sample, topic=message.topic, is_stored=message.retained)]


def listen(
    asked: SampleRequest,
    link: Link,
    topic: str,
    ask: Callable[[PahoTransport], None],
    samples_of: Callable[[Message], list[LiveSample | str]],
) -> Iterator[LiveSample | str]:
    """Yield what the messages on a topic hold; `ask` is called at each connection."""
    if asked.is_urgent:
        connect_once(link)
    arrived: queue.Queue[Message] = queue.Queue(_WAITING)

    def enqueue(message: Message) -> None:
        try:
            arrived.put_nowait(message)
        except queue.Full:
            asked.lost += 1

    def connected() -> None:
        log.info("source-connected", topic=topic)
        ask(transport)

    transport = PahoTransport(link)
    transport.subscribe(topic)
    transport.start(
        Handlers(
            enqueue, connected, lambda why: log.warning("source-lost", topic=topic, reason=why, hint="tried again")
        )
    )
    return _samples(asked, transport, arrived, samples_of)


def _samples(
    asked: SampleRequest,
    transport: PahoTransport,
    arrived: queue.Queue[Message],
    samples_of: Callable[[Message], list[LiveSample | str]],
) -> Iterator[LiveSample | str]:
    try:
        while not asked.stopping.is_set():
            try:
                message = arrived.get(timeout=0.2)
            except queue.Empty:
                continue
            yield from samples_of(message)
    finally:
        transport.stop()


ADAPTER = Adapter("JSON objects on a topic: mqtt[s]://[user@]host[:port]/TOPIC", read, schemes=("mqtt", "mqtts"))
