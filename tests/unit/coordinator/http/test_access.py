"""Who may use which address: every route states it, and nothing that a request says about itself changes it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp

from coordinator.authority import web
from coordinator.config import CoordinatorConfig
from coordinator.http import access
from coordinator.http.access import HTTP_LIMITS, PAGE, READER, Door, StatedRoute, TokenCheck, open_door, stated_app
from coordinator.http.api import make_app
from coordinator.http.guard import Guard, short_answer
from coordinator.http.waiting import waiting_app
from coordinator.main import build
from coordinator.telemetry import logs
from tests.support.authorities import FleetCa
from tests.support.scratch_journal import ScratchJournal

pytestmark = pytest.mark.usefixtures("structlog_defaults")

TOKEN = "a token of the operators"
QUESTIONS = {"/api/models/{name}/explain", "/api/models/{name}/counterfactual", "/sign-in", "/v1/enrol", "/v1/renew"}
"""Addresses that take a body of anybody: they change nothing, or the body itself proves who sends it."""

Header = tuple[str, str]

EVERYWHERE = (
    ("operators", "POST", "/api/runs"), ("operators", "POST", "/api/models/m/explain"),
    ("operators", "GET", "/metrics"), ("operators", "POST", "/runs/r/cancel"), ("operators", "POST", "/sign-in"),
    ("operators", "GET", "/"),
    ("operators", "GET", "/static/style.css"),
    ("authority", "POST", "/v1/enrol"), ("authority", "GET", "/v1/ca"), ("stand-by", "GET", "/metrics"),
)  # fmt: skip


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that we serve over HTTP: operators' API with the dashboard, the authority, a stand-by."""
    folder = tmp_path_factory.mktemp("state")
    service = build(CoordinatorConfig.load(state_dir=folder), journal=ScratchJournal())
    return {
        "operators": make_app(service, TOKEN),
        "authority": web.make_app(FleetCa(folder / "authority").authority),
        "stand-by": waiting_app("fleet", "glassfleet", lambda: "", b"", loopback_only=True),
    }


def ask(
    app: ASGIApp, method: str, path: str, *headers: Header, body: bytes | None = b"", host: str | None = "localhost"
) -> tuple[int, str]:
    """Ask as a server does that passes on what was sent (None: whoever asks hangs up); returns status and text."""
    sent: list[Any] = []
    lines = [*headers, *([] if host is None else [("host", host)]), ("content-length", str(len(body or b"...")))]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Any:
        return {"type": "http.disconnect"} if body is None else {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    async def served() -> None:
        await app(scope, receive, send)

    asyncio.run(served())
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]).decode()


def stated(app: Any) -> dict[tuple[str, str], StatedRoute]:
    return {(method, route.path): route for route in app.routes for method in route.methods}


@pytest.mark.parametrize(("name", "least"), [("operators", 50), ("authority", 4)])
def test_whoever_sends_something_to_any_address_needs_what_the_route_states(
    apps: dict[str, Any], name: str, least: int
) -> None:
    routes = stated(apps[name])
    assert len(routes) >= least
    assert {type(route) for route in routes.values()} == {StatedRoute}
    writes = {(method, path) for method, path in routes if method != "GET"}
    open_ones = {path for method, path in writes if routes[method, path].access.who == "anybody"}
    assert open_ones == QUESTIONS & {path for _, path in writes}
    assert [path for path, route in routes.items() if path[0] == "GET" and route.access.who != "anybody"] == []
    for method, path in writes:
        address = re.sub(r"{(\w+)(:int)?}", lambda match: "1" if match[1] in {"version", "other"} else "x", path)
        status, text = ask(apps[name], method, address, ("content-type", "application/json"), body=b"{}")
        wanted = {"anybody": "", "token": "Bearer TOKEN", "session": "sign in first"}[routes[method, path].access.who]
        assert (status == 401) == (wanted != "" or path == "/sign-in"), (path, status)
        assert wanted in text, path


