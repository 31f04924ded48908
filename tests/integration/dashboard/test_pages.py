"""The dashboard in a real browser, over a real coordinator, broker and vehicles."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from coordinator.http.dashboard.model_actions import VERSION_ACTIONS
from edge_agent.sources import read_source
from glassfleet.private.words import WHY_NO_VEHICLES, protection
from lab.demo.vehicles import simulated_files
from lab.fleet import Fleet
from tests.support.cloud import ended
from tests.support.coordinator_http import EVIL
from tests.support.dashboard_world import OPEN, SIDEWAYS, VEHICLES, World

PAGES = {
    "fleet": "/",
    "vehicle": "/vehicles/zz.nasty-one",
    "week": "/week",
    "runs": "/runs",
    "run": "/runs/evening",
    "compare": "/compare?run=morning&run=evening",
    "leakage": "/runs/evening/leakage",
    "schedules": "/schedules",
    "models": "/models",
    "model": "/models/video-quality",
    "forecast": "/models/video-quality/2/forecast",
    "versions": "/models/video-quality/2/against/1",
    "sign-in": "/sign-in",
    "not-found": "/runs/none",
}
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


def context(browser: Browser, size: str = "desktop", scheme: Literal["light", "dark"] = "light") -> BrowserContext:
    width, height = SIZES[size]
    made = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    made.set_default_timeout(10_000)
    return made


def status(name: str) -> int:
    """Return with which status a page of `PAGES` answers: there must be one under its address."""
    return 404 if name == "not-found" else 200


def opened(page: Page, there: World, name: str) -> None:
    answer = page.goto(there.base + PAGES[name])
    assert answer is not None
    assert answer.status == status(name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "model")) for name in PAGES])
def test_page_is_accessible_in_light_and_dark_and_fits_a_phone(there: World, page: Page, name: str) -> None:
    opened(page, there, name)
    page.evaluate(OPEN)
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    assert page.locator("h1").count() == 1
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 21)"
    # Only colours differ between the two.
    result = Axe().run(page, options={"runOnly": {"type": "rule", "values": ["color-contrast"]}})
    assert result.violations_count == 0, result.generate_report()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(SIDEWAYS) == []


def test_hostile_texts_stay_texts_and_nobody_else_is_asked(there: World, page: Page) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
    for name, address in PAGES.items():  # in one window: each of its own would take half a second more
        answer = there.api.get(address)
        assert answer.status_code == status(name)
        assert [bad for bad in (EVIL, " style=", "onclick") if bad in answer.text] == [], name
        policy = answer.headers["content-security-policy"]
        assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False), name
        page.goto(there.base + address)
        assert "pwned" not in page.title(), name
        assert page.locator("main script, main img").count() == 0, name
        assert asked == {there.base}, name
        if name in ("run", "leakage", "fleet", "vehicle", "model", "schedules"):
            expect(page.locator("main")).to_contain_text("<script>document.title=")


@pytest.mark.parametrize("name", ["run", *(pytest.param(name, marks=pytest.mark.slow) for name in ("model", "week"))])
def test_report_is_the_page_as_one_file_that_loads_nothing_and_leads_nowhere(
    there: World, page: Page, tmp_path: Path, name: str
) -> None:
    address = {"run": "/runs/evening", "model": "/models/video-quality/2", "week": "/week"}[name]
    answer = there.api.get(f"{address}/report")
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    assert EVIL not in answer.text
    assert not re.search(r"\d (s|min|h|days) ago\b", answer.text)  # which would be untrue when it is read
    file = tmp_path / "report.html"
    file.write_bytes(answer.content)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert page.locator("form, script, link, a[href]:not([href^='#']), details:not([open], .folded)").count() == 0
    if name == "run":  # the run, what attacks read of it, and its model
        shown = there.api.get("/api/runs/evening").json()
        assert page.locator("#run-rounds tbody tr").count() == len(shown["rounds"])
        for part in ("#attacks-h", "#tree-h", "#rules-h", "#scores-h"):
            expect(page.locator(part)).to_be_visible()
    assert Axe().run(page).violations_count == 0
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_fleet_page_shows_a_vehicle_that_comes_and_goes_without_a_reload(
    there: World, page: Page, tmp_path: Path
) -> None:
    page.goto(there.base)
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    page.evaluate("window.same = true")
    source = read_source(simulated_files(tmp_path / "data", 1, 3)["vehicle-00"])
    line = page.locator("#fleet-table tbody tr", has_text="late-comer")
    with Fleet({"late-comer": source}, broker=there.broker, state_dir=tmp_path / "late", evaluate=False):
        expect(line.locator(".badge")).to_have_text("up", timeout=15_000)
    expect(line.locator(".badge")).to_have_text("down", timeout=15_000)
    assert page.evaluate("window.same")


def test_run_page_shows_rounds_as_they_close_and_the_growing_tree(there: World, page: Page, tmp_path: Path) -> None:
    present = len([each for each in there.api.get("/api/agents").json() if each["status"] == "up"])
    policy = {"gather_agents": present + 1, "gather_timeout": 60, "min_agents": 3}
    there.start("noon", model="other", parameters={"nullify": False, "max_depth": 2}, rounds=policy)
    page.goto(f"{there.base}/runs/noon")
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    page.evaluate("window.same = true")
    expect(page.locator("#run-facts")).to_contain_text("gathering")
    countdown = page.locator("#run-open [data-seconds]")
    first = countdown.inner_text()
    expect(countdown).not_to_have_text(first)
    expect(page.locator("#run-rounds")).to_contain_text("No round has closed yet")
    source = read_source(simulated_files(tmp_path / "data", 1, 11)["vehicle-00"])
    with Fleet({"one-more": source}, broker=there.broker, state_dir=tmp_path / "more", evaluate=False):
        expect(page.locator("#run-facts h1 .badge")).to_have_text("finished", timeout=30_000)
    rounds = there.api.get("/api/runs/noon").json()["rounds"]
    assert page.locator("#run-rounds tbody tr").count() == len(rounds) > 3
    assert page.locator("#run-rounds figure .wide svg g").count() == len(rounds)
    expect(page.locator("#run-rounds")).to_contain_text("refused")
    expect(page.locator("#run-refusals")).to_contain_text("not-asked")
    expect(page.locator("#run-growth")).to_contain_text(" is VeryLow")
    assert page.locator("#run-growth .wide svg.tree g").count() > 5
    expect(page.locator("#said")).to_have_text("The run has finished.")
    assert page.locator("html").get_attribute("data-live") == "ended"
    assert page.evaluate("window.same")


def test_phone_shows_tree_as_a_list_that_opens_and_charts_that_fit(there: World, browser: Browser) -> None:
    opened = context(browser, "phone")
    page = opened.new_page()
    page.goto(f"{there.base}/models/video-quality/2?branch=")
    expect(page.locator("#tree svg")).to_be_hidden()
    lines = page.locator("#tree .branches a")
    assert lines.count() > 6
    shut = page.locator("#tree .branches ul a[data-branch]").first
    key = shut.get_attribute("data-branch")
    shut.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**?branch={key}#tree")
    assert page.evaluate("document.activeElement.dataset.branch") == key
    assert page.evaluate("document.activeElement.closest('ul') !== null")
    cut = """each => [...document.querySelectorAll("svg.scores, svg.timeline, svg.shares, .branches")].filter(
        each => each.getClientRects().length && each.closest(".scroll, .picture").scrollWidth
            > each.closest(".scroll, .picture").clientWidth).length"""
    assert page.evaluate(cut) == 0
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    for address in ("/runs/evening", "/models/video-quality/2/forecast"):
        page.goto(there.base + address)
        assert page.locator("svg.timeline:visible, svg.shares:visible").count() == 1
        assert page.evaluate(cut) == 0
    opened.close()


def test_forecast_page_and_api_tell_the_same(there: World, page: Page, tmp_path: Path) -> None:
    columns = there.api.get("/api/models/video-quality/2").json()["document"]["domain"]["features"]
    row = {each["name"]: round(each["low"] + 0.3 * (each["high"] - each["low"]), 3) for each in columns}
    table = tmp_path / "rows.csv"
    table.write_text(f"{','.join(row)},rest\n{','.join('0' for _ in row)},x\n{','.join(map(str, row.values()))},y\n")
    page.goto(f"{there.base}/models/video-quality/2/forecast")
    page.click("summary:has-text('Load a row')")
    page.set_input_files("#file", table)
    expect(page.locator("#file-said")).to_contain_text("Row 1 of 2")
    page.fill("#line", "2")
    page.locator("#line").blur()
    expect(page.locator("#x0")).to_have_value(str(next(iter(row.values()))))
    page.fill("#goal", "+0.1")
    page.click("#row-form button")
    result = there.api.post("/api/models/video-quality/explain", json={"row": row, "version": 2}).json()
    expect(page.locator("#answer-h")).to_contain_text(f"{result['prediction']:.5g}")
    expect(page.locator(".answer .card")).to_contain_text(f"rule {result['fired']['rule']['index']},")
    expect(page.locator("main")).to_contain_text("The base is the forecast for a typical row")
    first = max(result["inputs"], key=lambda each: abs(each["share"]))
    assert f"{first['feature']} {first['difference']}" in str(
        page.locator("svg.shares:visible").get_attribute("aria-label")
    )
    asked = {"row": row, "goal": "+0.1"}
    otherwise = there.api.post("/api/models/video-quality/counterfactual", json=asked).json()
    assert otherwise["found"]
    change = otherwise["best"]["changes"][0]
    expect(page.locator(".way.best")).to_contain_text(change["feature"])
    expect(page.locator(".way.best")).to_contain_text(change["after_text"])
    again = there.api.post("/api/models/video-quality/explain", json={"row": otherwise["best"]["row"]}).json()
    assert again["prediction"] >= result["prediction"] + 0.1
    assert page.locator("svg.sets").count() >= len(columns)


def test_operator_starts_and_cancels_a_run_after_signing_in(there: World, page: Page) -> None:
    page.goto(f"{there.base}/runs")
    page.click("a:has-text('New run')")
    page.fill("#token", "not the token")
    page.click("main button:has-text('Sign in')")
    expect(page.locator("[role=alert]")).to_have_text("This is not the token.")
    page.fill("#token", there.token)
    page.click("main button:has-text('Sign in')")
    expect(page.locator("h1")).to_have_text("New run")
    page.fill('[name="rounds.deadline"]', "-1")
    page.click("main button:has-text('Start the run')")
    expect(page.locator("[role=alert]")).to_have_text("Seconds for each round: must be greater than 0")
    wrong = page.locator("[aria-invalid=true]")
    expect(wrong).to_have_value("-1")
    page.evaluate(OPEN)
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wrong.fill("30")
    page.fill("#run", "by-hand")
    page.fill('[name="rounds.gather_agents"]', "500")
    page.click("main button:has-text('Start the run')")
    expect(page.locator("h1")).to_contain_text("by-hand")
    page.check("text=I am sure")
    page.click("button:has-text('Cancel this run')")
    expect(page.locator("h1 .badge")).to_have_text("cancelled", timeout=10_000)
    assert ended(there.api, "by-hand")["outcome"] == "cancelled"
    page.click("button:has-text('Sign out')")
    expect(page.locator(".who a")).to_have_text("Sign in")
    cookies = page.context.cookies()
    assert [each for each in cookies if each["name"] == "glassfleet_session"] == []


def test_session_cookie_is_kept_from_scripts_and_other_sites(there: World) -> None:
    with httpx.Client(base_url=there.base, trust_env=False) as client:
        answer = client.post("/sign-in", data={"token": there.token, "then": "//evil.example/"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie


@pytest.mark.parametrize(
    ("headers", "csrf", "status"),
    [
        ({}, "", 403),
        ({}, "x" * 43, 403),
        ({"Origin": "http://evil.example"}, "right", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "right", 403),
        ({}, "right", 303),
    ],
)
def test_action_needs_a_form_of_its_own_session(there: World, headers: dict[str, str], csrf: str, status: int) -> None:
    with httpx.Client(base_url=there.base, trust_env=False) as client:
        assert client.post("/sign-in", data={"token": there.token}).status_code == 303
        text = client.get("/new-run").text
        right = text.split('name="csrf" value="')[1].split('"')[0]
        fields = {"csrf": right if csrf == "right" else csrf}
        answer = client.post("/sign-out", data=fields, headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize("what", VERSION_ACTIONS)
def test_operator_is_asked_before_a_version_is_changed(there: World, what: str) -> None:
    with httpx.Client(base_url=there.base, trust_env=False) as client:
        assert client.post("/sign-in", data={"token": there.token}).status_code == 303
        answer = client.get(f"/models/video-quality/2/{what}")
        assert answer.status_code == 200
        assert VERSION_ACTIONS[what].title.format(version=2) in answer.text
        assert client.post(f"/models/video-quality/2/{what}", data={"csrf": "x" * 43}).status_code == 403
        client.cookies.clear()
        assert client.post(f"/models/video-quality/2/{what}", data={"csrf": ""}).status_code == 401


def test_coordinator_on_loopback_refuses_a_foreign_host_name(there: World) -> None:
    answer = there.api.get("/", headers={"Host": "rebound.example"})
    assert answer.status_code == 421
    assert there.api.get("/", headers={"Host": "localhost:1234"}).status_code == 200


def test_page_reads_without_scripts(there: World, browser: Browser) -> None:
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    for name in ("fleet", "run", "model", "forecast"):
        opened(page, there, name)
        assert page.locator("main table tbody tr, main svg").count() > 3
    plain.close()


FORECAST = "/models/video-quality/2/forecast"


def up(there: World) -> set[str]:
    """Return who is up."""
    return {each["agent"] for each in there.api.get("/api/agents").json() if each["status"] == "up"}


def columns(there: World) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = there.api.get("/api/models/video-quality/2").json()["document"]["domain"]["features"]
    return result


def test_check_box_makes_a_run_private_and_its_page_says_what_that_was(there: World, page: Page) -> None:
    page.goto(f"{there.base}/new-run")
    page.fill("#token", there.token)
    page.click("main button:has-text('Sign in')")
    page.select_option("#scheme", "frt")
    page.click("text=Show its parameters")
    page.fill("#model", "closed")
    page.evaluate(OPEN)
    typed = {"rounds.gather_agents": str(VEHICLES), "parameters.frt.max_depth": "1", "rounds.extensions": "0"}
    for name, text in {**typed, "run": "closed"}.items():
        page.fill(f'[name="{name}"]', text)
    expect(page.locator("#private")).not_to_be_checked()
    page.check("text=Private: only sums over 8 or more vehicles are seen")
    page.click("main button:has-text('Start the run')")
    expect(page.locator("h1")).to_contain_text("closed")
    run = ended(there.api, "closed")
    assert run["outcome"] == "finished", run["reason"]
    assert run["spec"]["private"] == {"floor": 8, "company": 3, "support": 3, "patience": 1}
    page.reload()
    expect(page.locator("main")).to_contain_text(protection(run["private"]))
    page.goto(f"{there.base}/models/closed/1")
    expect(page.locator("main")).to_contain_text(WHY_NO_VEHICLES[1:])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"time,place\n1,2\n", "no CSV file with the model's columns"),
        (gzip.compress(b"time,place\n1,2\n"), "no CSV file with the model's columns"),
        (b"\x89PNG\r\n\x1a\n\x00", "no CSV file with the model's columns"),
        (gzip.compress(b"time,place\n" * 1000)[:-9], "damaged"),
        (gzip.compress(b"0,0\n" * 5_000_001, 1), "up to 20 MB"),
        (None, "a header and no rows"),
    ],
    ids=["other-columns", "other-columns-packed", "picture", "cut", "large-when-unpacked", "no-rows"],
)
def test_forecast_says_what_is_wrong_and_keeps_the_form_when_a_file_is_not_the_models(
    there: World, page: Page, tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(",".join(each["name"] for each in columns(there)).encode() if content is None else content)
    page.goto(there.base + FORECAST)
    before = page.locator("#x0").input_value()
    page.click("summary:has-text('Load a row')")
    page.set_input_files("#file", file)
    expect(page.locator("#file-said")).to_contain_text(words)
    expect(page.locator("#file-said")).not_to_contain_text("is in the form")
    page.locator("#line").fill("2")
    page.locator("#line").blur()
    expect(page.locator("#file-said")).to_contain_text(words)
    assert page.locator("#x0").input_value() == before
