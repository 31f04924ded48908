"""Pages say what is true of the model at hand: rules, OTHERWISE, networks, structures, crisp trees, no shares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from coordinator.http.dashboard import show
from coordinator.http.dashboard.library import LoadedModel
from coordinator.http.dashboard.model_pages import MOST_SHARES, _parts
from glassfleet import catalogue
from glassfleet.explain import Partition, difference, explain_row
from glassfleet.export.svg.branches import Branch, grow
from glassfleet.export.svg.charts import scores, shares
from glassfleet.export.svg.sets import cuts
from glassfleet.export.svg.structures import Structure, uses
from glassfleet.export.svg.trees import RuleTree
from glassfleet.rules import Rule
from glassfleet.scheme import Model
from schemas.errors import NotFoundError
from schemas.messages import Evaluation
from schemas.record import ModelRecord
from tests.support import sample_models
from tests.support.coordinator_http import births, publish, served
from tests.support.dashboard_world import OPEN, SIDEWAYS

KINDS = (
    "frt",
    "fmt",
    "tsk",
    "frbc",
    "fmt_classes",
    "fmt_classes-text",
    "dp_tree",
    "dp_tree-text",
    "fedavg_mlp-numbers",
    "fedavg_mlp-classes",
)
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
            for number in range(3):
                told = Evaluation(
                    name=name, version=1, digest=record.digest, metric=metric, federated=0.2, local=0.3, rows=9
                )
                service.coordinator.fleet.evaluated(f"vehicle-{number:04d}", told)
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
    assert ("not even shares" in forecast) == (kind == "fedavg_mlp-classes")
    assert "Each input's share" in forecast


def test_network_says_that_equality_is_never_promised(shop: httpx.Client) -> None:
    text = text_of(shop, "/models/fedavg_mlp_numbers")
    assert "fedavg_mlp does not promise it, whatever its parameters are" in text
    assert "with these parameters" not in text


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
    assert "<code>glassfleet explain --at last --id VEHICLE</code>" in text
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
    expect(boxes).to_have_count(3)
    shut = page.locator("#tree svg a:has(.box.shut)").first
    key = shut.get_attribute("data-branch")
    shut.focus()
    page.keyboard.press("Enter")
    expect(boxes).to_have_count(5)
    assert page.evaluate("window.same")
    assert f"structure={number}" in page.url
    assert f"branch={key}#tree" in page.url
    assert page.evaluate("document.activeElement.dataset.branch") == key
    page.click("text=draw structure 1")
    expect(page.locator("#tree-h")).to_have_text("Structure 1 as a tree")


@pytest.mark.parametrize("kind", ["tsk", "dp_tree-text", "fedavg_mlp-classes", "population"])
def test_pages_of_every_kind_of_model_fit_and_have_no_accessibility_faults(
    shop: httpx.Client, page: Page, kind: str
) -> None:
    base = str(shop.base_url).rstrip("/")
    for address in (f"/models/{NAMES[kind]}", f"/models/{NAMES[kind]}/1/forecast"):
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(base + address)
        page.evaluate(OPEN)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(SIDEWAYS) == []
        found = Axe().run(page, options={"runOnly": {"type": "rule", "values": ["color-contrast"]}})
        assert found.violations_count == 0, found.generate_report()
        page.emulate_media(color_scheme="light")


def genes(*values: int) -> Structure:
    return Structure(1, values, 0.5, sample_models.FEATURES)


def test_structure_is_read_in_the_order_that_it_asks() -> None:
    whole = genes(0, 1, -1, -1, 2, -1, 1, -1, -1)
    assert (whole.leaves, whole.depth, whole.asked) == (5, 3, [("dist", 2), ("load", 1), ("snr", 1)])
    root = whole.root
    assert (root.feature, root.count) == ("snr", 5)
    assert [child.feature for child in root.children] == ["dist", "load"]
    assert [child.feature for child in root.children[1].children] == ["", "dist"]
    assert [child.key for child in root.children[1].children] == ["1.0", "1.1"]
    assert (genes(-1).leaves, genes(-1).depth, genes(-1).root.children) == (1, 0, [])
    domain = sample_models.population().domain
    first, *_, last = uses([whole, genes(1, -1, -1)], domain)
    assert (first.feature, first.structures, first.share, first.splits) == ("dist", 2, 1.0, 3)
    assert (last.feature, last.structures, last.splits) == ("speed", 0, 0)


def test_page_of_two_versions_counts_rules_as_the_command_does(shop: httpx.Client) -> None:
    text = words_of(text_of(shop, "/models/pair/2/against/1"))
    old, new = (stored(shop, "pair", version) for version in (1, 2))
    found = difference(old, new)
    assert found.added
    assert found.gone
    kept = found.kept + len(found.restated)
    assert f"{len(found.added)} rules are new, {len(found.gone)} are gone, {len(found.changed)} have another" in text
    assert f"{kept} are as they were" in text
    for change in found.in_words("limits", "terms", "domain", "parameters", "training"):
        assert f"{change.name} {change.before} {change.after}" in text, change
    assert "Rules that are gone" in text
    assert f"and {len(found.gone) - 40} more" in text


def stored(shop: httpx.Client, name: str, version: int) -> tuple[ModelRecord, Model]:
    record = ModelRecord.load(shop.get(f"/api/models/{name}/{version}").content)
    return record, catalogue.load(record.scheme).from_document(record.document)


def otherwise(rules: Any) -> Rule:
    (found,) = [rule for rule in rules if rule.otherwise]
    assert isinstance(found, Rule)
    return found


def test_otherwise_is_never_called_always(shop: httpx.Client) -> None:
    last = otherwise(sample_models.model("tsk").rules())
    text = text_of(shop, "/models/tsk")
    assert "ALWAYS" not in text
    assert "OTHERWISE" in words_of(text)
    row = next(
        row
        for row in sample_models.wide_rows(400)
        if explain_row(sample_models.model("tsk"), row).fired.rule.index == last.index
    )
    query = {f"x{index}": repr(float(value)) for index, value in enumerate(row)}
    forecast = words_of(text_of(shop, "/models/tsk/1/forecast", **query))
    assert f"because no other rule fires for this row, so OTHERWISE answers (rule {last.index}):" in forecast
    assert forecast.count("no other rule fires") == 1
    for untrue in ("ALWAYS", "highest weight", "to the degree 1 "):
        assert untrue not in forecast.split("Memberships")[0], untrue
    assert "Memberships The rule names no input." in forecast


def test_otherwise_has_a_box_of_its_own_in_the_tree() -> None:
    rules = sample_models.model("tsk").rules()
    root = grow(rules)
    assert (root.children[-1].rules, root.rules) == ([otherwise(rules)], [])
    assert root.count == len(rules)
    text = str(RuleTree([root], "/models/m/1").picture())
    assert ">OTHERWISE</text>" in text
    assert f'href="#rule-{otherwise(rules).index}"' in text


@pytest.mark.parametrize("kind", ["dp_tree", "dp_tree-text"])
def test_crisp_tree_is_drawn_as_it_was_learned(kind: str) -> None:
    made = sample_models.model(kind)
    root = LoadedModel(SimpleNamespace(document=made.to_document()), made).root  # type: ignore[arg-type]
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


def test_forecast_begins_with_a_row_that_a_rule_decides(shop: httpx.Client) -> None:
    for kind in ("frt", "fmt", "tsk", "frbc", "dp_tree"):
        text = words_of(text_of(shop, f"/models/{NAMES[kind]}/1/forecast"))
        assert "For a row that a much used rule decides, as an example." in text
        assert "because of rule" in text
        assert "Base and shares add up" in text, kind


def test_forecast_says_why_there_is_nothing_to_share_out(shop: httpx.Client) -> None:
    told = ((row, explain_row(sample_models.model("frbc"), row)) for row in sample_models.wide_rows(2000))
    row, found = next((row, each) for row, each in told if not any(each.shares.values()))
    query = {f"x{index}": repr(float(value)) for index, value in enumerate(row)}
    text = words_of(text_of(shop, "/models/frbc/1/forecast", **query))
    (why,) = [note for note in found.notes if "share" in note]
    assert f"Each input's share {why}" in text
    assert text.count(why) == 1


def test_crisp_condition_has_its_limits_in_numbers_and_its_side_shaded(shop: httpx.Client) -> None:
    partition = Partition(feature="a", unit="m", low=0.0, high=100.0, thresholds=(20.0, 60.5, 80.0))
    text = str(cuts(partition, 30.0, (20.0, 60.5)))
    assert re.findall(r'class="tick mid strong"[^>]*>([^<]+)<', text) == ["20", "60.5"]
    (left, width) = map(float, re.findall(r'class="area on" x="([\d.]+)" y="\d+" width="([\d.]+)"', text)[0])
    assert [left, left + width] == pytest.approx([8 + 0.2 * 324, 8 + 0.605 * 324], abs=0.1)
    assert text.count('class="set on"') == 2
    assert text.count('class="set"') == 1
    beside = str(cuts(partition, 30.0))
    assert re.findall(r'class="tick mid"[^>]*>([^<]+)<', beside) == ["20", "60.5"]
    assert "area" not in beside
    forecast = text_of(shop, "/models/dp_tree/1/forecast")
    assert '<rect class="area on"' in forecast
    assert "which the row meets:" in forecast


def test_share_of_the_last_input_has_its_name() -> None:
    def parts(count: int) -> list[tuple[str, float]]:
        return _parts(SimpleNamespace(shares={f"c{at}": float(at + 1) for at in range(count)}))  # type: ignore[arg-type]

    assert [name for name, _ in parts(MOST_SHARES + 1)][-1] == "c0"
    assert len(parts(MOST_SHARES + 1)) == MOST_SHARES + 1
    assert parts(MOST_SHARES + 2)[-1] == ("the other 2", 3.0)


def test_total_of_a_class_is_not_called_the_forecast() -> None:
    told = explain_row(sample_models.model("dp_tree"), np.array([5.0, 50.0, 0.5, 2.5]))
    assert told.measure
    assert ">total</text>" in shares(told.base, _parts(told), 0.8, "", "total")
    assert ">forecast</text>" in shares(told.base, _parts(told), 0.8, "m")


def test_chart_of_scores_names_its_axis(shop: httpx.Client) -> None:
    rows = [("v1", 0.3, 0.2, None)]
    assert scores(rows, "rmse", unit="points").count("RMSE in points, less is better</text>") == 2
    assert "F1, more is better</text>" in scores(rows, "f1", unit="")
    assert "RMSE in points, less is better" in text_of(shop, "/models/frt")


def test_support_bars_say_what_a_full_one_is(shop: httpx.Client) -> None:
    most = max(rule.support for rule in sample_models.model("frt").rules())
    assert f"a full bar is the support of the most used rule, {most:.3g}." in text_of(shop, "/models/frt")


def test_model_page_gives_the_reason_of_the_run_page() -> None:
    document = {"agents": {"v1": {"status": "late", "reason": "answered domain 2 after its end"}}}
    record: Any = SimpleNamespace(run="r", training=SimpleNamespace(dropped={"v1": "deadline", "v2": "deadline"}))

    def forgotten(_run: str) -> Any:
        raise NotFoundError("no such run")

    known: Any = SimpleNamespace(runs=SimpleNamespace(document=lambda _run: document))
    gone: Any = SimpleNamespace(runs=SimpleNamespace(document=forgotten))
    assert show.not_in(known, record) == [
        ("v1", "answered domain 2 after its end"),
        ("v2", "no answer by the deadline"),
    ]
    assert show.not_in(gone, record) == [(name, "no answer by the deadline") for name in ("v1", "v2")]