@pytest.mark.parametrize(
    "add",
    [
        lambda app: app.get("/x")(lambda: None),
        lambda app: app.get("/x", dependencies=[PAGE, READER])(lambda: None),
        lambda app: app.add_api_route("/x", lambda: None, methods=["POST"]),
        lambda app: app.add_route("/x", lambda _request: None),
        lambda app: app.mount("/x", FastAPI()),
        lambda app: app.add_api_websocket_route("/x", lambda _socket: None),
        lambda app: app.include_router(APIRouter(routes=[APIRoute("/x", lambda: None)])),
    ],
)
def test_route_that_does_not_state_who_may_use_it_does_not_exist(add: Callable[[FastAPI], object]) -> None:
    app = stated_app("test")
    with pytest.raises(TypeError, match="state who may use it"):
        open_door(app, Door(HTTP_LIMITS, {})) if add(app) is not NotImplemented else None


HOSTS = (
    "[", "]", "[]", "[::1", "::1", "[::g]", "[127.0.0.1]", "[::1%25eth0]", "[::1%eth0]", "[v1.fe80::a+en1]", "[::1]x",
    "localhost/api/models/x/forecast?", "localhost/static/x#", "localhost?", "localhost#", "localhost\\x", "/", "?",
    "user@localhost", "localhost@evil.example", "localhost:", "localhost:x", "localhost:-1", "localhost:99999",
    "localhost:80:80", "localhost:" + "9" * 5000, ":80", "localhost, evil.example", "local host", " ", "l\xf6calhost",
    "localhost\t", "localhost;", "a" * 300, "%6cocalhost", "localhost%00", "\xff\xfe", "\x7f", "*", "http://localhost",
)  # fmt: skip
ORIGINS = (
    "http://[", "http://[::1", "http://", "//localhost", "localhost", "http:localhost", "http://localhost/", "[", "",
    "http://user@localhost", "http://localhost#", "http://local host", "://localhost", "1://x", "http://\xe2\x84\x80.com",
    "http://localhost:99999", "null null", "http://localhost, http://evil.example", "x" * 5000, "\xff",
)  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        *([("host", host)] for host in HOSTS),
        *([("host", "localhost"), ("origin", origin)] for origin in ORIGINS),
        [("host", "localhost"), ("host", "localhost")],
        [("host", "localhost"), ("host", "[")],
        [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")],
    ],
    ids=lambda headers: repr(headers[-1])[:50],
)
def test_host_and_origin_that_are_no_names_are_refused_in_few_words_and_leave_no_line(
    apps: dict[str, Any], capsys: pytest.CaptureFixture[str], headers: list[Header]
) -> None:
    logs.configure("info", "json")
    for name, method, path in EVERYWHERE:
        status, text = ask(apps[name], method, path, *headers, host=None, body=b"{}")
        assert (status, "must be" in text, len(text) < 100) == (400, True, True), path
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "header",
    [
        ("authorization", "Bearer \xc3\xa9\xff"), ("cookie", 'glassfleet_session="\\'), ("cookie", "; ; ;=;"),
        ("cookie", "glassfleet_session=\xff"), ("content-length", "-1"), ("content-length", "9" * 5000),
        ("content-length", "\xb2"), ("content-type", ";;;"), ("content-type", "multipart/form-data"),
        ("content-type", "application/json; charset=\xff"), ("transfer-encoding", "x"), ("sec-fetch-site", "\xff"),
        ("last-event-id", "9" * 5000), ("if-none-match", '"a",' * 5000), ("range", "bytes=-"), ("accept", "\xff" * 99),
        ("x-forwarded-host", "["), ("forwarded", "host=["), ("x-forwarded-prefix", "//["), ("upgrade", "websocket"),
        ("x-http-method-override", "POST"), ("x-original-url", "/api/runs"), ("expect", "100-continue"),
    ],
    ids=lambda header: f"{header[0]} {header[1]!r}"[:40],
)  # fmt: skip
def test_odd_header_is_no_fault_of_ours_and_opens_nothing(
    apps: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, header: Header
) -> None:
    logs.configure("info", "json")
    monkeypatch.setattr(access, "DELAY", 0.0)
    for name, method, path in EVERYWHERE:
        status, _ = ask(apps[name], method, path, header, body=b"{}" if method == "POST" else b"")
        assert 400 * (method == "POST") <= status < 500, path
    assert "page-failed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [
        "//api/runs", "/api//runs", "/api/runs/", "/api/runs//", "/api/./runs", "/api/x/../runs", "/api/runs?x", "",
        "*", "/api/runs;x", "/api/runs\x00", "/api/runs\t", "/API/runs", "http://localhost/api/runs", "api/runs",
        "/\\api/runs", "/api/runs/x/cancel/forecast", "/api/models/x/promote/forecast", "/static/../api/runs",
        "/static//api/runs", "/api/models/x?/forecast/promote", "/sign-in/../api/runs", "/events/../api/runs",
        "/api/runs\\", "/api/runs#x",
    ],
)  # fmt: skip
def test_no_way_of_writing_an_address_reaches_another_one(apps: dict[str, Any], path: str) -> None:
    for method in ("POST", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "FOO", "post"):
        assert ask(apps["operators"], method, path, body=b"{}")[0] in {404, 405}, method


