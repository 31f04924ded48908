"""What goes wrong in the coordinator itself, and files that change below it: pages stay calm and whole."""

from __future__ import annotations

import asyncio
import functools
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from coordinator.http.dashboard import assets, pages
from coordinator.http.error_handler import ErrorHandler
from glassfleet.export.svg.shapes import STYLE
from tests.support import sample_models
from tests.support.coordinator_http import publish, served

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


def test_each_template_can_be_compiled(tmp_path: Path) -> None:
    with served(tmp_path) as (service, _client):
        templates = pages.Dashboard(service, "token")._templates
        for name in templates.list_templates():
            templates.get_template(name)


def logged(lines: Any, event: str) -> dict[str, Any]:
    (found,) = [line for line in lines if line["event"] == event]
    return dict(found)


def test_unexpected_fault_is_a_page_and_a_line_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as (service, client):
        for name in ("known", "document"):
            monkeypatch.setattr(service.coordinator.fleet, name, fail)
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
            told = client.get("/api/agents")
        assert (told.status_code, told.headers["content-type"]) == (500, "application/json")
        assert logged(lines, "page-failed")["fault"] in told.json()["detail"]
        assert "repeat" not in told.json()["detail"]
        assert client.get("/sign-in").status_code == 200


def test_half_an_answer_is_cut_off_and_logged() -> None:
    async def half(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        fail()

    async def scene() -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(ErrorHandler(half, error_response=fail)), base_url="http://here"
        ) as client:
            await client.get("/")

    with structlog.testing.capture_logs() as lines, pytest.raises(RuntimeError):
        asyncio.run(scene())
    assert logged(lines, "page-failed")["path"] == "/"
