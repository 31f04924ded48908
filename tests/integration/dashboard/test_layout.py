"""What only a browser can measure: names of fuzzy sets that do not touch, an answer in sight, parts that stay open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from glassfleet import simulation
from glassfleet.contract import catalogue
from tests.support.coordinator_http import dataset, domain_of, publish, served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A coordinator with a model whose rules join conditions."""
    scheme = catalogue.load("tree")
    data = dataset(tuple(f"column_{number}" for number in range(12)), labels=False, rows=1500)
    domain = domain_of(data, labels=False)
    model = simulation.federated(scheme, scheme.Parameters(), domain, {"a": data}).model
    with served(tmp_path_factory.mktemp("shop")) as (service, client):
        publish(service, model, "m", ["a"])
        yield str(client.base_url).rstrip("/")


def in_sight(page: Page) -> bool:
    box = page.locator("#answer-h").bounding_box()
    assert box is not None
    size = page.viewport_size
    assert size is not None
    return 0 <= box["y"] < size["height"] / 2


@pytest.mark.parametrize("wide", [390, 1280])
def test_explain_shows_the_answer_at_once_on_phone_and_desk(browser: Browser, shop: str, wide: int) -> None:
    page = browser.new_page(viewport={"width": wide, "height": 844})
    page.goto(f"{shop}/models/m/1/forecast")
    page.click("#row-form button")
    page.wait_for_url("**#answer-h")
    assert in_sight(page)
    page.click("summary:has-text('Paste a row')")
    page.fill("#row", ",".join(["0.3"] * 12))
    page.click("button:has-text('Explain this row')")
    page.wait_for_url("**row=0.3**#answer-h")
    expect(page.locator("#x0")).to_have_value("0.3")
    assert in_sight(page)
    page.fill("#x0", "fast")
    page.click("#row-form button")
    expect(page.locator("[role=alert]")).to_be_in_viewport()
    page.close()


BEFORE = """<details id="a"><summary>Rollouts that have ended: 1</summary>x</details>
<table><tbody><tr><th>one</th><td><details id="b"><summary>15 inputs</summary>x</details></td></tr>
<tr><th>two</th><td><details id="c"><summary>15 inputs</summary>x</details></td></tr></tbody></table>
<details id="d" open><summary>12 vehicles</summary>x</details>"""
AFTER = """<details id="a"><summary>Rollouts that have ended: 2</summary>x</details>
<table><tbody><tr><th>none</th><td><details id="e"><summary>15 inputs</summary>x</details></td></tr>
<tr><th>one</th><td><details id="b"><summary>15 inputs</summary>x</details></td></tr>
<tr><th>two</th><td><details id="c"><summary>16 inputs</summary>x</details></td></tr></tbody></table>
<details id="d" open><summary>13 vehicles</summary>x</details>"""


def test_live_page_leaves_open_what_the_reader_has_opened_whatever_it_counts_now(browser: Browser, shop: str) -> None:
    page = browser.new_page()
    page.goto(f"{shop}/models")
    still = page.evaluate(
        """async ([before, after]) => {
            const { put } = await import("/static/swap.js");
            const here = document.getElementById("main");
            here.innerHTML = before;
            for (const id of ["a", "c"]) document.getElementById(id).open = true;
            document.getElementById("d").open = false;
            put(here, after);
            return [...here.querySelectorAll("details[open]")].map((each) => each.id);
        }""",
        [BEFORE, AFTER],
    )
    assert still == ["a", "c"]
    page.close()
