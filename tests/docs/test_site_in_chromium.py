"""The documentation's site in a real browser: light and dark, desk and phone, by keyboard, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("playwright", reason="pip install playwright")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.processes import serving

pytestmark = pytest.mark.slow

LOOKED_AT = [
    "index", "tutorial/first-fleet", "explanation/rounds", "explanation/tree", "reference/messages", "api/scheme",
]  # fmt: skip


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Say nothing."""

    with serving(Quiet) as made:
        yield made


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that fails the test when it asks anybody else for anything, or a script fails."""
    faults: list[str] = []
    context = browser.new_context()
    made = context.new_page()
    made.on("pageerror", lambda fault: faults.append(str(fault)))
    made.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    made.on(
        "request", lambda asked: None if asked.url.startswith((address, "data:", "blob:")) else faults.append(asked.url)
    )
    yield made
    context.close()
    assert faults == []


@pytest.mark.parametrize(
    ("scheme", "rules", "names"),
    [("light", ["wcag2a", "wcag2aa"], LOOKED_AT), ("dark", ["color-contrast"], LOOKED_AT[-3:])],
)
def test_pages_of_site_have_no_accessibility_faults(
    page: Page, address: str, scheme: Literal["light", "dark"], rules: list[str], names: list[str]
):
    """Only colours differ between the two."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for name in names:
        page.goto(f"{address}/{name}.html")

        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        result = Axe().run(page, context="article", options={"runOnly": rules})
        faults = [
            (one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in result.response["violations"]
        ]
        assert faults == [], name


def test_search_of_site_finds_a_page_by_a_word(page: Page, address: str):
    page.goto(f"{address}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("condensed")

    expect(page.locator(".md-search-result__link[href*='explanation/privacy.html']").first).to_be_visible()


def test_pages_of_site_open_from_a_folder_without_a_server(browser: Browser, site: Path):
    context = browser.new_context()
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.get_by_role("article").get_by_role("link", name="Your first fleet").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("Your first fleet")
    context.close()
