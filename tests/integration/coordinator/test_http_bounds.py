"""What a peer may cost the coordinator's HTTP server: over real sockets, before anybody knows who it is."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import resource
import select
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from fastapi import FastAPI

from coordinator.http import api
from coordinator.http.access import HTTP_LIMITS, NEEDS_TOKEN, ROW_BYTES
from coordinator.http.dashboard import explain_api
from coordinator.http.server import HttpLimits, HttpServer
from glassfleet.explain import counterfactual
from lab.processes import PROGRAM, Process
from tests.support import sample_models
from tests.support.coordinator_http import is_closed, publish, served
from tests.support.processes import Processes, eventually

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
EXPLAIN = "/api/models/m/explain"
SHORT = {"header": dataclasses.replace(HTTP_LIMITS, header=0.3), "body": dataclasses.replace(HTTP_LIMITS, body=0.3)}
MIB = 1024 * 1024


def dial(url: httpx.URL | str) -> socket.socket:
    place = urlsplit(str(url))
    peer = socket.create_connection((place.hostname or "", place.port or 0), 10)
    peer.settimeout(10)
    return peer


def head(path: str, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def status(peer: socket.socket) -> int:
    """Return the status of the answer; 0 when the connection ended without one."""
    try:
        return int((peer.recv(200) or b"- 0").split(b" ", 2)[1])
    except ConnectionError:
        return 0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A coordinator's HTTP side, asked with the token."""
    folder = tmp_path_factory.mktemp("state")
    with served(folder) as (_, there):
        there.headers["Authorization"] = f"Bearer {api.read_or_make_token(folder)}"
        yield there


@pytest.mark.parametrize(
    ("path", "authorized", "length", "expected"),
    [
        ("/api/runs", False, 10, 401),
        ("/api/runs", False, 300 * MIB, 401),
        ("/api/models/m/promote", False, 10, 401),
        ("/api/nothing", False, 300 * MIB, 404),
        ("/runs/r1/cancel", False, 10, 401),
        ("/sign-out", False, 10, 401),
        ("/new-run", False, 10, 401),
        ("/api/runs", True, HTTP_LIMITS.body_bytes + 1, 413),
        (EXPLAIN, False, ROW_BYTES + 1, 413),
        (EXPLAIN, True, 10**18, 413),
        ("/sign-in", False, MIB, 413),
    ],
)
def test_server_refuses_by_the_header_when_the_body_has_not_come(
    client: httpx.Client, path: str, authorized: bool, length: int, expected: int
) -> None:
    with dial(client.base_url) as peer:
        more = [f"Authorization: {client.headers['Authorization']}"] if authorized else []
        peer.sendall(head(path, f"Content-Length: {length}", *more))
        assert status(peer) == expected


