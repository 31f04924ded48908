"""The operators' HTTP API and dashboard: loopback unless told otherwise; actions need the token.

See docs/reference/http-api.md and docs/reference/dashboard.md.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException as HttpFault
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.duty import look
from coordinator.fleet.differences import with_lines, with_scores
from coordinator.http.access import (
    HTTP_LIMITS,
    OPERATOR,
    READER,
    READER_AT_ONCE,
    Door,
    TokenCheck,
    open_door,
    stated_app,
    with_token,
)
from coordinator.http.dashboard import Dashboard, Hub, scores
from coordinator.http.dashboard.actions import add_actions
from coordinator.http.dashboard.explain_api import add_explanations
from coordinator.http.dashboard.model_actions import add_model_actions
from coordinator.http.dashboard.model_pages import add_model_pages
from coordinator.http.dashboard.reports import add_reports
from coordinator.http.dashboard.week import week
from coordinator.http.errors import Fault, Heads, ShownJson, in_words
from coordinator.http.guard import LAST_PORT, Guard
from coordinator.http.server import HttpServer
from coordinator.http.steering_api import add_rollouts, add_schedules, refuse_booleans_of_run
from coordinator.process.intake import Intake
from coordinator.specification.run import RunSpec, with_participation
from glassfleet.explain.text import cut
from schemas.errors import (
    BrokerError,
    DamagedError,
    DataError,
    DocumentError,
    GlassfleetError,
    NotFoundError,
    StorageError,
    UsageError,
)
from schemas.private_files import kept_secret, replace_private
from schemas.text import show_hidden

if TYPE_CHECKING:
    from coordinator.process.service import Service

_log = structlog.get_logger("coordinator")

STOP_WAIT = 1
"""Seconds that open requests have to end when the coordinator does."""

TOKEN_FILE = "api-token"  # noqa: S105  the name of the file, not the token
URL_FILE = "api-url"
PORT_FILE = "api-port"
"""The free port that was found last: started again, the coordinator takes it again, and who knew it finds it there."""
_STATUS: dict[type[GlassfleetError], int] = {
    NotFoundError: 404,
    UsageError: 422,
    DataError: 422,
    DocumentError: 409,
    DamagedError: 409,
    StorageError: 507,
    BrokerError: 503,
}


def read_or_make_token(state_dir: Path) -> str:
    """Return the API token of a state directory, made at the first call; raises StorageError, see `kept_secret`."""
    return kept_secret(state_dir / TOKEN_FILE, partial(secrets.token_urlsafe, 32))


def make_app(  # noqa: C901  one short function per address
    service: Service, token: str, hub: Hub | None = None
) -> FastAPI:
    """Return the application over a running service; `hub` holds the dashboard's live streams."""
    app = stated_app(
        "Glassfleet coordinator",
        responses={
            400: {"model": Fault, "description": "It is no text in UTF-8, or no JSON."},
            422: {"model": Fault, "description": "It cannot be meant as written; the text names the field."},
        },
    )
    coordinator = service.coordinator
    registry = coordinator.registry
    dashboard = Dashboard(service, TokenCheck(token), hub)
    add_explanations(app, dashboard.library)  # before the addresses of versions, which look alike

    _add_fault_answers(app, dashboard)

    @app.get("/api/openapi.json", dependencies=[READER], include_in_schema=False)
    def _description() -> Response:
        return ShownJson(app.openapi())

    @app.get("/api/health", dependencies=[READER_AT_ONCE])
    def _health() -> dict[str, Any]:
        lack = coordinator.transport.lack() if isinstance(coordinator.transport, Intake) else ""
        status = lack or "ok" if service.is_connected else "no-broker"
        return {
            "status": status,
            "connected": status == "ok",
            "fleet": coordinator.topics.fleet,
            "software": coordinator.presence.software,
            "incarnation": coordinator.presence.incarnation,
        }

    @app.get("/api/ready", dependencies=[READER_AT_ONCE])
    def _ready() -> dict[str, str]:
        if not service.is_connected:
            raise BrokerError("the coordinator has no broker")
        return {"status": "ok"}

    # Long answers are made into text here, on a thread of their own, and not where all requests are served.
    @app.get("/api/agents", dependencies=[READER], response_model=list[dict[str, Any]])
    def _agents() -> Response:
        return ShownJson(look(coordinator, dashboard.recent).document())

    @app.get("/api/agents/{agent}/forecasts", dependencies=[READER])
    def _heads(agent: str) -> list[dict[str, Any]]:
        return coordinator.witness.heads(agent)

    @app.get("/api/week", dependencies=[READER], response_model=dict[str, Any])
    def _week() -> Response:
        return ShownJson(week(coordinator, dashboard.library, dashboard.recent, time.time()))

    @app.get("/api/runs", dependencies=[READER], response_model=list[dict[str, Any]])
    def _runs() -> Response:
        shown = ("run", "scheme", "participation", "state", "outcome", "reason", "phase", "started", "ended", "model")
        runs = coordinator.runs.overviews()
        return ShownJson([{name: run[name] for name in shown} | {"rounds_closed": run["rounds"]} for run in runs])

    @app.get("/api/runs/{run}", dependencies=[READER], response_model=dict[str, Any])
    def _run(run: str) -> Response:
        return ShownJson(with_lines(with_scores(coordinator.runs.document(run), coordinator.fleet)))

    @app.post("/api/runs", dependencies=[OPERATOR], status_code=201)
    def _start(spec: dict[str, Any]) -> dict[str, str]:
        refuse_booleans_of_run(spec)
        wanted = RunSpec.from_document(with_participation(spec, coordinator.engine.lookup))
        run = service.call(lambda core: core.start_run(wanted))
        known = coordinator.runs.document(run)
        return {name: known[name] for name in ("run", "warning") if name in known}

    @app.post("/api/runs/{run}/cancel", dependencies=[OPERATOR])
    def _cancel(run: str) -> dict[str, str]:
        service.call(lambda core: core.cancel(run))
        return {"run": run}

    add_rollouts(app, service)
    add_schedules(app, service)

    @app.get("/api/models", dependencies=[READER])
    def _models() -> list[dict[str, Any]]:
        return [_row(registry.heads(name)[-1]) for name in registry.names()]

    @app.get("/api/models/{name}", dependencies=[READER])
    def _versions(name: str) -> list[dict[str, Any]]:
        return [_row(model) for model in registry.heads(name)]

    @app.get("/api/models/{name}/{version}", dependencies=[READER])
    def _record(name: str, version: int) -> Response:
        record = registry.get(name, version).record.decode()
        return Response(show_hidden(record), media_type="application/json")

    @app.get(
        "/api/models/{name}/{version}/evaluations", dependencies=[READER], response_model=dict[str, dict[str, Any]]
    )
    def _evaluations(name: str, version: int) -> Response:
        result = coordinator.fleet.evaluations(name, version)
        return ShownJson(scores.with_central(coordinator, dashboard.library, result))

    @app.get("/api/models/{name}/{version}/scores", dependencies=[READER], response_model=dict[str, Any])
    def _scores(name: str, version: int) -> Response:
        return ShownJson(scores.as_document(coordinator, dashboard.library.get(name, version)))

    @app.get("/api/metrics", dependencies=[READER_AT_ONCE])
    def _metrics() -> dict[str, Any]:
        return service.metrics()

    @app.get("/metrics", dependencies=[READER_AT_ONCE])
    def _prometheus() -> Response:
        return Response(service.observed.page(), media_type=CONTENT_TYPE_LATEST)

    dashboard.add_pages(app)
    for add in (add_model_pages, add_reports, add_model_actions, add_actions):
        add(app, dashboard)
    admits = {"token": with_token(dashboard.tokens), "session": dashboard.sessions.admit}
    open_door(app, Door(HTTP_LIMITS, admits))
    app.add_middleware(Heads)
    loopback_only = not service.config.http.api_expose
    app.add_middleware(Guard, limits=HTTP_LIMITS, loopback_only=loopback_only, error_response=dashboard.error_response)
    return app


