"""Pages say what is true of the model at hand: rules, OTHERWISE, networks, structures, crisp trees, no shares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from glassfleet.explain import ModelView
from glassfleet.explain.branches import Branch
from glassfleet.export.formats import export
from glassfleet.model.protocol import Model
from schemas.messages import Evaluation
from tests.support import sample_models
from tests.support.coordinator_http import births, publish, served
from tests.support.dashboard_world import OPEN, SIDEWAYS

KINDS = (
    "frt", "tree", "tsk", "frbc", "tree-classes", "tree-text", "dp_tree", "dp_tree-text", "fedavg_mlp-numbers",
    "fedavg_mlp-classes",
)  # fmt: skip
NAMES = {kind: kind.replace("-", "_") for kind in KINDS} | {"population": "population"}


def model(kind: str) -> Model:
    return sample_models.population() if kind == "population" else sample_models.model(kind)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A coordinator with a model of every kind, each with scores."""
    with served(tmp_path_factory.mktemp("shop")) as (service, client):
        births(service, 3)
        for kind, name in NAMES.items():
            record = publish(service, model(kind), name, ["vehicle-0000"])
            metric: Literal["rmse", "f1"] = "rmse" if model(kind).domain.target is not None else "f1"
            size = len(model(kind).domain.classes) + 1
            for number in range(3):
                counts = np.diag([4] * size)
                counts[1:2, 0] = 2
                if number == 2:
                    counts[[0, *range(2, size)]] = 0  # all of its rows are of the second class
                result = Evaluation(
                    name=name,
                    version=1,
                    digest=record.digest,
                    metric=metric,
                    federated=0.2,
                    local=0.3,
                    rows=int(counts.sum()) if metric == "f1" else 9,
                    confusion=counts.tolist() if metric == "f1" else None,
                )
                service.coordinator.fleet.evaluated(f"vehicle-{number:04d}", result)
        for kind in ("dp_tree", "frt"):
            publish(service, model(kind), "pair", ["vehicle-0000"], run=kind)
        yield client


