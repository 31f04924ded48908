"""What only a browser can measure: names of fuzzy sets that do not touch, an answer in sight, parts that stay open."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from coordinator.http.dashboard import show
from coordinator.http.dashboard.assets import HERE
from glassfleet import catalogue, local
from glassfleet.explain import Change, FuzzySet, Partition
from glassfleet.export.svg.sets import memberships
from glassfleet.export.svg.shapes import STYLE
from tests.integration.dashboard.test_size import dataset, domain_of
from tests.support.coordinator_http import publish, served

LONG = (
    *("ExtremelyLow", "VeryLow", "Low", "somewhat unacceptable", "Medium", "High", "satisfactory enough", "VeryHigh"),
    "ExtremelyHigh",
)
WIDE = (
    "WWWWWWWWWW",
    "MMMMMMMM",
    "@@@@@@@@@@",
    "非常に低いです",
    "mmmmmmmmmmmm",
    "ЩЩЩЩЩЩЩЩЩ",
    "é́" * 12,
    "%%%%%%%%",
    "WWWW WWWW",
)
SHORT = tuple("abcdefghi")


def partition(terms: tuple[str, ...], knots: list[float], unit: str = "km/h") -> Partition:
    last = len(terms) - 1
    sets = tuple(
        FuzzySet(term=term, low=knots[max(j - 1, 0)], peak=knots[j], high=knots[min(j + 1, last)])
        for j, term in enumerate(terms)
    )
    return Partition(feature="speed", unit=unit, low=0, high=1, sets=sets)


def drawn_sets() -> list[tuple[int, str]]:
    """Pictures of 2 to 9 sets, names long, wide and short, knots even and crowded: how many sets, and the picture."""
    found = []
    for count, names, power in itertools.product(range(2, 10), (LONG, WIDE, SHORT), (1, 3)):
        knots = [(j / (count - 1)) ** power for j in range(count)]
        whole = partition(names[-count:], knots)
        found.append((count, str(memberships(whole, 0.4, names[-count:][count // 2 :]))))
    return found


def test_names_of_fuzzy_sets_never_touch_or_leave_the_picture(browser: Browser) -> None:
    page = browser.new_page()
    pictures = drawn_sets()
    page.set_content(f"<style>{STYLE.read_text()}</style>" + "".join(p for _, p in pictures))
    measured = page.evaluate(
        """[...document.querySelectorAll("svg.sets")].map((svg) => [...svg.querySelectorAll("text")].map((text) => {
            const box = text.getBBox();
            return [text.lastChild.textContent, box.x, box.x + box.width, Number(text.getAttribute("y"))];
        }))"""
    )
    assert len(measured) == len(pictures)
    for (count, _), texts in zip(pictures, measured, strict=True):
        assert len(texts) >= 4, "two names, and the limits below"
        for _, left, right, _ in texts:
            assert left >= 0
            assert right <= 340
        for (name, _, right, y), (other, left, _, below) in itertools.combinations(
            sorted(texts, key=lambda t: t[1]), 2
        ):
            assert y != below or right < left, f"{count} sets: {name!r} and {other!r}"
    page.close()


def test_short_names_of_up_to_nine_sets_are_whole_in_one_line() -> None:
    for count in range(2, 10):
        text = memberships(partition(SHORT[:count], [j / (count - 1) for j in range(count)]), None)
        assert re.findall(r'y="15">(\w)</text>', text) == list(SHORT[:count])


def test_standard_names_of_seven_sets_are_whole() -> None:
    names = ("ExtremelyLow", "VeryLow", "Low", "Medium", "High", "VeryHigh", "ExtremelyHigh")
    text = memberships(partition(names, [j / 6 for j in range(7)]), None)
    assert "…" not in text
    assert set(names) <= set(re.findall(r">(\w+)</text>", text))


def test_sets_behind_a_condition_stay_in_sight(browser: Browser) -> None:
    page = browser.new_page()
    names = ("VeryLow", "Low", "Medium", "High", "VeryHigh")
    text = memberships(partition(names, [0, 0.25, 0.5, 0.75, 1]), 0.6, names[1:])
    page.set_content(f"<style>{STYLE.read_text()}</style>{text}")
    # Later shapes lie over earlier ones: after the last filled one come all sets, and then the outline.
    shapes = page.evaluate(
        """[...document.querySelectorAll("svg.sets polygon, svg.sets polyline")].map((each) =>
            [each.getAttribute("class"), getComputedStyle(each).fill])"""
    )
    assert [name for name, _ in shapes] == ["area on", *["set"] * 5, "set on"]
    assert shapes[0][1] != "none"
    assert {fill for _, fill in shapes[1:]} == {"none"}
    (ring,) = re.findall(r'<circle class="held" cx="[\d.]+" cy="([\d.]+)"', text)
    assert ring == "24.0", "at least Low: fulfilled to the degree 1"
    page.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A coordinator with a model whose rules join conditions."""
    scheme = catalogue.load("fmt")
    data = dataset(tuple(f"column_{number}" for number in range(12)), labels=False, rows=1500)
    domain = domain_of(data, labels=False)
    model = local.federated(scheme, scheme.Parameters(), domain, {"a": data}).model
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


