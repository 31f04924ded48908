"""What a model's name stands for, on the pages: champion, candidate, rollouts, and what an operator may do about them.

A real coordinator, broker, vehicles and browser. Each test leaves the name as it found it: version 2 in use.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.support.coordinator_http import EVIL
from tests.support.dashboard_world import VEHICLES, World, world
from tests.support.processes import eventually

pytestmark = pytest.mark.slow  # a fleet of its own: its models change
NAME = "video-quality"
MODEL = f"/models/{NAME}"
NUMBERS = "[aria-label='Scores of each vehicle']"
PLAN = {"stages": [0.3, 1.0], "deadline": 600.0, "min_reports": 1.0, "max_worse": 1.0, "max_worse_share": 1.0}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world"), hostile=False, nasty=False) as made:
        # Version 3, tried by nobody yet: the same rows, another depth.
        made.learn("night", model=NAME, parameters={"nullify": False, "min_rows": 1, "max_depth": 1})
        back = made.api.post(f"/api{MODEL}/rollback", json={"to": 2, "reason": "version 3 is to be tried first"})
        assert back.status_code == 200, back.text
        eventually(lambda: len(made.api.get(f"/api{MODEL}/2/evaluations").json()) >= VEHICLES)
        yield made


def sign_in(there: World, page: Page, then: str) -> None:
    page.goto(f"{there.base}/sign-in?then={then}")
    page.fill("#token", there.token)
    page.keyboard.press("Enter")
    expect(page.locator(".who button")).to_have_text("Sign out")


def stands(there: World) -> tuple[int, int]:
    """Return the versions in use and tried; 0: none."""
    result = there.api.get(f"/api{MODEL}/history").json()
    return result["current"]["version"], (result["candidate"] or {"version": 0})["version"]


def newest(there: World) -> dict[str, Any]:
    result: list[dict[str, Any]] = there.api.get(f"/api/rollouts/{NAME}").json()
    return result[-1]


def test_operator_promotes_and_rolls_back_with_the_keyboard(there: World, page: Page) -> None:
    sign_in(there, page, f"{MODEL}/3")
    page.locator("#standing a", has_text="Promote version 3").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Promote version 3")
    expect(page.locator(".consequences")).to_contain_text("Now they use version 2")
    assert stands(there) == (2, 0)  # asking is not doing
    page.locator("#reason").focus()
    page.keyboard.type("looked at by hand")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Promote version 3"
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("Vehicles use version 3")
    assert stands(there) == (3, 0)
    page.locator("#standing a", has_text="Roll back to version 2").click()
    page.locator("#confirm button").click()
    assert stands(there) == (3, 0)  # the browser asks for the reason
    page.fill("#reason", EVIL)
    page.locator("#confirm button").click()
    expect(page.locator("#standing")).to_contain_text("Vehicles use version 2")
    expect(page.locator("#standing q")).to_have_text(EVIL)
    assert "pwned" not in page.title()
    assert stands(there) == (2, 0)
    page.locator("summary", has_text="What was decided").click()
    expect(page.locator("#standing")).to_contain_text("in use again: rolled back")


@pytest.mark.parametrize("what", ["promote", "try"])
def test_page_does_nothing_when_what_it_showed_was_changed_and_changed_back(
    there: World, page: Page, what: str
) -> None:
    if what == "promote":
        sign_in(there, page, f"{MODEL}/3/promote")
        there.api.post(f"/api{MODEL}/promote", json={"version": 3})
        there.api.post(f"/api{MODEL}/rollback", json={"to": 2, "reason": "there and back"})
    else:
        wanted = {"name": NAME, "version": 3, "plan": {**PLAN, "min_reports": 500}}
        assert there.api.post("/api/rollouts", json=wanted).status_code == 201
        sign_in(there, page, f"{MODEL}/rollout/stop")
        for step in ("pause", "resume"):
            assert there.api.post(f"/api/rollouts/{NAME}/{step}", json={"reason": "look"}).status_code == 200
    page.locator("#confirm button").click()
    expect(page.get_by_role("alert")).to_contain_text("meanwhile something else was decided")
    expect(page.locator(".consequences")).to_contain_text(re.compile("version 2", re.IGNORECASE))
    assert stands(there)[0] == 2
    if what == "try":
        assert newest(there)["ended"] is None
        # The page has seen it now: the second time it is meant.
        page.locator("#confirm button").click()
        expect(page.locator("#standing")).to_be_visible()
        assert newest(there)["phase"] == "stopped"
    assert stands(there) == (2, 0)


def test_explanations_over_http_are_of_the_version_in_use_when_none_is_named(there: World) -> None:
    assert stands(there) == (2, 0)  # version 3 is newer
    used, newest_one = (there.api.get(f"/api{MODEL}/{number}").json() for number in (2, 3))
    assert used["digest"] != newest_one["digest"]
    assert there.api.get(f"/api{MODEL}/summary").json()["digest"] == used["digest"]
    assert there.api.get(f"/api{MODEL}/summary?version=3").json()["digest"] == newest_one["digest"]
    row = {each["name"]: (each["low"] + each["high"]) / 2 for each in used["document"]["domain"]["features"]}
    asked = [
        there.api.post(f"/api{MODEL}/explain", json={"row": row, **named}).json()
        for named in ({}, {"version": 2}, {"version": 3})
    ]
    assert asked[0] == asked[1] != asked[2]
    other = [
        there.api.post(f"/api{MODEL}/counterfactual", json={"row": row, "max_inputs": 1, **named}, timeout=60).json()
        for named in ({}, {"version": 2})
    ]
    assert other[0] == other[1]


def test_operator_starts_pauses_resumes_and_stops_a_rollout(there: World, page: Page) -> None:
    sign_in(there, page, f"{MODEL}/3/try")
    page.fill("#stages", "0.9, 0.1")
    page.locator("#confirm button").click()
    expect(page.get_by_role("alert")).to_contain_text("stages must rise")
    expect(page.locator("#stages")).to_have_value("0.9, 0.1")
    page.fill("#stages", "0.3, 1")
    page.fill("#min_reports", "500")  # so many never come: the stage stays open
    page.locator("#confirm button").click()
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    page.evaluate("window.same = true")
    # Live: the vehicles that were asked report while the page stays.
    expect(page.locator("#standing .rollout")).to_contain_text("trying", timeout=20_000)
    eventually(lambda: newest(there)["reports"] == 3, seconds=30, what="the vehicles did not report")
    asked = newest(there)["stages"][0]["asked"]
    assert len(asked) == 3
    lines = page.locator("[aria-label='Vehicles that have the candidate'] tbody tr")
    expect(lines.filter(has_text="scored")).to_have_count(3, timeout=10_000)
    assert sorted(lines.locator("th").all_inner_texts()) == asked
    scores = newest(there)["agents"][asked[0]]
    expect(lines.filter(has_text=asked[0])).to_contain_text(f"{scores['candidate']:.4g}")
    expect(page.locator("h1 .badge")).to_have_text("candidate", timeout=1)
    assert page.evaluate("window.same")
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    for link, button, phase in (
        ("Pause the rollout…", "Pause the rollout", "paused"),
        ("Resume the rollout…", "Resume the rollout", "trying"),
        ("Stop the rollout…", "Stop the rollout", "stopped"),
    ):
        page.locator("#standing a", has_text=link).click()
        expect(page.locator("h1")).to_contain_text(f"{button} of version 3")
        page.locator("#confirm button", has_text=button).click()
        expect(page.locator("#standing")).to_be_visible()
        assert newest(there)["phase"] == phase
    assert stands(there) == (2, 0)
    expect(page.locator("#standing .rollout")).to_have_count(0)
    page.locator("summary", has_text="Rollouts that have ended").click()
    expect(page.locator("#standing")).to_contain_text("by an operator")
    page.goto(f"{there.base}{MODEL}/rollout/stop")
    expect(page.locator("main")).to_contain_text("no rollout of model video-quality is under way")


# -- central references ------------------------------------------------------------------------------------------------


def test_vehicles_score_a_central_reference_and_the_page_shows_it_where_equality_says_nothing(
    there: World, page: Page
) -> None:
    exact = {"nullify": False, "min_rows": 1}
    there.learn("elastic", model="loose", participation="elastic", parameters={**exact, "max_depth": 1})
    page.goto(f"{there.base}/models/loose")
    eventually(lambda: len(there.api.get("/api/models/loose/1/evaluations").json()) == VEHICLES)
    page.reload()
    expect(page.locator("#cl-why")).to_contain_text("the run was elastic")
    expect(page.locator("thead th", has_text="Central")).to_contain_text("not known")
    # Equality has made version 2 of the other name a central model of these vehicles' rows.
    document = there.api.get(f"/api{MODEL}/2").json()["document"]
    answer = there.api.post("/api/models/loose/central", json={"document": document, "about": EVIL})
    assert (answer.status_code, answer.json()["name"]) == (201, "loose.central"), answer.text
    again = there.api.post("/api/models/loose/central", json={"document": document})
    assert (again.status_code, again.json()["version"]) == (201, 1)
    eventually(lambda: len(there.api.get("/api/models/loose.central/1/evaluations").json()) == VEHICLES)
    result = there.api.get("/api/models/loose.central/1/evaluations").json()
    same = there.api.get(f"/api{MODEL}/2/evaluations").json()
    assert {agent: each["federated"] for agent, each in result.items()} == {
        agent: each["federated"] for agent, each in same.items()
    }
    page.reload()
    expect(page.locator("thead th", has_text="Central")).to_contain_text("a reference")
    expect(page.locator("#cl-why")).to_contain_text("registered as loose.central version 1: <script>")
    line = page.locator(f"{NUMBERS} tbody tr", has_text="vehicle-04")
    expect(line.locator("[data-label=Central]")).to_have_text(f"{result['vehicle-04']['federated']:.4g}")
    assert page.locator("svg.scores path.central").count() == 2 * VEHICLES  # wide and narrow
    assert central_of_report(there, "elastic") == pytest.approx(dashboards(page), abs=1e-4)
    page.goto(f"{there.base}/models/loose.central/1")
    expect(page.locator("section", has=page.locator("#versions-h")).locator("thead")).to_contain_text("Central (CL)")
    # The equality of the other name's runs, in the report as in the dashboard.
    page.goto(f"{there.base}{MODEL}/2")
    known = dashboards(page)
    assert len(known) == VEHICLES
    assert central_of_report(there, "evening") == pytest.approx(known, abs=1e-4)


def dashboards(page: Page) -> dict[str, float]:
    """Return the central scores that the page shows, by vehicle."""
    lines = page.locator(f"{NUMBERS} tbody tr").all()
    return {str(line.locator("th").text_content()): _number(line.locator("[data-label=Central]")) for line in lines}


def _number(cell: Locator) -> float:
    return float(cell.text_content() or "")


def central_of_report(there: World, run: str) -> dict[str, float]:
    """Return the central scores that the report of a run shows, by vehicle."""
    command = ["-m", "console.main", *f"model report {run} --coordinator {there.base} -o -".split()]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, timeout=120)
    rows = re.findall(r'<tr role="row"><th[^>]*><a[^>]*>(vehicle-\d+)</a>(.*?)</tr>', done.stdout)
    central = {agent: re.search(r'data-label="Central">([\d.]+)<', cells) for agent, cells in rows}
    return {agent: float(cell[1]) for agent, cell in central.items() if cell is not None}
