"""Requests: refused by their header where that is possible, read up to a bound, and answered a few at a time.

Theory. All that can be said by the header alone is said before a byte of the body is read. A body is read whole, up to
its bound, before the request may stand in line: who sends slowly holds up nobody. A line has its own places, so that
what takes long (a counterfactual) leaves the threads to what must not wait (health, metrics, cancel, signing in); those
who wait in it hold no thread.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.http.server import HttpLimits

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing but our own files; no inline script, no inline style, nobody may frame us."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # "no-referrer" would have browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

READING = ("GET", "HEAD", "OPTIONS")

LONGEST_LENGTH = 12
"""Digits of a ``Content-Length`` that are read."""

ErrorResponse = Callable[[Request, int, str], Response]
"""Makes the answer that says what is wrong: JSON to programs, a page to people."""


class Line:
    """So many requests are answered at a time; others wait, first come, first served.

    Parameters
    ----------
    wait : float
        Seconds that one may wait.
    """

    def __init__(self, places: int, wait: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._wait = wait

    async def enter(self) -> None:
        """Wait for a place; raises TimeoutError."""
        async with asyncio.timeout(self._wait):
            await self._places.acquire()

    def leave(self) -> None:
        """Give the place back."""
        self._places.release()


class Rules:
    """What a guard asks about a request, by its header; these are the rules of a server that is open to everybody."""

    def check(self, request: Request) -> None:
        """Raise HTTPException when it may not be answered."""

    def longest(self, request: Request, limits: HttpLimits) -> int:  # noqa: ARG002 - for those who tell them apart
        """Return how many bytes of its body are read."""
        return limits.body_bytes

    def line(self, request: Request) -> Line | None:  # noqa: ARG002
        """Return where it waits for its turn; None: it does not."""
        return None


class Guard:
    """ASGI middleware; the outermost.

    Parameters
    ----------
    error_response : callable
        Request, status and text to an answer.
    """

    def __init__(self, app: ASGIApp, *, limits: HttpLimits, rules: Rules, error_response: ErrorResponse) -> None:
        self._app = app
        self._limits = limits
        self._rules = rules
        self._error_response = error_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        line: Line | None = None

        def leave() -> None:
            nonlocal line
            if line is not None:
                line.leave()
                line = None

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                leave()  # the work is done; who reads slowly holds up nobody
            await send(message)

        try:
            body = await self._body(request)
            line = await self._place(request)
        except HTTPException as fault:
            await self._error_response(request, fault.status_code, str(fault.detail))(scope, receive, guarded)
            return
        except ClientDisconnect:
            return
        try:
            await self._app(scope, _again(body, receive), guarded)
        finally:
            leave()

    async def _body(self, request: Request) -> bytes:
        """Return the body; raises HTTPException when the request is refused, or its body longer than is read."""
        # h11 has the same bound, but only for headers that do not come whole in one read.
        if sum(len(name) + len(value) for name, value in request.headers.raw) > self._limits.header_bytes:
            raise HTTPException(431, f"at most {self._limits.header_bytes} bytes of headers are read")
        self._rules.check(request)
        longest = self._rules.longest(request, self._limits)
        too_long = HTTPException(413, f"a body of more than {longest} bytes is not read")
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > LONGEST_LENGTH or int(length) > longest:
            raise too_long
        body = bytearray()
        async for part in request.stream():  # it may have come without its length
            body += part
            if len(body) > longest:
                raise too_long
        return bytes(body)

    async def _place(self, request: Request) -> Line | None:
        """Return the line in which the request has taken a place; raises HTTPException when there is none for long."""
        line = self._rules.line(request)
        try:
            if line is not None:
                await line.enter()
        except TimeoutError:
            raise HTTPException(503, "too many ask at once: try again in a moment; nothing was done") from None
        return line


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that tells the whole body first."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def is_foreign(request: Request) -> bool:
    """Whether a browser says that a page of another site sends this; programs say nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine by loopback; a request without one does not come from a browser."""
    name = urlsplit(f"//{host}").hostname or ""
    if not host or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_token(given: str, token: str) -> bool:
    """Whether `given` is the token, compared in constant time; an empty one never is."""
    return bool(token) and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
