"""One MQTT connection, from CONNECT to its end, driven by one thread through an epoll selector.

paho's own ``loop_start`` waits with select(), which fails silently beyond about 339 clients in a process, and its queue
of unacknowledged messages dies with a change of protocol version. So paho is used as a protocol library only: each
connection is a new ``Client``, every call to it comes from the thread that calls `Connection.step`, and what must
outlive a connection (subscriptions, unacknowledged messages) is kept by ``PahoTransport``.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Literal, cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from broker.buffered import BufferedClient, BufferedSocket
from broker.port import CLOSE_WAIT, MAX_INFLIGHT, VERDICT_TRIES, Link, Message
from broker.tls import PROBABLY_PLAIN, ask_why, client_context, fault_of, tls_words
from broker.url import BrokerAddress
from schemas.errors import UsageError

HEADER_ROOM = 512
"""Bytes of a PUBLISH packet that are not payload: fixed header, topic (at most about 300 bytes here), properties."""

PROTOCOLS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}

Fault = Literal["unreachable", "tls", "silent", "version", "credentials", "refused", "cancelled"]
"""Why no connection came about: nobody listens; TLS failed; no CONNACK; CONNACK with a refusal; told to stop."""


class ConnectError(Exception):
    """No connection came about. The text says why and what to look at."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class Connection:
    """A connection to a broker.

    Parameters
    ----------
    link : Link
        Client id, will, keepalive, session expiry and connect timeout. A session expiry of 0 means a clean start.
    on_message : callable
        Called within `step` for each arrived message. The message is acknowledged to the broker after it returns.
    on_acknowledged : callable
        Called within `step` with the number that `publish` returned, and the broker's complaint or "".
    on_refused : callable
        Called within `step` when the broker refuses a subscription, with the number that `subscribe` returned and the
        broker's reason.
    """

    def __init__(
        self,
        address: BrokerAddress,
        link: Link,
        protocol: str,
        *,
        on_message: Callable[[Message], None],
        on_acknowledged: Callable[[int, str], None],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self.protocol = protocol
        self.max_packet_bytes: int | None = None
        self.max_inflight = MAX_INFLIGHT
        self.lost: str | None = None
        self._address = address
        self._link = link
        self._on_message = on_message
        self._on_acknowledged = on_acknowledged
        self._on_refused = on_refused
        self._answer: ReasonCode | None = None
        self._selector: selectors.BaseSelector | None = None
        self._client = self._make_client()

    def _make_client(self) -> BufferedClient:
        link, five = self._link, self.protocol == "5"
        client = BufferedClient(
            CallbackAPIVersion.VERSION2,
            client_id=link.client_id,
            # MQTT 5 has clean_start at connect instead.
            clean_session=None if five else link.session_expiry == 0,
            protocol=PROTOCOLS[self.protocol],
            # Otherwise paho itself reconnects with MQTT 3.1 when 3.1.1 is refused.
            reconnect_on_failure=False,
        )
        client.connect_timeout = link.connect_timeout
        client.max_inflight_messages = 0  # `PahoTransport` counts them; paho goes through all at each PUBACK
        if self._address.username is not None:
            client.username_pw_set(self._address.username, self._address.password)
        if link.will is not None:
            will = link.will if link.seal is None else link.seal(link.will)
            client.will_set(will.topic, will.payload, qos=1, retain=will.retained)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._arrived
        client.on_publish = self._published
        client.on_subscribe = self._subscribed
        return client

    def open(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Connect and wait for the broker's answer.

        Raises
        ------
        ConnectError
            No connection came about within ``connect_timeout`` (once for TCP and TLS, once for the answer).
        """
        place = self._address.place
        sock = self._dial(place)
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        deadline = time.monotonic() + self._link.connect_timeout
        while self._answer is None and self.lost is None and time.monotonic() < deadline:
            if cancelled():
                self.close()
                raise ConnectError("cancelled", "told to stop")
            self.step(min(0.1, max(0.0, deadline - time.monotonic())))
        if self._answer is None and self._address.tls:
            self.drop()
            self._raise_verdict(fault_of(sock.socket))
        if self._answer is None:
            why = "did not answer" if self.lost is None else "closed the connection"
            self.drop()
            text = f"{place} {why} when asked for MQTT {self.protocol}"
            raise ConnectError("silent", text if self._address.tls else f"{text} (a TLS port needs mqtts://)")
        if self._answer.is_failure:
            self.drop()
            raise ConnectError(*self._refusal(self._answer, place))

    def _dial(self, place: str) -> BufferedSocket:
        """Open TCP (and TLS) and send CONNECT."""
        host, port = self._address.host, self._address.port
        try:
            if self._address.tls:
                # Read anew for each connection: a renewed certificate counts from the next one on.
                self._client.tls_set_context(client_context(self._link.tls))
            self._client.connect(host, port, keepalive=self._link.keepalive, **self._start_options())
        except UsageError as fault:
            raise ConnectError("tls", str(fault)) from fault
        except OSError as fault:
            raise self._no_way(fault) from fault
        sock = self._socket()
        if sock is None:
            if self._address.tls:
                self._raise_verdict(None)
            raise ConnectError("silent", f"{place} closed the connection at once (a TLS port needs mqtts://)")
        with contextlib.suppress(OSError):
            # Without it each small answer waits up to 40 ms for the peer's delayed acknowledgement.
            sock.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _raise_verdict(self, verdict: ssl.SSLError | None) -> None:
        """Raise what the broker has against our certificate, if it has; asked again when `verdict` is None."""
        # What it said may have been lost when it closed before it read our CONNECT.
        address, link = self._address, self._link
        fault = verdict or ask_why(address.host, address.port, link.tls, link.connect_timeout, VERDICT_TRIES)
        if fault is not None:
            raise self._tls_fault(fault) from fault

    def _tls_fault(self, fault: ssl.SSLError) -> ConnectError:
        return ConnectError("tls", f"TLS with {self._address.place}: {tls_words(fault, self._address.host)}")

    def _no_way(self, fault: OSError) -> ConnectError:
        """Return in words why neither TCP nor TLS came about."""
        place, is_tls = self._address.place, self._address.tls
        match fault:
            case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
                return self._not_tls("the handshake was broken off")
            case ssl.SSLError():
                return self._tls_fault(fault)
            case socket.gaierror():
                return ConnectError("unreachable", f"the host name {self._address.host!r} cannot be found")
            case ConnectionRefusedError():
                return ConnectError("unreachable", f"nothing listens at {place}")
            # OpenSSL's text is all that tells a handshake which nobody answers from a place that nobody answers at.
            case TimeoutError() if is_tls and "handshake" in str(fault):
                return self._not_tls(f"nobody answered the handshake within {self._link.connect_timeout:g} s")
            case TimeoutError():
                return ConnectError("unreachable", f"no answer from {place}")
            # The connection was not refused, so it was the handshake that broke off.
            case ConnectionError() if is_tls:
                return self._not_tls(f"the handshake was broken off ({fault.strerror or fault})")
            case _:
                return ConnectError("unreachable", f"{place} cannot be reached: {fault}")

    def _not_tls(self, what: str) -> ConnectError:
        return ConnectError("tls", f"TLS with {self._address.place}: {what}: {PROBABLY_PLAIN}")

    def _socket(self) -> BufferedSocket | None:
        return cast("BufferedSocket | None", self._client.socket())

    def _start_options(self) -> dict[str, Any]:
        if self.protocol != "5":
            return {}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._link.session_expiry
        return {"clean_start": self._link.session_expiry == 0, "properties": properties}

    @staticmethod
    def _refusal(answer: ReasonCode, place: str) -> tuple[Fault, str]:
        name = answer.getName()
        if name == "Unsupported protocol version":
            return "version", f"{place} refuses this version of MQTT"
        if name in ("Bad user name or password", "Not authorized", "Bad authentication method", "Banned"):
            return "credentials", f"{place} refuses the user name or password ({name})"
        return "refused", f"{place} refuses the connection: {name}"

    def step(self, timeout: float, wake: socket.socket | None = None) -> None:
        """Wait at most `timeout` seconds for the broker (or for bytes at `wake`, which are taken) and do what is due.

        After it, ``lost`` is None while the connection stands, and says why when it ended.
        """
        sock = self._socket()
        if sock is None or self._selector is None:
            self.lost = self.lost or "connection closed"
            return
        self._flush(sock)
        if self.lost is None:
            self._selector.modify(sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if sock.has_unsent else 0))
            if wake is not None and wake not in self._selector.get_map():
                self._selector.register(wake, selectors.EVENT_READ)
            ready = {key.fileobj: mask for key, mask in self._selector.select(0 if sock.has_unread else timeout)}
            if wake in ready:
                wake.recv(4096)
            if ready.get(sock, 0) & selectors.EVENT_READ or sock.has_unread:
                self._read(sock)
        if self._socket() is not None:
            self._check(self._client.loop_misc())
        if self._socket() is None:
            self.lost = self.lost or "connection closed"

    def _read(self, sock: BufferedSocket) -> None:
        """Take what has arrived; paho takes a packet at a time."""
        self._check(self._client.loop_read())
        while sock.has_unread and self._socket() is not None:
            self._check(self._client.loop_read())

    def _flush(self, sock: BufferedSocket) -> None:
        try:
            sock.flush()
        except OSError as fault:
            # What the broker said before it closed the connection can still be read.
            self._read(sock)
            self.lost = self.lost or f"connection lost: {fault.strerror or fault}"

    def _check(self, code: MQTTErrorCode) -> None:
        if code > MQTTErrorCode.MQTT_ERR_SUCCESS:
            self.lost = self.lost or paho.error_string(code)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> int:
        """Send with QoS 1; the number that ``on_acknowledged`` will name."""
        return self._client.publish(topic, payload, qos=1, retain=retain).mid

    def subscribe(self, pattern: str) -> int:
        """Subscribe with QoS 1; returns a number that `on_refused` may name."""
        return self._client.subscribe(pattern, qos=1)[1] or 0  # None: the connection is lost

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self._client.unsubscribe(pattern)

    def close(self) -> None:
        """Disconnect cleanly: the broker forgets the will."""
        if self._socket() is not None and self.lost is None:
            self._client.disconnect()
            deadline = time.monotonic() + CLOSE_WAIT
            while self._socket() is not None and time.monotonic() < deadline:
                self.step(0.05)
        self.drop()

    def cut(self) -> None:
        """Break the network path, from any thread: both ends lose the connection, neither is told why (for tests)."""
        sock = self._socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the socket without a word: to the broker it looks as if the process had died."""
        sock = self._socket()
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        if sock is not None:
            self._client.on_disconnect = None
            with contextlib.suppress(OSError):
                sock.socket.close()

    def _connected(
        self, _client: Any, _data: Any, _flags: Any, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._answer = reason
        if properties is not None and not reason.is_failure:
            self.max_packet_bytes = getattr(properties, "MaximumPacketSize", None)
            most = MAX_INFLIGHT
            self.max_inflight = min(most, getattr(properties, "ReceiveMaximum", most))

    def _disconnected(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        who = "the broker ended the connection" if flags.is_disconnect_packet_from_server else "connection lost"
        self.lost = self.lost or f"{who}: {reason}"

    def _arrived(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # not a topic of ours, whatever it says
        self._on_message(Message(topic, bytes(message.payload), bool(message.retain)))

    def _published(self, _client: Any, _data: Any, number: int, reason: ReasonCode, _properties: Any) -> None:
        self._on_acknowledged(number, str(reason) if reason.is_failure else "")

    def _subscribed(self, _client: Any, _data: Any, number: int, reasons: list[ReasonCode], _properties: Any) -> None:
        for reason in reasons:
            if reason.is_failure:
                self._on_refused(number, str(reason))
