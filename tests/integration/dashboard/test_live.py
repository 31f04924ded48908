"""Live streams: heartbeats, bounds, going on after a lost connection; pages stay whole when something goes wrong."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from coordinator.engine import SendReceipt
from coordinator.http.dashboard import assets, live, pages
from coordinator.http.dashboard.live import Hub, PageState
from coordinator.specification.run import RunSpec
from coordinator.telemetry import metrics
from coordinator.telemetry.metrics import Refusals
from glassfleet.export.svg.shapes import STYLE
from schemas.messages import Outcome, Receipt
from tests.support import sample_models
from tests.support.coordinator_http import publish, served

PERIOD = 0.01


def parsed(text: str) -> dict[str, Any]:
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return {"id": fields.get("id"), "event": fields.get("event"), **json.loads(fields.get("data", "{}"))}


async def pictures(stream: AsyncIterator[str], count: int) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    async for text in stream:
        if text.startswith(("id:", "event:")):
            result.append(parsed(text))
            if len(result) == count:
                break
    return result


class Board:
    """Something to watch."""

    def __init__(self) -> None:
        self.fragments = {"a": "one", "b": "one"}
        self.version = 0
        self.is_last = False
        self.threads: set[str] = set()

    def change(self, **fragments: str) -> None:
        self.fragments = {**self.fragments, **fragments}
        self.version += 1

    def draw(self) -> PageState:
        self.threads.add(threading.current_thread().name)
        return PageState(self.fragments, f"version {self.version}", is_last=self.is_last)

    def stream(self, hub: Hub, last_id: str = "") -> AsyncIterator[str]:
        hub.enter()
        return hub.stream("board", lambda: self.version, self.draw, period=PERIOD, last_id=last_id)


def test_stream_sends_everything_first_and_then_what_changes() -> None:
    async def scene() -> None:
        board, hub = Board(), Hub()
        stream = board.stream(hub)
        assert (await anext(stream)).startswith("retry:")
        first = parsed(await anext(stream))
        assert (first["event"], first["fragments"]) == ("page", {"a": "one", "b": "one"})
        board.change(b="two")
        second = parsed(await anext(stream))
        assert (second["fragments"], second["said"]) == ({"b": "two"}, "version 1")
        board.is_last = True
        board.change()
        assert parsed(await anext(stream))["event"] == "end"
        assert [text async for text in stream] == []
        assert hub.watchers == 0
        assert threading.main_thread().name not in board.threads

    asyncio.run(scene())


def test_stream_goes_on_after_the_last_event_that_was_seen() -> None:
    async def scene() -> None:
        board, hub = Board(), Hub()
        stays, leaves = board.stream(hub), board.stream(hub)
        await pictures(stays, 1)
        seen = (await pictures(leaves, 1))[0]["id"]
        await leaves.aclose()  # type: ignore[attr-defined]
        for text in ("two", "three"):
            board.change(b=text)
            assert (await pictures(stays, 1))[0]["fragments"] == {"b": text}
        # Only what changed meanwhile is sent, as it is now.
        again = (await pictures(board.stream(hub, last_id=seen), 1))[0]
        assert again["fragments"] == {"b": "three"}
        foreign = (await pictures(board.stream(hub, last_id="cafecafe-999999"), 1))[0]
        assert foreign["fragments"] == {"a": "one", "b": "three"}

    asyncio.run(scene())


def test_slow_watcher_gets_the_newest_and_no_backlog() -> None:
    async def scene() -> None:
        board, hub = Board(), Hub()
        stream = board.stream(hub)
        await pictures(stream, 1)
        slow = board.stream(hub)
        assert (await anext(slow)).startswith("retry:")
        for number in range(50):
            board.change(a=f"text {number}")
            await asyncio.sleep(2 * PERIOD)
        await asyncio.sleep(10 * PERIOD)
        assert parsed(await anext(slow))["fragments"] == {"a": "text 49", "b": "one"}

    asyncio.run(scene())


def test_coordinator_refuses_the_watcher_that_is_one_too_many_and_stops_in_spite_of_them(tmp_path: Path) -> None:
    with served(tmp_path) as (service, client):
        url = client.base_url
        limits = httpx.Limits(max_connections=live.WATCHERS + 5)
        with httpx.Client(base_url=url, trust_env=False, timeout=20, limits=limits) as crowd:
            open_ones = [crowd.stream("GET", "/events/fleet") for _ in range(live.WATCHERS)]
            answers = [each.__enter__() for each in open_ones]
            assert {each.status_code for each in answers} == {200}
            assert answers[0].headers["content-type"].startswith("text/event-stream")
            refused = client.get("/events/fleet")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            assert client.get("/api/health").status_code == 200
            for each in open_ones[:5]:
                each.__exit__(None, None, None)
            for _ in range(200):
                with client.stream("GET", "/events/fleet") as again:
                    if again.status_code == 200:
                        break
            else:
                pytest.fail("the places of those who left were not given back")
            thread = threading.Thread(target=service.stop)
            thread.start()
            thread.join()
    # `served` has ended: the server's thread did, though streams were open.
    assert not [each for each in threading.enumerate() if each.name == "glassfleet-api"]


def test_live_run_page_never_waits_for_the_coordinators_thread(tmp_path: Path) -> None:
    with served(tmp_path) as (service, client):
        service.coordinator.start_run(RunSpec(run="still", scheme="frt"))
        # Nobody serves the coordinator's queue here: whoever waited for it would wait in vain.
        with client.stream("GET", "/events/runs/still") as answer:
            lines = answer.iter_lines()
            data = next(line for line in lines if line.startswith("data:"))
        fragments = json.loads(data.removeprefix("data:"))["fragments"]
        assert set(fragments) == {"run-facts", "run-open", "run-rounds", "run-growth", "run-agents", "run-refusals"}
        assert "gathering" in fragments["run-facts"]
        left = fragments["run-open"].partition('data-seconds="')[2].partition('"')[0]
        assert 590 < float(left) <= 600  # as `gather_timeout` says
        assert client.get("/events/runs/none").status_code == 404
        assert client.get("/events/runs/still", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def told(run: str, agent: str, outcome: Outcome, reason: str = "") -> SendReceipt:
    return SendReceipt(run, agent, Receipt(run=run, task_digest="0" * 64, outcome=outcome, reason=reason))


def test_refusals_are_bounded_and_say_why() -> None:
    seen = Refusals()
    for number in range(3 * metrics.REASONS):
        seen.performed(told("r", f"a{number}", "rejected", f"reason {number % (2 * metrics.REASONS)}"), None, 0)
    seen.performed(told("r", "b", "accepted"), None, 0)
    result = seen.of("r")
    assert sum(count for _, _, count, _ in result) == 3 * metrics.REASONS
    assert len(result) == metrics.REASONS + 1
    assert result[0][1] == "other reasons"
    assert all(len(agents) <= metrics.AGENTS for *_, agents in result)
    for number in range(2 * metrics.RUNS):
        seen.performed(told(f"r{number}", "a", "late"), None, 0)
    assert seen.of("r") == []
    assert seen.of(f"r{2 * metrics.RUNS - 1}") == [("late", "", 1, ["a"])]


SECRET = "the password of the database"


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError(SECRET)


def test_running_coordinator_shows_its_own_pages_after_an_upgrade_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "installed"
    for part in ("templates", "static"):
        shutil.copytree(assets.HERE / part, folder / part)
    templates = functools.partial(assets.read_templates, folder=folder / "templates")
    monkeypatch.setattr(pages, "read_templates", templates)
    monkeypatch.setattr(pages, "read_assets", functools.partial(assets.read_assets, folder=folder / "static"))
    with served(tmp_path / "state") as (service, client):
        publish(service, sample_models.model("frt"), "m", ["a"])
        # Nothing has been asked for yet: what is read at the first look would be of the other version.
        for path in [each for each in folder.rglob("*") if each.is_file()]:
            path.write_text("{{ 1|no_such_filter }}")
        shutil.rmtree(folder / "static")
        for address in ("/", "/runs", "/models", "/models/m", "/models/m/1/forecast", "/sign-in"):
            answer = client.get(address)
            assert (answer.status_code, "Glassfleet" in answer.text) == (200, True), address
        for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/").text):
            name = address.removeprefix("/static/").partition("?")[0]
            answer = client.get(address)
            source = STYLE if name == STYLE.name else assets.HERE / "static" / name
            assert (answer.status_code, answer.content) == (200, source.read_bytes())


def logged(lines: Any, event: str) -> dict[str, Any]:
    (result,) = [line for line in lines if line["event"] == event]
    return dict(result)


def test_unexpected_fault_is_a_page_and_a_line_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as (service, client):
        monkeypatch.setattr(service.coordinator.fleet, "known", fail)
        with structlog.testing.capture_logs() as lines:
            answer = client.get("/")
        assert answer.status_code == 500
        assert "<h1>" in answer.text
        assert 'href="/"' in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert SECRET not in answer.text
        line = logged(lines, "page-failed")
        assert (line["log_level"], line["path"]) == ("error", "/")
        assert SECRET in line["exception"]
        assert "exc_info" not in line, "a renderer would add the values of variables, the token among them"
        assert line["fault"] in answer.text
        with structlog.testing.capture_logs() as lines:
            result = client.get("/api/agents")
        assert (result.status_code, result.headers["content-type"]) == (500, "application/json")
        assert logged(lines, "page-failed")["fault"] in result.json()["detail"]
        assert "repeat" not in result.json()["detail"]
        assert client.get("/sign-in").status_code == 200
