"""One MQTT connection, from CONNECT to its end, driven by one thread through an epoll selector.

What must outlive a connection (subscriptions, unacknowledged messages) is kept by ``MqttTransport``. Many packets leave
and arrive with one call of the operating system.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Literal

from broker import packets
from broker.packets import Greeting, MalformedError
from broker.port import CLOSE_WAIT, MAX_INFLIGHT, VERDICT_TRIES, Link, Message
from broker.tls import PROBABLY_PLAIN, ask_why, client_context, tls_words
from broker.url import BrokerAddress
from schemas.errors import UsageError

HEADER_ROOM = 512
"""Bytes of a PUBLISH packet that are not payload: fixed header, topic (at most about 300 bytes here), properties."""

READ_BYTES = 1 << 16
"""What is read at once."""

LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises when it has nothing to give, or takes nothing."""

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
        self._is_five = protocol == "5"
        self._greeting: Greeting | None = None
        self._socket: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._packets = packets.Reader()
        self._unsent = bytearray()
        self._number = 0
        self._fault: OSError | None = None
        self._keepalive = link.keepalive
        self._sent_at = self._heard_at = self._asked_at = 0.0

    def open(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Connect and wait for the broker's answer.

        Raises
        ------
        ConnectError
            No connection came about within ``connect_timeout`` (once for TCP and TLS, once for the answer).
        """
        place = self._address.place
        self._socket = self._dial()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._sent_at = self._heard_at = time.monotonic()
        self._send(self._hello())
        deadline = time.monotonic() + self._link.connect_timeout
        while self._greeting is None and self.lost is None and time.monotonic() < deadline:
            if cancelled():
                self.close()
                raise ConnectError("cancelled", "told to stop")
            self.step(min(0.1, max(0.0, deadline - time.monotonic())))
        if self._greeting is None:
            self.drop()
            if self._address.tls:
                self._raise_verdict(self._fault if isinstance(self._fault, ssl.SSLError) else None)
            why = "did not answer" if self.lost is None else "closed the connection"
            text = f"{place} {why} when asked for MQTT {self.protocol}"
            raise ConnectError("silent", text if self._address.tls else f"{text} (a TLS port needs mqtts://)")
        if self._greeting.reason:
            self.drop()
            raise ConnectError(*self._refusal(self._greeting.reason, place))

    def _dial(self) -> socket.socket:
        """Open TCP, and TLS."""
        host, port = self._address.host, self._address.port
        try:
            # Read anew for each connection: a renewed certificate counts from the next one on.
            context = client_context(self._link.tls) if self._address.tls else None
            sock = socket.create_connection((host, port), self._link.connect_timeout)
            try:
                # Without it each small answer waits up to 40 ms for the peer's delayed acknowledgement.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    sock = context.wrap_socket(sock, server_hostname=host)
            except BaseException:
                sock.close()
                raise
        except UsageError as fault:
            raise ConnectError("tls", str(fault)) from fault
        except OSError as fault:
            raise self._no_way(fault) from fault
        sock.setblocking(False)
        return sock

    def _hello(self) -> bytes:
        link, address = self._link, self._address
        will = link.will if link.will is None or link.seal is None else link.seal(link.will)
        return packets.connect(
            link.client_id,
            protocol=self.protocol,
            keepalive=link.keepalive,
            clean=link.session_expiry == 0,
            session_expiry=link.session_expiry,
            will=will,
            login=None if address.username is None else (address.username, address.password or ""),
        )

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

    @staticmethod
    def _refusal(reason: int, place: str) -> tuple[Fault, str]:
        name = packets.name_of(reason)
        if name == "Unsupported protocol version":
            return "version", f"{place} refuses this version of MQTT"
        if name in ("Bad user name or password", "Not authorized", "Bad authentication method", "Banned"):
            return "credentials", f"{place} refuses the user name or password ({name})"
        return "refused", f"{place} refuses the connection: {name}"

    def step(self, timeout: float, wake: socket.socket | None = None) -> None:
        """Wait at most `timeout` seconds for the broker (or for bytes at `wake`, which are taken) and do what is due.

        After it, ``lost`` is None while the connection stands, and says why when it ended.
        """
        if self._socket is None or self._selector is None:
            self.lost = self.lost or "connection closed"
            return
        self._flush()
        if self.lost is not None:
            return
        self._selector.modify(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0))
        if wake is not None and wake not in self._selector.get_map():
            self._selector.register(wake, selectors.EVENT_READ)
        ready = {key.fileobj: mask for key, mask in self._selector.select(timeout)}
        if wake in ready:
            wake.recv(4096)
        if ready.get(self._socket, 0) & selectors.EVENT_READ:
            self._read()
        self._keep_alive()

    def _read(self) -> None:
        """Take what has arrived."""
        assert self._socket is not None
        is_more = True
        try:
            while is_more and self.lost is None:
                data = self._socket.recv(READ_BYTES)
                # What TLS has decrypted is seen by no selector.
                is_more = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
                self._heard_at = time.monotonic()
                if not data:
                    self.lost = "connection lost: the broker ended it"
                for head, body in self._packets.feed(data):
                    self._take(head, body)
        except LATER:
            pass
        except OSError as fault:
            self._break(fault)
        except MalformedError as fault:
            self.lost = self.lost or f"what the broker says is no MQTT: {fault}"

    def _take(self, head: int, body: bytes) -> None:
        kind = head & 0xF0
        if self._greeting is None and kind != packets.CONNACK:
            raise MalformedError("it begins without CONNACK")
        match kind:
            case packets.PUBLISH:
                message, own_number = packets.read_message(head, body, is_five=self._is_five)
                self._on_message(message)
                if own_number:
                    self._send(packets.packet(packets.PUBACK, own_number))
            case packets.PUBACK:
                self._on_acknowledged(*packets.read_receipt(body))
            case packets.SUBACK:
                number, complaints = packets.read_grants(body, is_five=self._is_five)
                for complaint in complaints:
                    self._on_refused(number, complaint)
            case packets.CONNACK:
                self._greeted(packets.read_greeting(body))
            case packets.PINGRESP:
                self._asked_at = 0.0
            case packets.DISCONNECT:
                self.lost = f"the broker ended the connection: {packets.name_of(body[0]) if body else 'no reason'}"

    def _greeted(self, greeting: Greeting) -> None:
        self._greeting, told = greeting, greeting.properties
        self.max_packet_bytes = told.get(packets.MAXIMUM_PACKET)
        self.max_inflight = min(MAX_INFLIGHT, told.get(packets.RECEIVE_MAXIMUM, MAX_INFLIGHT))
        self._keepalive = told.get(packets.KEEPALIVE, self._link.keepalive)

    def _send(self, data: bytes) -> None:
        """Keep `data` for the next `_flush`."""
        self._unsent += data

    def _flush(self) -> None:
        """Send what was kept, as far as the socket takes it now."""
        assert self._socket is not None
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
                self._sent_at = time.monotonic()
        except LATER:
            pass
        except OSError as fault:
            self._read()  # what the broker said before it closed the connection can still be read
            self._break(fault)

    def _break(self, fault: OSError) -> None:
        self._fault = self._fault or fault
        self.lost = self.lost or f"connection lost: {fault.strerror or fault}"

    def _keep_alive(self) -> None:
        """Show a sign of life when it is time, and give the broker up that shows none."""
        now = time.monotonic()
        if not self._keepalive or self.lost is not None:
            return
        if self._asked_at:
            if now - max(self._asked_at, self._heard_at) >= self._keepalive:
                self.lost = "connection lost: the broker shows no sign of life"
        elif now - min(self._sent_at, self._heard_at) >= self._keepalive:
            self._asked_at = now
            self._send(packets.packet(packets.PINGREQ))

    def _next_number(self) -> int:
        self._number = self._number % 65535 + 1
        return self._number

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> int:
        """Send with QoS 1; the number that ``on_acknowledged`` will name."""
        number = self._next_number()
        self._send(packets.publish(topic, payload, number, retain=retain, is_five=self._is_five))
        return number

    def subscribe(self, pattern: str) -> int:
        """Subscribe with QoS 1; returns a number that `on_refused` may name."""
        number = self._next_number()
        self._send(packets.subscribe(number, pattern, is_five=self._is_five))
        return number

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self._send(packets.unsubscribe(self._next_number(), pattern, is_five=self._is_five))

    def close(self) -> None:
        """Disconnect cleanly: the broker forgets the will."""
        if self._socket is not None:
            self._send(packets.packet(packets.DISCONNECT))
            deadline = time.monotonic() + CLOSE_WAIT
            while self.lost is None and self._unsent and time.monotonic() < deadline:
                self.step(0.05)
        self.drop()

    def cut(self) -> None:
        """Break the network path, from any thread: both ends lose the connection, neither is told why (for tests)."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS's own would go on in the clear

    def drop(self) -> None:
        """Close the socket without a word: to the broker it looks as if the process had died."""
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