@pytest.mark.parametrize("path", [EXPLAIN, "/api/runs", "/sign-in"])
def test_server_cuts_a_body_without_length_that_goes_on(client: httpx.Client, path: str) -> None:
    with dial(client.base_url) as peer:
        peer.sendall(head(path, "Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            peer.sendall(b"4000000\r\n" + b"[" * 64 * MIB)


def test_sender_reads_why_a_body_was_refused_that_is_a_little_too_long(client: httpx.Client) -> None:
    answer = client.post(EXPLAIN, content=b"x" * (ROW_BYTES + 1000))
    assert answer.status_code == 413
    assert answer.json() == {"detail": f"a body of more than {ROW_BYTES} bytes is not read"}
    assert client.get("/api/health").status_code == 200  # on the same connection


def test_no_answer_waits_until_its_reader_has_acknowledged_the_head() -> None:
    server = HttpServer(FastAPI(), HttpLimits(), "127.0.0.1", 0)
    server.begin("no-delay")
    with dial(f"http://127.0.0.1:{server.port}"):
        eventually(lambda: server.server_state.connections)
        (made,) = server.server_state.connections
        assert made.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.end()


def test_server_is_ended_without_waiting_for_its_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", lambda tasks, timeout: wait(tasks, timeout=60 * timeout))
    server = HttpServer(FastAPI(), HttpLimits(), "127.0.0.1", 0)
    server.begin("ended")
    with dial(f"http://127.0.0.1:{server.port}"):
        eventually(lambda: server.server_state.connections, "it takes connections, and waits")
    server.end()
    assert "ended" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("bound", "sent"),
    [
        ("header", b""),
        ("header", HALF),
        ("body", head(EXPLAIN, "Content-Length: 100") + b"{"),
        ("body", head(EXPLAIN, "Transfer-Encoding: chunked") + b"5\r\n"),
    ],
)
def test_server_sends_a_slow_peer_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, sent: bytes
) -> None:
    # Only the bound in question is short.
    monkeypatch.setattr(api, "HTTP_LIMITS", SHORT[bound])
    with served(tmp_path) as (_, client), dial(client.base_url) as peer:
        with contextlib.suppress(OSError):
            peer.sendall(sent)
        assert is_closed(peer)
        assert client.get("/api/health").status_code == 200


def test_server_sends_a_peer_away_that_asks_and_asks_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HTTP_LIMITS", dataclasses.replace(HTTP_LIMITS, unread=0.3))
    with served(tmp_path) as (_, client), dial(client.base_url) as peer:
        asked, answers = 2000, b""
        with contextlib.suppress(OSError):
            peer.sendall(b"GET /static/dashboard.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * asked)
        select.select([peer], [], [], 30)  # it is answered; the server's end of the connection is in this process, too
        port, ours = peer.getsockname()[1], psutil.Process()
        eventually(lambda: not [each for each in ours.net_connections("tcp") if each.raddr and each.raddr.port == port])
        with contextlib.suppress(ConnectionError):
            while part := peer.recv(1 << 20):
                answers += part
        assert answers.count(b"HTTP/1.1 200") < asked


def test_oldest_request_that_is_not_whole_gives_way_when_all_places_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HTTP_LIMITS", dataclasses.replace(HTTP_LIMITS, connections=10))
    with (
        served(tmp_path) as (_, client),
        contextlib.ExitStack() as stack,
        client.stream("GET", "/events/fleet") as live,  # older than all of them, and whole
    ):
        lines = live.iter_lines()
        assert next(lines).startswith("retry")
        held = [stack.enter_context(dial(client.base_url)) for _ in range(20)]
        for peer in held:
            with contextlib.suppress(OSError):
                peer.sendall(HALF)
        assert client.get("/api/health").status_code == 200
        assert is_closed(held[0])
        assert "event: page" in (next(lines), next(lines), next(lines))


def started(processes: Processes, descriptors: int) -> tuple[Process, str]:
    """Start a coordinator that looks for its broker in vain; and its address."""
    limited = ("/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', *PROGRAM)
    processes.environment |= {"GLASSFLEET_BROKER": "mqtt://127.0.0.1:1", "GLASSFLEET_BROKER_WAIT": "0"}
    running = processes.start("coordinator", program=limited)
    return running, eventually(lambda: processes.note("api-url"))


@pytest.mark.parametrize("knew", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_coordinator_answers_and_hardly_logs_while_peers_take_all_descriptors(processes: Processes, knew: bool) -> None:
    running, url = started(processes, 64 if knew else 512)
    with contextlib.ExitStack() as stack:
        if not knew:
            # Its own connection to the broker takes some; a coordinator that has none left while it starts ends.
            eventually(lambda: "broker-unreachable" in running.logged())
            resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (64, 64))
        for _ in range(90):
            peer = stack.enter_context(dial(url))
            with contextlib.suppress(OSError):
                peer.sendall(HALF)
        for _ in range(3):
            assert httpx.get(url + "/api/health", timeout=20, trust_env=False).status_code == 200
        log = running.logged()
        assert log.count("cannot-take-connections") == (0 if knew else 1)
        assert len(log) < 20_000


@pytest.mark.parametrize(
    "foreign", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", EXPLAIN), ("POST", "/api/runs"), ("GET", "/api/agents"), ("GET", "/events/fleet"), ("POST", "/sign-in")],
)
def test_what_a_page_of_another_site_sends_is_refused(
    client: httpx.Client, method: str, path: str, foreign: dict[str, str]
) -> None:
    assert client.request(method, path, headers=foreign, json={}).status_code == 403


def test_link_of_another_site_to_a_page_is_followed_and_our_own_pages_may_ask(client: httpx.Client) -> None:
    assert client.get("/runs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    ours = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/agents", headers=ours).status_code == 200


def test_health_metrics_sign_in_and_actions_go_on_while_many_wait_for_counterfactuals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, begun = threading.Event(), threading.Semaphore(0)
    answers: list[object] = []
    one_at_a_time = threading.Lock()

    def long(*given: Any, **more: Any) -> object:
        begun.release()
        result.wait(60)
        with one_at_a_time:  # all ask the same
            answers[:] = answers or [counterfactual(*given, **more)]
        return answers[0]

    monkeypatch.setattr(explain_api, "counterfactual", long)
    with served(tmp_path) as (service, client):
        token = api.read_or_make_token(tmp_path)
        publish(service, sample_models.model("frt"), "m", ["a"])
        row = dict.fromkeys(sample_models.model("frt").domain.names, 0.4)
        statuses: list[int] = []

        def ask() -> None:
            url = client.base_url.join("/api/models/m/counterfactual")
            answer = httpx.post(url, json={"row": row}, timeout=60, trust_env=False)
            statuses.append(answer.status_code)

        crowd = [threading.Thread(target=ask) for _ in range(60)]  # the web framework has 40 threads
        for one in crowd:
            one.start()
        assert begun.acquire(timeout=20)
        try:
            monkeypatch.setattr(service, "call", lambda _: None)  # nobody works here
            headers = {"Authorization": f"Bearer {token}"}
            assert client.get("/api/health").status_code == 200
            assert client.get("/api/metrics").status_code == 200
            assert client.get("/metrics").status_code == 200
            assert client.post("/sign-in", data={"token": token}).status_code == 303
            assert client.post("/api/runs/r1/cancel", headers=headers).status_code == 200
            assert client.get("/runs").status_code == 200
        finally:
            result.set()
            for one in crowd:
                one.join()
        assert statuses == [200] * 60


def test_empty_token_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "read_or_make_token", lambda _: "")
    with served(tmp_path) as (_, client):
        assert client.post("/sign-in", data={"token": ""}).status_code == 401
        connection = HTTPConnection(client.base_url.host, client.base_url.port or 0)
        connection.request("POST", "/api/runs/r1/cancel", headers={"Authorization": "Bearer "})
        answer = connection.getresponse()
        assert (answer.status, NEEDS_TOKEN.encode() in answer.read()) == (401, True)
        connection.close()
