"""Patches of amqtt 0.12.1 for agents that come and go. Imports amqtt, the optional extra.

Each patch names the fault that it mends; all were found by the conformance suite or by reading amqtt's source. When
amqtt is renewed, try without each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import ItemsView, Iterator
from typing import Any

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker, RetainedApplicationMessage
from amqtt.errors import AMQTTError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OutgoingApplicationMessage, Session

_MQTT_311 = 4
_CONNECT = 0x10
_FIRST_PACKET_SECONDS = 10.0

_UNSUPPORTED_V5 = bytes([0x20, 0x03, 0x00, 0x84, 0x00])
"""CONNACK of MQTT 5: session absent, "unsupported protocol version", no properties."""


class PatchedBroker(Broker):  # type: ignore[misc]
    """The broker of `broker.servers.embedded`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._subscriptions = _Snapshots()

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        """Refuse MQTT 5 at once.

        amqtt reads the properties of a version 5 CONNECT as the client id and waits for bytes that never come, so each
        client would wait for its connect timeout before it tries 3.1.1.
        """
        try:
            head, level = await asyncio.wait_for(_first_bytes(reader), _FIRST_PACKET_SECONDS)
        except (TimeoutError, asyncio.IncompleteReadError, OSError, ValueError):
            writer.close()
            return
        if level > _MQTT_311:
            with contextlib.suppress(OSError):
                writer.write(_UNSUPPORTED_V5)
                await writer.drain()
            writer.close()
            return
        with contextlib.suppress(OSError):  # the peer left while amqtt said goodbye
            await self._client_connected(listener_name, _Prefixed(head, reader), StreamWriterAdapter(writer))

    async def _initialize_client_session(self, *args: Any) -> tuple[BrokerProtocolHandler, Session]:
        """Prepare each connection's handler: keep unacknowledged messages, notice silent clients."""
        handler, session = await super()._initialize_client_session(*args)
        publish = handler.mqtt_publish
        if not isinstance(session.retained_messages, _InOrder):
            session.retained_messages = _InOrder()
        waiting: _InOrder = session.retained_messages
        # What could not be sent waits there, and amqtt would send it once more, before everything else.
        session.inflight_out.clear()

        async def publish_or_keep(
            topic: str, data: bytes, qos: int | None, retain: bool, ack_timeout: int | None = None
        ) -> OutgoingApplicationMessage:
            # amqtt forgets what was in flight when the connection ends; QoS 1 promises otherwise.
            place = next(waiting.places)
            try:
                return await publish(topic, data, qos, retain, ack_timeout)
            except (TimeoutError, asyncio.CancelledError, AMQTTError, OSError) as fault:
                if qos and not session.clean_session:
                    waiting.put_back(RetainedApplicationMessage(None, topic, data, qos), place)
                    self._deliver_kept_soon(session, handler)
                if not isinstance(fault, TimeoutError):
                    raise
                # A client that is slow to acknowledge: amqtt has warned of it, and would add a traceback.
                return OutgoingApplicationMessage(None, topic, qos, data, retain)

        def read_timeout() -> None:
            # amqtt only notes it: a client that was cut off would be up for ever, its will never published.
            asyncio.ensure_future(handler.handle_connection_closed())  # noqa: RUF006 - ends within this turn of the loop

        handler.mqtt_publish = publish_or_keep
        handler.handle_read_timeout = read_timeout
        return handler, session

    def _deliver_kept_soon(self, session: Session, failed: BrokerProtocolHandler) -> None:
        """Deliver at once what an old connection left, when the client is back already."""
        current = self._get_handler(session)
        if current is not None and current is not failed and session.transitions.state == "connected":
            task = asyncio.ensure_future(self._publish_session_retained_messages(session))
            self._tasks_queue.append(task)

    async def _publish_session_retained_messages(self, session: Session) -> None:
        """Send what waited for an absent client; amqtt would mark it as retained, which it is not."""
        handler, waiting, sent = self._get_handler(session), session.retained_messages, []
        while handler and not waiting.empty():
            one = await waiting.get()
            sent.append(asyncio.ensure_future(handler.mqtt_publish(one.topic, one.data, one.qos, retain=False)))
        if sent:
            await asyncio.wait(sent)

    async def _handle_disconnect(
        self, client_session: Session, handler: BrokerProtocolHandler, disconnect_waiter: asyncio.Future[Any]
    ) -> None:
        """Keep a session connected that another connection has taken over.

        amqtt marks the shared session as disconnected when the *old* connection's loop ends, and from then on queues
        everything for the new one instead of sending it.
        """
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)
        if self._get_handler(client_session) is not handler and client_session.client_id in self._sessions:
            client_session.transitions.connect()

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Send retained messages to subscribers only.

        On a reconnect amqtt goes through everybody's subscriptions and sends the newcomer the retained messages of all.
        """
        if any(own.client_id == session.client_id for own, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _broadcast_message(
        self, session: Session | None, topic: str | None, data: bytes | None, force_qos: int | None = None
    ) -> None:
        """Spare the debug messages, which are built even when nobody wants them, the printing of whole payloads."""
        await super()._broadcast_message(session, topic, None if data is None else _Quiet(data), force_qos)


class _InOrder(asyncio.Queue[RetainedApplicationMessage]):
    """What waits for an absent client, in the order in which it came.

    A client that leaves may have been sent a message that it no longer reads. When that is found out, later ones wait
    here already: it goes before them.
    """

    def _init(self, maxsize: int) -> None:
        del maxsize
        self.places = itertools.count()
        self._waiting: list[tuple[int, RetainedApplicationMessage]] = []

    def qsize(self) -> int:
        return len(self._waiting)

    def empty(self) -> bool:
        return not self._waiting

    def _get(self) -> RetainedApplicationMessage:
        return heapq.heappop(self._waiting)[1]

    def _put(self, item: RetainedApplicationMessage) -> None:
        heapq.heappush(self._waiting, (next(self.places), item))

    def put_back(self, message: RetainedApplicationMessage, place: int) -> None:
        """Let a message wait again that had this place; nobody waits for the queue, who reads it looks first."""
        heapq.heappush(self._waiting, (place, message))


class _Quiet(bytes):
    """Bytes that do not print themselves."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


class _Snapshots(dict[str, Any]):
    """A dict whose loops do not mind that somebody subscribes meanwhile.

    amqtt awaits within its loops over the subscriptions; a subscription from another client then raised RuntimeError
    and left a connection that nobody served.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().__iter__()))

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return dict(self).items()


class _Prefixed(StreamReaderAdapter):  # type: ignore[misc]
    """A reader that first gives back what was read ahead."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._head = head

    async def read(self, n: int = -1) -> bytes:
        if not self._head:
            data: bytes = await super().read(n)
            return data
        taken, self._head = (self._head, b"") if n < 0 else (self._head[:n], self._head[n:])
        if n < 0 or len(taken) == n:
            return taken
        rest: bytes = await super().read(n - len(taken))
        return taken + rest


async def _first_bytes(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Read the head of a CONNECT packet as far as the protocol level; raises ValueError when it is something else."""
    head = await reader.readexactly(1)
    if head[0] != _CONNECT:
        raise ValueError("the first packet is not a CONNECT")
    for _ in range(4):  # remaining length: one to four bytes, the last without its high bit
        head += await reader.readexactly(1)
        if head[-1] < 0x80:
            break
    name_length = await reader.readexactly(2)
    length = int.from_bytes(name_length, "big")
    if length > 6:  # "MQTT" or the old "MQIsdp"
        raise ValueError("not a protocol name")
    rest = await reader.readexactly(length + 1)
    return head + name_length + rest, rest[-1]