def _add_fault_answers(app: FastAPI, dashboard: Dashboard) -> None:
    @app.exception_handler(GlassfleetError)
    async def _known(request: Request, fault: GlassfleetError) -> Response:
        status = next((code for kind, code in _STATUS.items() if isinstance(fault, kind)), 500)
        return dashboard.error_response(request, status, str(fault))

    @app.exception_handler(HttpFault)
    async def _http(request: Request, fault: HttpFault) -> Response:
        detail = str(fault.detail)
        allowed = (fault.headers or {}).get("Allow", "")
        if fault.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method} is not for {request.scope['path']}"
            detail += f", which takes {allowed}" if allowed else ""
        elif fault.status_code == HTTPStatus.NOT_FOUND and detail == "Not Found":
            detail = f"no such address: {cut(request.scope['path'], 200)}; docs/reference/http-api.md lists them"
        answer = dashboard.error_response(request, fault.status_code, detail)
        answer.headers.update(fault.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, fault: RequestValidationError) -> Response:
        return dashboard.error_response(request, *in_words(request, fault))

    @app.exception_handler(TimeoutError)
    async def _busy(request: Request, _fault: TimeoutError) -> Response:
        return dashboard.error_response(request, 503, "the coordinator is busy; look again before repeating this")


def _row(model: Any) -> dict[str, Any]:
    row = {"name": model.name, "version": model.version, "digest": model.digest, "run": model.run}
    return row | {"damaged": True} if model.is_damaged else row


