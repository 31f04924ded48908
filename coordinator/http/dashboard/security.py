"""Who may act on the dashboard: sessions of operators, and their forms.

Reading needs nothing, as in the API. To act, an operator signs in with the API token once; the browser then holds a
random session cookie that no script can read (``HttpOnly``) and that no other site can use (``SameSite=Strict``). Every
form carries the session's CSRF token as well. `coordinator.http.access` refuses what comes from another site, and every
form without a session but the one for signing in, before it is read.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from starlette.responses import Response

from coordinator.http.access import SIGN_IN, is_token

OPERATORS = 100
"""Operators who are signed in at once; the one who signed in first gives way."""

COOKIE = "glassfleet_session"


@dataclass(frozen=True)
class Session:
    """Who has signed in: the CSRF token of the session's forms, and when it ends (monotonic seconds)."""

    csrf: str
    ends: float


class Sessions:
    """The operators who have signed in; in memory, so a restart signs all out.

    Parameters
    ----------
    seconds : int
        How long they stay signed in.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def sign_in(self, response: Response, request: Request) -> None:
        """Give the browser a new session, whose token was right; over TLS, for TLS only."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = Session(secrets.token_urlsafe(32), time.monotonic() + self._seconds)
        while len(self._sessions) > OPERATORS:
            self._sessions.popitem(last=False)
        is_secure = request.scope["scheme"] == "https"
        longest = self._seconds
        response.set_cookie(COOKIE, cookie, max_age=longest, httponly=True, samesite="strict", secure=is_secure)

    def sign_out(self, request: Request) -> None:
        """Forget the session of a request."""
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def of(self, request: Request) -> Session | None:
        """Return the session of a request; None for readers."""
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        return session if session is not None and session.ends > time.monotonic() else None

    async def admit(self, request: Request) -> None:
        """Raise HTTPException (401) for readers."""
        if self.of(request) is None:
            raise HTTPException(401, SIGN_IN)

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of an operator's form.

        Raises
        ------
        HTTPException
            401 without a session, 403 when the form is not one that this session was given, 422 when it is none.
        """
        session = self.of(request)
        if session is None:
            raise HTTPException(401, SIGN_IN)
        fields = await read_form(request)
        if not is_token(fields.pop("csrf", ""), session.csrf):
            raise HTTPException(403, "this form is not from this session: reload the page and try again")
        return fields


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form of our own pages; HTTPException (422) when it is none."""
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=200)
    except ValueError as fault:
        raise HTTPException(422, "this is not a form") from fault
    return dict(pairs)
