"""What is asked of every request, by its header alone, whatever it is for; and the headers of every answer.

What is asked of a request for a certain address is in `coordinator.http.access`. A fault that nobody expected becomes a
page that says so, and a line in the log by which it is found again.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote

import structlog
from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
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

PROGRAMS = ("/api/", "/events/", "/metrics", "/v1/")
"""Addresses for programs: their faults are JSON."""

FOREIGN_NAME = "this coordinator answers to loopback names only; set api_expose if a firewall or proxy guards it"

LAST_PORT = 65535

_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]{1,253})|\[(?P<address>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}")


class WaitingLine:
    """So many requests are answered at a time; others wait, first come, first served.

    Parameters
    ----------
    wait : float
        Seconds that one may wait.
    """

    def __init__(self, places: int, wait: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._wait = wait

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it; raises HTTPException (503) when there is none for long."""
        try:
            async with asyncio.timeout(self._wait):
                await self._places.acquire()
        except TimeoutError:
            raise HTTPException(503, "too many ask at once: try again in a moment; nothing was done") from None
        try:
            yield
        finally:
            self._places.release()


class Guard:
    """ASGI middleware, the outermost: who asks under a name that is none is refused, whatever he asks for.

    Parameters
    ----------
    limits : HttpLimits
        Of the server.
    loopback_only : bool
        Answer to loopback names only. A page of another site can have its own name resolve to 127.0.0.1 and then read
        what is served here (DNS rebinding); the browser still sends that name. Who exposes a server on purpose has
        names that we cannot know.
    error_response : callable
        Makes the answer when something is wrong with us.
    """

    def __init__(
        self, app: ASGIApp, *, limits: HttpLimits, loopback_only: bool = False, error_response: ErrorResponse
    ) -> None:
        self._app = app
        self._limits = limits
        self._loopback_only = loopback_only
        self._inside = ErrorHandler(self._checked, error_response=error_response)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._inside(scope, receive, guarded)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope, receive)
            try:
                self._check(request)
            except HTTPException as fault:
                await short_answer(request, fault.status_code, str(fault.detail))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Raise HTTPException when it may not be answered."""
        # h11 has the same bound, but only for headers that do not come whole in one read.
        if sum(len(name) + len(value) for name, value in request.headers.raw) > self._limits.header_bytes:
            raise HTTPException(431, f"at most {self._limits.header_bytes} bytes of headers are read")
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) > 1 or not all(_is_host(host) for host in hosts if host):
            raise HTTPException(400, "Host must be a name and a port, once")
        if len(origins) > 1 or not all(_is_origin(origin) for origin in origins):
            raise HTTPException(400, "Origin must be a scheme, a name and a port, once, or null")
        if self._loopback_only and hosts and hosts[0] and not _is_loopback_name(hosts[0]):
            raise HTTPException(421, FOREIGN_NAME)


def short_answer(request: Request, status: int, detail: str) -> Response:
    """Return an answer that tells a fault and nothing else, of the coordinator neither."""
    if request.scope["path"].startswith(PROGRAMS):
        return JSONResponse({"detail": detail}, status)
    return PlainTextResponse(f"{detail}\n", status)


def is_foreign(request: Request) -> bool:
    """Whether a browser says that a page of another site sends this; programs say nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host", "")


def _is_origin(origin: str) -> bool:
    scheme, separator, host = origin.partition("://")
    return origin == "null" or (bool(separator) and _SCHEME.fullmatch(scheme) is not None and _is_host(host))


def _is_host(host: str) -> bool:
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > LAST_PORT:
        return False
    try:
        return match["address"] is None or ipaddress.IPv6Address(match["address"]).scope_id is None
    except ValueError:
        return False


def _is_loopback_name(host: str) -> bool:
    """Whether a host names this machine by loopback."""
    match = _HOST.fullmatch(host)
    name = "" if match is None else (match["address"] or match["name"]).lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


# --- faults that nobody expected: a page that says so, and a line in the log by which it is found again ---------------


ErrorResponse = Callable[[Request, int, str], Response]
"""Makes the answer that says what is wrong: JSON to programs, a page to people."""

_log = structlog.get_logger("coordinator")


class ErrorHandler:
    """ASGI middleware: no fault of ours leaves as a bare 500.

    Parameters
    ----------
    error_response : callable
        Request, status and text to an answer.
    """

    def __init__(self, app: ASGIApp, *, error_response: ErrorResponse) -> None:
        self._app = app
        self._error_response = error_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as fault:
            mark = _mark(fault)
            trace = traceback.format_exc()  # as text: without the values of variables, which may hold tokens
            _log.error(
                "page-failed", fault=mark, method=scope["method"], path=quote(scope["path"])[:400], exception=trace
            )
            if has_begun:
                raise  # the server cuts the connection: half an answer must not look like a whole one
            await self._answer(Request(scope), mark, fault)(scope, receive, send)

    def _answer(self, request: Request, mark: str, fault: Exception) -> Response:
        text = f"something is wrong in the server itself; its log says what, at page-failed, fault {mark}"
        if request.method not in {"GET", "HEAD"}:
            text += ". Look whether it was done before you repeat it"
        try:
            return self._error_response(request, 500, text)
        except Exception:  # noqa: BLE001  the page of faults may be what is broken
            trace = traceback.format_exc()
            _log.error("fault-page-failed", fault=mark, of=type(fault).__name__, exception=trace)
            return PlainTextResponse(f"{text}\n", 500)


def _mark(fault: Exception) -> str:
    """Return what a fault is found by: the same for one kind at one place, of which one a minute is told."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return hashlib.sha256(f"{type(fault).__name__} {last.filename} {last.lineno}".encode()).hexdigest()[:8]
