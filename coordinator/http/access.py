"""Who may ask the coordinator what, how much it may send, and how long it waits: all told by a request's header."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Security
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coordinator.http.guard import READING, Line, Rules, is_foreign, is_loopback_name, is_token
from coordinator.http.server import HttpLimits
from schemas.limits import MAX_DECODED_BYTES

EXPLAIN_AT_ONCE = 2
"""Explanations that are computed at a time; the others wait, for the coordinator needs the processor too."""

EXPLAIN_WAIT = 20.0
"""Seconds that an explanation, or a page, may wait for its turn before its asker is told to come again."""

FORM_BYTES = 64 * 1024
"""Longest form that is read: a reason and some numbers."""

PROGRAMS = ("/api/", "/events/", "/metrics")
"""Addresses for programs: their faults are JSON, and no page of another site may ask for them."""

QUESTIONS = ("/explain", "/counterfactual", "/forecast", "/download")
"""Addresses that explain a model, or write it as a file. They change nothing, so whoever may read may ask; POST only
because rows are long."""

URGENT = ("/api/health", "/api/ready", "/api/metrics", "/metrics", "/sign-in")
AT_ONCE = ("/static/", "/events/")
"""Addresses, and beginnings of addresses, that wait for nobody, like actions; the latter cost next to nothing."""

READS_AT_ONCE = 8
"""Pages and lists that are made at a time. The web framework has 40 threads; more of them are not faster."""

ROW_BYTES = 512 * 1024
"""Longest body of who need not have the token: a row of 4096 columns, their names of a hundred letters."""

HTTP_LIMITS = HttpLimits(lifetime=None, body_bytes=MAX_DECODED_BYTES, header_bytes=64 * 1024)
"""Live pages last; an operator may send the document of a model."""

NEEDS_TOKEN = "needs 'Authorization: Bearer TOKEN'; the token is in the state directory, file api-token"  # noqa: S105
FOREIGN_NAME = "this coordinator answers to loopback names only; set api_expose if a firewall or proxy guards it"
SIGN_IN = "sign in first: this changes something"

TOKEN = Security(HTTPBearer(auto_error=False, description=NEEDS_TOKEN))
"""Has the API's description say that an address needs the token; `OperatorRules` sees to it, whatever is described."""


class NameRules(Rules):
    """Whoever asks under one of our names is answered.

    Parameters
    ----------
    loopback_only : bool
        Answer to loopback names only. A page of another site can have its own name resolve to 127.0.0.1 and then read
        what is served here (DNS rebinding); the browser still sends that name. Who exposes the API on purpose has names
        that we cannot know.
    """

    def __init__(self, *, loopback_only: bool) -> None:
        self._loopback_only = loopback_only

    def check(self, request: Request) -> None:
        """Raise HTTPException when it may not be answered."""
        if self._loopback_only and not is_loopback_name(request.headers.get("host", "")):
            raise HTTPException(421, FOREIGN_NAME)


class OperatorRules(NameRules):
    """Reading is open; what changes something needs the token, or a session.

    Parameters
    ----------
    is_signed_in : callable
        Whether a request comes from an operator who has signed in.
    loopback_only : bool
        See `NameRules`.
    """

    def __init__(self, token: str, is_signed_in: Callable[[Request], bool], *, loopback_only: bool) -> None:
        super().__init__(loopback_only=loopback_only)
        self._token = token
        self._is_signed_in = is_signed_in
        self._questions = Line(EXPLAIN_AT_ONCE, EXPLAIN_WAIT)
        self._reads = Line(READS_AT_ONCE, EXPLAIN_WAIT)

    def check(self, request: Request) -> None:
        """Raise HTTPException when it may not be answered."""
        super().check(request)
        path, reads = request.url.path, request.method in READING
        if is_foreign(request) and (not reads or path.startswith(PROGRAMS)):
            raise HTTPException(403, "what a page of another site sends is refused")
        if reads or path == "/sign-in" or _asks(path):
            return
        if path.startswith(PROGRAMS):
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind != "Bearer" or not is_token(given, self._token):
                raise HTTPException(401, NEEDS_TOKEN)
        elif not self._is_signed_in(request):
            raise HTTPException(401, SIGN_IN)

    def longest(self, request: Request, limits: HttpLimits) -> int:
        """Return how many bytes of its body are read."""
        path = request.url.path
        if not path.startswith(PROGRAMS):
            return FORM_BYTES
        return ROW_BYTES if request.method in READING or _asks(path) else limits.body_bytes

    def line(self, request: Request) -> Line | None:
        """Return where it waits for its turn; None: it does not."""
        path = request.url.path
        if path.endswith(QUESTIONS):
            return self._questions
        if request.method not in READING or path in URGENT or path.startswith(AT_ONCE):
            return None
        return self._reads


def _asks(path: str) -> bool:
    return path.startswith("/api/models/") and path.endswith(QUESTIONS)
