"""Whether pages say rightly that a version is better: than another one, than what vehicles learn alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.http.dashboard.comparison import Comparison, in_words
from coordinator.service import Service
from glassfleet import catalogue
from schemas.messages import AgentState, Evaluation
from schemas.record import ModelRecord
from tests.support.coordinator_http import publish, served, small_document

PRIVATE = {"floor": 8, "company": 3, "groups": 1, "editions": 1, "vehicles": 9, "rows": 900}
SUMS = {
    "metric": "rmse", "rows": 90, "vehicles": 9, "candidate": 1.5, "constant": 2.0, "local": 1.25,
    "compared": {"constant": 9}, "worse": {"constant": 1}, "worse_by": {"constant": -0.01},
}  # fmt: skip


class Fleet:
    """Three vehicles, and two versions of a model."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        self.service, self.client = service, client
        self.records: list[ModelRecord] = []
        for agent in ("a", "b", "c"):
            service.coordinator.fleet.up(agent, AgentState(status="up", incarnation="1"))
        for slope in (1.0, 0.5):
            model = catalogue.load("frt").from_document(small_document(slope))
            self.records.append(publish(service, model, "m", ["a"], run=f"r{slope}"))

    def scored(self, agent: str, version: int, federated: float, local: float = 2.0, **other: Any) -> None:
        about = {"digest": self.records[version - 1].digest, "metric": "rmse", "rows": 10, **other}
        scores = Evaluation(name="m", version=version, federated=federated, local=local, **about)
        self.service.coordinator.fleet.evaluated(agent, scores)

    def page(self, address: str) -> str:
        answer = self.client.get(address)
        assert answer.status_code == 200
        return answer.text


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with served(tmp_path) as (service, client):
        yield Fleet(service, client)


@pytest.mark.parametrize(("metric", "better"), [("rmse", 1), ("f1", 2)])
def test_comparison_knows_which_way_a_metric_is_better(metric: str, better: int) -> None:
    found = Comparison.of(metric, [("a", 0.5, 0.4), ("b", 0.5, 0.6), ("c", 0.5, 0.75), ("d", 0.5, 0.5001)])
    assert found is not None
    assert found.better == better
    assert [line.agent for line in found.worse] == (["c", "b"] if metric == "rmse" else ["a"])
    assert in_words(found.worse_by) == f"12.5 % {'worse' if metric == 'rmse' else 'better'}"


def test_pages_say_for_whom_a_version_is_better_and_worse_than_the_one_before(fleet: Fleet) -> None:
    for agent, before, after in (("a", 1.0, 0.8), ("b", 1.0, 0.9), ("c", 1.0, 1.2)):
        fleet.scored(agent, 1, before)
        fleet.scored(agent, 2, after)
    for address in ("/models/m/2", "/models/m/2/against/1"):
        text = fleet.page(address)
        assert "<b>3.3 % better than version 1</b>" in text
        assert 'href="/vehicles/c">c</a> <span class="quiet">by 20.0 %</span>' in text
    assert "no better than learning alone" not in text
    assert '<a href="/models/m/2/against/1">version 1</a>' in fleet.page("/models/m/2")
    answer = fleet.client.get("/models/m/compare", params={"after": 1, "before": 2})
    assert answer.headers["location"] == "/models/m/1/against/2"


@pytest.mark.parametrize("other", [{"rows": 11}, {"digest": "0" * 64}, {"metric": "f1"}])
def test_scores_on_other_rows_or_of_another_document_are_not_compared(fleet: Fleet, other: dict[str, Any]) -> None:
    fleet.scored("a", 1, 1.0, **other)
    fleet.scored("a", 2, 0.8)
    assert "No vehicle has sent scores of both versions" in fleet.page("/models/m/2/against/1")
    assert "than version 1" not in fleet.page("/models/m/2")


def test_scores_of_a_candidate_are_compared_with_those_of_the_champion_that_it_was_tried_beside(fleet: Fleet) -> None:
    fleet.scored("a", 2, 0.8, champion=1.0, champion_digest=fleet.records[0].digest)
    assert "<b>20.0 % better than version 1</b>" in fleet.page("/models/m/2/against/1")


@pytest.mark.parametrize(
    ("together", "is_better"), [((1.9, 1.9, 2.5), False), ((1.9, 1.9, 1.9), True), ((1.0, 2.1, 2.1), False)]
)
def test_page_says_where_learning_together_is_no_better_and_what_to_try(
    fleet: Fleet, together: tuple[float, ...], is_better: bool
) -> None:
    for agent, score in zip("abc", together, strict=True):
        fleet.scored(agent, 2, score)
    text = fleet.page("/models/m/2")
    assert ("Learning together is no better than learning alone here" in text) != is_better
    assert ("glassfleet run start --without ID" in text) == (sum(score > 2.0 for score in together) == 1)


def test_curve_has_the_versions_that_were_scored(fleet: Fleet) -> None:
    fleet.scored("a", 2, 0.8)
    assert 'class="curve"' not in fleet.page("/models/m/2")
    fleet.scored("a", 1, 1.0)
    text = fleet.page("/models/m/2")
    assert "together 1 with version 1, 0.8 with version 2" in text


def test_page_of_a_private_run_compares_the_fleets_figures_and_names_nobody(fleet: Fleet) -> None:
    model = catalogue.load("frt").from_document(small_document(0.25))
    publish(fleet.service, model, "m", ["a"], run="p", private=PRIVATE, scores=SUMS)
    fleet.scored("a", 2, 0.8)
    text = fleet.page("/models/m/3")
    assert "<b>20.0 % worse than what each vehicle learns alone</b>" in text
    assert "Learning together is no better than learning alone here</b>. What" in text
    assert "together 0.8 with version 2, 1.5 with version 3" in text
    assert "Numbers of each vehicle" not in text
    assert "Version 3: RMSE over 90 test rows of 9 vehicles: 1.5" in fleet.page("/models/m/3/against/2")
