"""Schedules over HTTP: the API, the page, and a pause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from console.main import run
from coordinator.process.service import Service
from tests.support.coordinator_http import served
from tests.support.schedules import quiet

NIGHTLY: dict[str, Any] = {"name": "nightly", "at": "0 2 * * *", "zone": "Europe/Berlin", "spec": {"scheme": "frt"}}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, httpx.Client]]:
    """A coordinator's HTTP side; whoever calls is its thread."""
    with served(tmp_path_factory.mktemp("state")) as (service, client):
        service.call = lambda function, timeout=None: function(service.coordinator)  # type: ignore[method-assign]
        token = (service.config.state_dir / "api-token").read_text().strip()
        client.headers["Authorization"] = f"Bearer {token}"
        yield service, client


@pytest.fixture
def api(there: tuple[Service, httpx.Client]) -> Iterator[httpx.Client]:
    """With the schedule ``nightly``."""
    client = there[1]
    assert client.post("/api/schedules", json=NIGHTLY).status_code == 201
    with quiet():  # a coordinator in this process logs to stdout
        yield client
    client.post("/api/schedules/nightly/remove")


def test_schedule_is_added_paused_resumed_and_removed(api: httpx.Client) -> None:
    (listed,) = api.get("/api/schedules").json()
    assert listed == api.get("/api/schedules/nightly").json()
    assert (listed["model"], listed["state"], listed["words"]) == (
        *("model", "active", "At 02:00 every day, Europe/Berlin"),
    )
    assert len(api.get("/api/schedules/nightly?following=40").json()["next"]) == 40
    assert all(each[11:16] == "02:00" for each in listed["next"])
    paused = api.post("/api/schedules/nightly/pause", json={"reason": "works"}).json()
    assert (paused["state"], paused["reason"], paused["next"]) == ("paused", "works", [])
    assert api.post("/api/schedules/nightly/resume").json() == listed
    assert api.post("/api/schedules/nightly/resume").status_code == 422
    assert api.post("/api/schedules/nightly/remove").json() == {"name": "nightly"}
    assert api.get("/api/schedules/nightly").status_code == 404


@pytest.mark.parametrize(
    ("wrong", "status", "words"),
    [
        ({}, 422, "already"),
        ({"name": "n", "at": "61 2 * * *"}, 422, "bad minute"),
        ({"name": "n", "spec": {"scheme": "frtt"}}, 404, "no scheme 'frtt'"),
        ({"name": "n", "spec": {"scheme": "frt", "seed": True}}, 422, "spec.seed: true is no number"),
        ({"name": "n", "spec": {"scheme": "frt", "model": "m.central"}}, 422, "m.central"),
        ({"name": "n", "spec": None}, 422, "spec"),
        ({"name": "n", "vehicles": True}, 422, "vehicles: true is no number"),
        ({"name": "n", "often": 1}, 422, "often"),
    ],
)
def test_schedule_that_cannot_be_is_refused(api: httpx.Client, wrong: Any, status: int, words: str) -> None:
    answer = api.post("/api/schedules", json={**NIGHTLY, **wrong})
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text


def test_page_says_when_and_an_operator_pauses_there(api: httpx.Client, there: tuple[Service, httpx.Client]) -> None:
    page = api.get("/schedules").text
    assert "At 02:00 every day, Europe/Berlin." in page
    assert '<form class="find"' not in page, "nobody is signed in"
    token = there[0].config.state_dir / "api-token"
    api.post("/sign-in", data={"token": token.read_text().strip(), "then": "/schedules"})

    def press(what: str, **fields: str) -> httpx.Response:
        csrf = re.search(r'action="/schedules/nightly/' + what + r'"><input type="hidden" name="csrf" value="([^"]+)"',
                         api.get("/schedules").text)  # fmt: skip
        assert csrf is not None, f"there is no button to {what}"
        return api.post(f"/schedules/nightly/{what}", data={"csrf": csrf[1], **fields}, follow_redirects=True)

    assert "Paused: roadworks" in press("pause", reason=" roadworks ").text
    assert "Paused" not in press("resume").text
    assert api.post("/schedules/nightly/remove", data={}).status_code == 403


def test_commands_say_what_the_coordinator_says(
    api: httpx.Client,
    there: tuple[Service, httpx.Client],
    own_state: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GLASSFLEET_STATE_DIR", str(there[0].config.state_dir))

    def printed(*words: str, code: int = 0) -> str:
        assert run(["run", "schedule", *words]) == code
        return "".join(capsys.readouterr())

    added = printed(
        "add", "days", "--at", "*/30 * * * *", "--model", "qoe", "--last", "7d", "--quiet-hours", "06:00-22:00"
    )
    assert re.search(r"days  model qoe  active  next \d{4}-\d\d-\d\d \d\d:[03]0 \+00:00\n$", added)
    shown = api.get("/api/schedules/days").json()
    assert (shown["spec"]["window"], shown["quiet"]) == ({"days": 7.0}, "06:00-22:00")
    assert "Every 30th minute" in printed("show", "days")
    assert printed("next", "nightly", "--count", "2").count(" 02:00 +0") == 2
    assert "paused (works)" in printed("pause", "days", "--reason", "works")
    assert [line.split()[0] for line in printed("list").splitlines()] == ["days", "nightly"]
    assert "days is paused" in printed("next", "days")
    assert "active" in printed("resume", "days")
    assert printed("remove", "days") == "days removed\n"
    assert "no schedule 'days'; known: nightly" in printed("show", "days", code=9)
    assert "--last 'week'" in printed("add", "days", "--at", "0 2 * * *", "--last", "week", code=2)
