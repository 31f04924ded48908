"""Faults that nobody expected: a page that says so, and a line in the log by which it is found again."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from urllib.parse import quote

import structlog
from fastapi import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