def text_of(shop: httpx.Client, address: str, **query: Any) -> str:
    answer = shop.get(address, params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


def words_of(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.mark.parametrize("kind", ["fedavg_mlp-numbers", "fedavg_mlp-classes"])
def test_page_of_a_network_has_no_rules(shop: httpx.Client, kind: str) -> None:
    text = text_of(shop, f"/models/{NAMES[kind]}")
    assert "it has no rules" in text
    for untrue in ("<dt>Rules</dt>", "rules-h", "support", "confidence", "ALWAYS", 'data-label="Rules"'):
        assert untrue not in text, untrue
    for name in sample_models.NAMES:
        assert f'scope="row">{name}</th>' in text
    forecast = text_of(shop, f"/models/{NAMES[kind]}/1/forecast")
    for untrue in ("because of rule", "ALWAYS", "by the rule", "to the degree", "Runners-up"):
        assert untrue not in forecast, untrue
    assert "there are no shares" in forecast
    assert "Each input's share" in forecast


@pytest.mark.parametrize("kind", ["tree", "dp_tree", "fedavg_mlp-classes", "population"])
def test_links_at_the_top_lead_to_the_parts_of_the_page(shop: httpx.Client, kind: str) -> None:
    text = text_of(shop, f"/models/{NAMES[kind]}")
    top = text[text.index('aria-label="On this page"') :].partition("</nav>")[0]
    linked = re.findall(r'href="#([a-z-]+)"', top)
    assert linked == re.findall(r'<h2 id="([a-z-]+)"', text)


@pytest.mark.parametrize("kind", ["tree", "fedavg_mlp-numbers", "population"])
def test_model_is_downloaded_as_the_file_that_the_command_writes(shop: httpx.Client, kind: str) -> None:
    text = text_of(shop, f"/models/{NAMES[kind]}")
    offered = re.findall(rf'href="(/models/{NAMES[kind]}/1/download\?format=(\w+))"', text)
    assert [name for _, name in offered] == {
        "tree": ["c", "fml", "svg"], "fedavg_mlp-numbers": ["c"], "population": ["svg"]
    }[kind]  # fmt: skip
    for address, name in offered:
        answer = shop.get(address)
        assert answer.status_code == 200
        assert answer.content == export(model(kind), name, title=f"{NAMES[kind]} v1")
        suffix = {"c": ".h", "svg": ".svg", "fml": ".xml"}[name]
        assert answer.headers["content-disposition"] == f'attachment; filename="{NAMES[kind]}-v1{suffix}"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        media = {"c": "text/x-c", "svg": "image/svg+xml", "fml": "application/xml"}[name]
        assert answer.headers["content-type"] == f"{media}; charset=utf-8"
    for wrong in ("png", "json", ""):
        answer = shop.get(f"/models/{NAMES[kind]}/1/download", params={"format": wrong})
        assert answer.status_code == 422
        assert "format must be one of" in answer.text


def test_confusion_is_summed_over_vehicles_and_a_class_alone_is_said_beside_its_score(shop: httpx.Client) -> None:
    text = text_of(shop, "/models/dp_tree")
    table = text[text.index('class="as-cards confusion"') :].partition("</table>")[0]
    lines = [re.findall(r">([^<>]+)</t[hd]>", line) for line in table.split("<tr")[2:]]
    bad, fair, good = model("dp_tree").domain.classes
    assert lines == [
        [bad, "8", "0", "0", "100 %"],
        [fair, "6", "12", "0", "66.7 %"],
        [good, "0", "0", "8", "100 %"],
        ["another label", "0", "0", "0", "0 %"],
        ["Right", "57.1 %", "100 %", "100 %"],
    ]
    result = {line[:12]: line for line in re.findall(r"vehicle-000\d</a>.*?</tr>", text)}
    assert [agent for agent, line in result.items() if f"all rows are {fair}" in line] == ["vehicle-0002"]
    only = shop.get("/api/models/dp_tree/1/scores").json()["vehicles"]
    assert [each["only"] for each in only.values()] == ["", "", fair]
    assert "confusion" not in text_of(shop, "/models/frt")


def test_page_of_a_population_ranks_structures_and_says_what_a_vehicle_makes_of_them(shop: httpx.Client) -> None:
    text = text_of(shop, "/models/population")
    body = sample_models.population().to_document()["model"]
    order = sorted(range(len(body["fitness"])), key=lambda at: (-body["fitness"][at], at))
    shown = [int(each) for each in re.findall(r'data-label="Structure">(\d+)<', text)]
    assert shown == [at + 1 for at in order][: len(shown)]
    assert len(shown) == min(len(order), 25)
    for untrue in ("<dt>Rules</dt>", "rules-h", "support", "confidence", "ALWAYS", "<dt>Nodes</dt>"):
        assert untrue not in text, untrue
    assert "<dt>Mean nodes</dt>" in text
    assert "personal tree" in text
    assert "<code>glassfleet forecast explain --at last --id VEHICLE</code>" in text
    forecast = text_of(shop, "/models/population/1/forecast")
    assert "every row gets the same answer" in forecast
    for untrue in ("because of rule", "ALWAYS", "by the rule", "Each input's share", "found"):
        assert untrue not in words_of(forecast), untrue


def test_structure_is_a_tree_that_opens_with_the_keyboard(shop: httpx.Client, page: Page) -> None:
    number = len(sample_models.population().to_document()["model"]["structures"])
    page.goto(f"{str(shop.base_url).rstrip('/')}/models/population?structure={number}&branch=")
    expect(page.locator("#tree-h")).to_have_text(f"Structure {number} as a tree")
    page.evaluate("window.same = true")
    boxes = page.locator("#tree svg .box")
    before = boxes.count()
    branch = page.locator("#tree svg a[data-branch]:not([data-branch=''])").first
    key = branch.get_attribute("data-branch")
    branch.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**branch={key}#tree")
    assert page.evaluate("window.same")
    assert f"structure={number}" in page.url
    assert page.evaluate("document.activeElement.dataset.branch") == key
    page.keyboard.press("Enter")
    page.wait_for_url("**branch=#tree")
    expect(boxes).to_have_count(before)


def test_tree_fits_its_box_and_can_be_zoomed_and_dragged(shop: httpx.Client, page: Page) -> None:
    page.set_viewport_size({"width": 900, "height": 700})
    page.goto(f"{str(shop.base_url).rstrip('/')}/models/tree")
    box, tree = page.locator("#tree .wide"), page.locator("#tree .wide svg")
    fits = float(tree.get_attribute("width") or 0)
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    for _ in range(3):
        page.click("#zoom button[data-zoom=in]")
    assert float(tree.get_attribute("width") or 0) == pytest.approx(fits * 1.25**3, rel=0.01)
    box.scroll_into_view_if_needed()
    edges = box.bounding_box()
    assert edges is not None
    x, y = edges["x"] + edges["width"] / 2, edges["y"] + 40
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 120, y, steps=4)
    page.mouse.up()
    assert box.evaluate("box => box.scrollLeft") == pytest.approx(120, abs=2)
    assert page.url.endswith("/models/tree")  # the end of a drag opens nothing
    page.click("#zoom button[data-zoom=fit]")
    expect(tree).to_have_attribute("width", f"{fits:.0f}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsk", "dp_tree-text", "fedavg_mlp-classes", "population"])
def test_pages_of_every_kind_of_model_fit_and_have_no_accessibility_faults(
    shop: httpx.Client, page: Page, kind: str
) -> None:
    base = str(shop.base_url).rstrip("/")
    for address in (f"/models/{NAMES[kind]}", f"/models/{NAMES[kind]}/1/forecast"):
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(base + address)
        page.evaluate(OPEN)
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(SIDEWAYS) == []
        result = Axe().run(page, options={"runOnly": {"type": "rule", "values": ["color-contrast"]}})
        assert result.violations_count == 0, result.generate_report()
        page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("kind", ["dp_tree", "dp_tree-text"])
def test_crisp_tree_is_drawn_as_it_was_learned(kind: str) -> None:
    made = sample_models.model(kind)
    root = ModelView(made).root
    assert (root.count, len(root.children)) == (len(made.rules()), 2)
    assert root.support == pytest.approx(sum(rule.support for rule in made.rules()))
    seen = []

    def follow(branch: Branch, held: dict[str, tuple[float, float]]) -> None:
        if branch.condition is not None:
            part = branch.condition
            low, high = held.get(part.feature, (part.low, part.high))
            held = {**held, part.feature: (max(low, part.low), min(high, part.high))}
        for child in branch.children:
            assert branch.feature
            follow(child, held)
        if not branch.children:
            (rule,) = branch.rules
            seen.append(rule.index)
            assert held == {part.feature: (part.low, part.high) for part in rule.conditions}

    follow(root, {})
    assert seen == list(range(len(made.rules())))
