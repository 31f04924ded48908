"""What a coordinator on stand-by says over HTTP: that it lives, and that another one leads."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.http.access import HTTP_LIMITS
from coordinator.http.guard import Guard, short_answer

STATUS = "stand-by"


def waiting_app(
    fleet: str, software: str, leader: Callable[[], str], metrics: bytes, *, loopback_only: bool
) -> ASGIApp:
    """Return the application of a stand-by.

    Parameters
    ----------
    fleet, software : str
        For ``/api/health``.
    leader : callable
        Returns the host on which the coordinator is that leads; empty: it is not known.
    metrics : bytes
        What is scraped.
    loopback_only : bool
        Answer to loopback names only.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _answer(Request(scope, receive))(scope, receive, send)

    def _answer(request: Request) -> Response:
        match request.scope["path"]:
            case "/api/health":
                health = {"status": STATUS, "connected": False, "fleet": fleet, "software": software, "incarnation": ""}
                return JSONResponse(health)
            case "/metrics":
                return Response(metrics, media_type=CONTENT_TYPE_LATEST)
        where = f" on {leader()}" if leader() else ""
        return short_answer(
            request, 503, f"this coordinator is on stand-by: ask the one{where} that leads; nothing was done here"
        )

    # Nothing is done here, so nobody has to show a token.
    return Guard(app, limits=HTTP_LIMITS, loopback_only=loopback_only, error_response=short_answer)