class _Door:
    """Answers with the application that it has now."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self.app(scope, receive, send)


class ApiServer:
    """The application on its address, in a thread of its own; while the coordinator waits, what a stand-by says.

    Parameters
    ----------
    state_dir : Path
        Exists.
    host, port
        Where to listen; port 0: any free one.
    """

    def __init__(self, state_dir: Path, host: str, port: int) -> None:
        self._state_dir = state_dir
        self._host, self._port = host, port
        self._token = read_or_make_token(state_dir)
        self._hub = Hub()
        self._door = _Door()
        self._server: HttpServer | None = None
        self._opening: threading.Thread | None = None
        self._fault: BaseException | None = None

    def stand_by(self, app: ASGIApp) -> None:
        """Bind, and serve what a stand-by says.

        The URL is noted in the state directory only if nobody answers at the one that is noted there: with a state
        directory for both, that is the coordinator that leads.

        Raises
        ------
        UsageError
            The port is taken, or the address is not one of this machine's.
        """
        self._door.app = app
        self._bound().begin("glassfleet-api")
        if not _is_served(self._state_dir / URL_FILE):
            self._note()

    def start(self, service: Service) -> str:
        """Bind, and serve soon; returns the URL, which is also written to ``{state_dir}/api-url`` then.

        The application takes a second to be put together, for which no run has to wait: who connects before is answered
        after it, or by a stand-by's answer.

        Raises
        ------
        UsageError
            As `stand_by`.
        """
        server = self._bound()

        def open_door() -> None:
            try:
                self._door.app = make_app(service, self._token, self._hub)
                if not server.started:
                    server.begin("glassfleet-api")
                self._note()
                _log.info("api", url=self._url())
            except BaseException as fault:  # noqa: BLE001 - told by `stop`, on the thread that ends the process
                self._fault = fault
                service.stop()

        self._opening = threading.Thread(target=open_door, name="glassfleet-api-opening")
        self._opening.start()
        return self._url()

    def stop(self) -> None:
        """End the server; the URL file goes with it, unless it names another's. Idempotent.

        Raises
        ------
        StorageError
            The URL could not be written.
        """
        self._hub.close()
        if self._opening is not None:
            self._opening.join()
        if self._server is not None:
            self._server.end()
            note = self._state_dir / URL_FILE
            if _read(note) == self._url():
                note.unlink(missing_ok=True)
        if self._fault is not None:
            raise self._fault

    def _bound(self) -> HttpServer:
        if self._server is None:
            self._server = HttpServer(
                self._door, HTTP_LIMITS, self._host, self._port,
                former=_read_port(self._state_dir / PORT_FILE), stop_wait=STOP_WAIT,
            )  # fmt: skip
        return self._server

    def _url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._bound().port}"

    def _note(self) -> None:
        replace_private(self._state_dir / URL_FILE, f"{self._url()}\n".encode("ascii"))
        if not self._port:
            replace_private(self._state_dir / PORT_FILE, f"{self._bound().port}\n".encode("ascii"))


def _read(note: Path) -> str:
    """Return what a file says; empty when there is none."""
    try:
        return note.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _is_served(note: Path) -> bool:
    """Whether somebody listens at the URL that a file names."""
    try:
        parts = urlsplit(_read(note))
        with socket.create_connection((parts.hostname or "", parts.port or 0), 1.0):
            return bool(parts.port)
    except (OSError, ValueError):
        return False


def _read_port(note: Path) -> int:
    """Return the port that a file names; 0 when there is none."""
    text = _read(note)
    port = int(text) if text.isdecimal() else 0
    return port if port <= LAST_PORT else 0