@pytest.mark.parametrize(("kind", "is_let_in"), [("bearer", True), ("BEARER", True), ("Basic", False), ("", False)])
def test_scheme_of_the_token_is_written_in_any_case(apps: dict[str, Any], kind: str, *, is_let_in: bool) -> None:
    status, _ = ask(apps["operators"], "POST", "/api/runs", ("authorization", f"{kind} {TOKEN}"), body=b"[]")
    assert status == (422 if is_let_in else 401), "who is let in hears what is wrong with the body"


@pytest.mark.parametrize("path", ["/api/runs/r1/cancel", "/runs/r1/cancel", "/sign-out", "/api/rollouts/m/stop"])
def test_what_changes_something_takes_no_other_method(apps: dict[str, Any], path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        assert ask(apps["operators"], method, path, ("authorization", f"Bearer {TOKEN}"))[0] in {404, 405}, method


@pytest.mark.parametrize(
    "body",
    [
        rb'{"token":"\ud800","request":"x"}', rb'{"token":"a","request":"x","\ud800":1}', b"\xff", b"[" * 6000,
        b'{"token":"\xed\xa0\x80","request":"x"}', '{"token":"\ud800"}'.encode("utf-16", "surrogatepass"), b'{"token":',
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_malformed_body_at_the_authority_is_refused_in_few_words(
    apps: dict[str, Any], capsys: pytest.CaptureFixture[str], body: bytes, kind: str
) -> None:
    logs.configure("info", "json")
    status, text = ask(apps["authority"], "POST", "/v1/enrol", ("content-type", kind), body=body)
    assert status == 400 or (kind != "application/json" and status == 422), text
    assert isinstance(json.loads(text)["detail"], str)
    assert len(text) < 300
    assert capsys.readouterr().err == ""


def test_who_hangs_up_in_a_body_leaves_no_line(apps: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    for name, method, path in EVERYWHERE:
        ask(apps[name], method, path, ("authorization", f"Bearer {TOKEN}"), body=None)
    assert capsys.readouterr().err == ""


def test_fault_is_told_once_a_minute_and_found_again_by_what_each_answer_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", "json")
    app = stated_app("test")

    @app.get("/{name}", dependencies=[PAGE])
    def _broken(name: str) -> None:
        raise ValueError(name)

    open_door(app, Door(HTTP_LIMITS, {}))
    app.add_middleware(Guard, limits=HTTP_LIMITS, error_response=short_answer)
    texts = {ask(app, "GET", f"/{number}")[1] for number in range(50)}
    (line,) = capsys.readouterr().err.splitlines()
    assert len(texts) == 1
    assert json.loads(line)["fault"] in texts.pop()


def test_guessed_tokens_wait_and_the_right_one_of_the_same_address_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", "json")
    monkeypatch.setattr(access, "DELAY", 3600.0)
    check = TokenCheck(TOKEN)
    request = Request({"type": "http", "path": "/api/runs", "client": ("127.0.0.1", 1)})

    async def guess() -> tuple[list[str], bool]:
        tasks = [asyncio.create_task(check.is_right(f"wrong {number}", request)) for number in range(20)]
        await asyncio.sleep(0)
        is_open = await check.is_right(TOKEN, request)
        kinds = ["waits" if not one.done() else "refused" if one.exception() else "answered" for one in tasks]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return kinds, is_open

    kinds, is_open = asyncio.run(guess())
    assert is_open
    refused = 20 - access.FREE - access.WAITING
    assert kinds == ["answered"] * access.FREE + ["waits"] * access.WAITING + ["refused"] * refused
    assert capsys.readouterr().err.count("wrong-token") == 1
