"""Limits are kept where they are named: settings, options and constants of the code."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from broker.servers.launch import launch
from broker.tls import client_context, tls_of
from console.main import run
from coordinator.authority.web import AuthorityServer
from coordinator.http.server import HttpLimits
from edge_agent.enrol import EnrolmentError, Patience, enrol
from edge_agent.sources.window import WindowStore
from schemas.errors import StorageError
from tests.support.cloud import CoordinatorProcess
from tests.support.coordinator_http import served
from tests.support.fleet import FleetCa


def test_dashboard_keeps_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.http.dashboard.live.WATCHERS", 2)
    monkeypatch.setattr("coordinator.http.dashboard.live.RECONNECT", 0.5)
    monkeypatch.setattr("coordinator.http.access.FORM_BYTES", 4096)
    monkeypatch.setattr("coordinator.http.dashboard.explain_api.SUMMARY_RULES", 3)
    with served(tmp_path, dashboard_sign_in=77) as (_, client):
        url = client.base_url
        with (
            httpx.Client(base_url=url, trust_env=False, timeout=20) as crowd,
            crowd.stream("GET", "/events/fleet") as first,
            crowd.stream("GET", "/events/fleet") as second,
        ):
            assert (first.status_code, second.status_code) == (200, 200)
            lines = first.iter_lines()  # held on to: a stream ends with its iterator
            assert next(lines) == "retry: 500"
            with client.stream("GET", "/events/fleet") as third:
                assert third.status_code == 503
        refused = client.post("/sign-in", data={"token": "x" * 5000})
        assert refused.status_code == 413
        assert "more than 4096 bytes" in refused.text
        token = (tmp_path / "api-token").read_text(encoding="ascii").strip()
        cookie = client.post("/sign-in", data={"token": token}).headers["set-cookie"]
        assert "Max-Age=77" in cookie
        assert "top must be from 0 to 3" in client.get("/api/models/none/summary?top=4").text


def test_vehicle_gives_up_on_an_authority_at_the_bounds_that_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = FleetCa(tmp_path / "office")
    server = AuthorityServer(ca.authority, ca.identity("coordinator", "cloud", hosts=("localhost",)))
    url, token = f"https://localhost:{server.port}", ca.authority.token("v1")
    who = ["--id", "v1", "--identity", str(tmp_path / "id"), "--token", str(token), "--authority", url]
    try:
        # Not started yet: the kernel takes the connection, and nobody answers.
        assert run(["agent", "enrol", *who, "--timeout", "0.2"]) == 4
        assert "timed out" in capsys.readouterr().err
        server.start()
        with pytest.raises(EnrolmentError, match="--max-answer-bytes"):
            enrol(tmp_path / "id", token, url, patience=Patience(answer_bytes=100))
        assert run(["agent", "enrol", *who, "--max-answer-bytes", "16384"]) == 0
    finally:
        server.stop()


def test_authority_refuses_longer_requests_than_it_was_told_to_read(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path / "office")
    identity = ca.identity("coordinator", "cloud", hosts=("localhost",))
    server = AuthorityServer(ca.authority, identity, limits=HttpLimits(body_bytes=100))
    server.start()
    try:
        with httpx.Client(verify=client_context(tls_of(identity)), trust_env=False) as client:
            answer = client.post(f"https://localhost:{server.port}/v1/enrol", content=b"x" * 101)
        assert (answer.status_code, answer.json()["detail"]) == (413, "a body of more than 100 bytes is not read")
    finally:
        server.stop()


def test_window_waits_for_another_writer_as_long_as_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "w.window"
    WindowStore(path).append([{"a": 1.0, "y": 2.0}])
    patient, hasty = WindowStore(path, wait=30), WindowStore(path, wait=0)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        hasty.append([{"a": 1.0, "y": 2.0}])
    threading.Timer(0.3, other.rollback).start()
    assert patient.append([{"a": 1.0, "y": 2.0}]) == []
    assert patient.span()[0] == 2


def test_processes_name_former_settings_and_go_on(tmp_path: Path) -> None:
    file = tmp_path / "glassfleet.toml"
    file.write_text("reconnect_first = 1.0\n[coordinator]\nrival_wait = 9\n", encoding="utf-8")
    broker = launch(state_dir=tmp_path / "broker")
    try:
        flags = ("--dashboard-watchers", "3", "--config", str(file))
        cloud = CoordinatorProcess(broker.url, tmp_path / "cloud", *flags, environment={"GLASSFLEET_CALL_WAIT": "3"})
        cloud.api().close()
        code, told = cloud.end()
    finally:
        broker.stop()
    assert code == 0, told
    for note in ("reconnect_first", "rival_wait", "dashboard_watchers", "call_wait"):
        assert f"{note} is no longer a setting; the value is now " in told
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"a": 1, "y": 2}\n', encoding="utf-8")
    store = str(tmp_path / "w.window")
    collect = ["data", "collect", "--source", str(samples), "--store", store, "--window-wait", "3"]
    done = subprocess.run([sys.executable, "-m", "console.main", *collect], capture_output=True, text=True, check=True)
    assert "warning: --window-wait is no longer a setting; the value is now 10.0" in done.stderr
