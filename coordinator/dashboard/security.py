"""What keeps the dashboard safe: headers, the names it answers to, and sessions for those who may act.

Reading needs nothing, as in the API. To act, an operator signs in with the API token once; the browser then holds a
random session cookie that no script can read (``HttpOnly``) and that no other site can use (``SameSite=Strict``). Every
form carries the session's CSRF token as well, and a request that says it comes from another origin is refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.limits import DashboardLimits

COOKIE = "glassfleet_session"

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


class Guard:
    """ASGI middleware: the headers on every answer; on loopback, no answer to foreign host names.

    A page of another site can have its own name resolve to 127.0.0.1 and then read what is served here (DNS rebinding).
    The browser still sends that name, so it is refused. Who exposes the API on purpose has names we cannot know.

    Parameters
    ----------
    app : ASGIApp
    loopback_only : bool
    """

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self._app = app
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self._loopback_only and not is_loopback_name(host):
            text = "this coordinator answers to loopback names only; set api_expose if a firewall or proxy guards it\n"
            await PlainTextResponse(text, 421)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine by loopback; a request without one does not come from a browser."""
    name = urlsplit(f"//{host}").hostname or ""
    if not host or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Session:
    """Who has signed in: the CSRF token of the session's forms, and when it ends (monotonic seconds)."""

    csrf: str
    ends: float


class Sessions:
    """The operators who have signed in; in memory, so a restart signs all out.

    Parameters
    ----------
    token : str
        The API token.
    limits : DashboardLimits
        How long they stay signed in, how many at once, and how long a form may be.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        token: str,
        limits: DashboardLimits = DashboardLimits(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._limits = limits
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def sign_in(self, token: str) -> str | None:
        """Return a new session's cookie when `token` is the right one."""
        if not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            return None
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = Session(secrets.token_urlsafe(32), self._clock() + self._limits.sign_in)
        while len(self._sessions) > self._limits.operators:
            self._sessions.popitem(last=False)
        return cookie

    def sign_out(self, request: Request) -> None:
        """Forget the session of a request."""
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def of(self, request: Request) -> Session | None:
        """Return the session of a request; None for readers."""
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        return session if session is not None and session.ends > self._clock() else None

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of an operator's form.

        Raises
        ------
        HTTPException
            401 without a session, 403 when the form is not one that this session was given, 413 when it is too large.
        """
        fields = await self.read(request)
        session = self.of(request)
        if session is None:
            raise HTTPException(401, "sign in first: this changes something")
        if not hmac.compare_digest(fields.pop("csrf", "").encode(), session.csrf.encode()):
            raise HTTPException(403, "this form is not from this session: reload the page and try again")
        return fields

    async def read(self, request: Request) -> dict[str, str]:
        """Return the fields of a form that needs no session; raises as `read_form`."""
        return await read_form(request, self._limits.form_bytes)

    def set_cookie(self, response: Response, request: Request, value: str) -> None:
        """Give the browser its session; over TLS, for TLS only."""
        is_secure = request.url.scheme == "https"
        longest = self._limits.sign_in
        response.set_cookie(COOKIE, value, max_age=longest, httponly=True, samesite="strict", secure=is_secure)


async def read_form(request: Request, longest: int) -> dict[str, str]:
    """Return the fields of a form of our own pages of at most `longest` bytes; HTTPException (403, 413) for others."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "a form of another site was refused")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise HTTPException(403, "a form of another origin was refused")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise HTTPException(413, f"a form of more than {longest} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200)
    except ValueError as fault:
        raise HTTPException(422, "this is not a form") from fault
    return dict(pairs)