def test_forecast_page_tells_the_degree_of_each_condition(shop: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{shop}/models/m/1/forecast?" + "&".join(f"x{number}=0.37" for number in range(12)))
    row = {f"column_{number}": 0.37 for number in range(12)}
    told = page.request.post(f"{shop}/api/models/m/explain", data={"row": row}).json()["fired"]
    wanted = [
        f"is {part['term']} to the degree {degree:.2f}"
        for part, degree in zip(told["rule"]["conditions"], told["memberships"], strict=True)
    ]
    assert wanted
    assert sorted(page.locator(".degrees:has(i)").all_inner_texts()) == sorted(wanted)
    page.close()


def change(before: float, after: float, unit: str = "dB", text: str = "") -> Change:
    told = {"before_text": text or f"{before:.6g} {unit}".rstrip(), "after_text": f"{after:.6g} {unit}"}
    return Change(feature="a", unit=unit, before=before, after=after, share_of_range=0.1, **told)


def test_value_before_a_change_has_the_digits_and_the_sign_of_the_other_numbers() -> None:
    assert show.before(change(-0.93754321, 2)) == "−0.9375 dB"
    assert show.before(change(0.5, 2, "")) == "0.5"
    assert show.before(change(-12.34561, -12.34564)) == "−12.3456 dB"
    assert show.before(change(1, 0, "", "-10 to 5")) == "-10 to 5"


def test_category_before_a_change_is_whole_when_its_name_begins_with_its_position() -> None:
    assert show.before(change(1, 0, "", "1080p")) == "1080p"
    assert show.before(change(2, 0, "", "2 lanes")) == "2 lanes"
    assert show.before(change(0, 1, "", "0")) == "0"


def test_large_value_before_a_change_has_no_exponent_when_its_text_has_none() -> None:
    assert show.before(change(25431, 18000, "kbit/s")) == "25431 kbit/s"
    assert show.before(change(-254310.5, 18000, "")) == "−254310"
    assert show.before(change(2.543111e7, 18000, "bit/s")) == "2.543e+07 bit/s"


ROLES = {
    "table": {"table"},
    "thead": {"rowgroup"},
    "tbody": {"rowgroup"},
    "tr": {"row"},
    "td": {"cell"},
    "th": {"columnheader", "rowheader"},
}


def test_table_keeps_its_roles_for_those_who_listen_when_it_is_drawn_as_cards() -> None:
    sources = {path.name: path.read_text() for path in (HERE / "templates").glob("*.html")}
    tags = [
        (name, tag, dict(re.findall(r'(\w+)="([^"]*)"', attributes)))
        for name, source in sources.items()
        for tag, attributes in re.findall(rf"<({'|'.join(ROLES)})\b([^>]*)>", source)
    ]
    assert {tag for _, tag, _ in tags} == set(ROLES)
    assert [each for each in tags if each[2].get("role") not in ROLES[each[1]]] == []
    heads = {(each["scope"], each["role"]) for _, tag, each in tags if tag == "th"}
    assert heads == {("col", "columnheader"), ("row", "rowheader")}


def test_number_is_read_with_the_sign_that_the_pages_write(shop: str) -> None:
    answer = httpx.get(f"{shop}/models/m/1/forecast", params={"x0": "−0.25"}, trust_env=False, timeout=60)
    assert 'value="-0.25"' in answer.text
    assert "must be a number" not in answer.text


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
