"""The tables of runs and models: what a line says, sorted, filtered and paged on the server, two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.runs.view import suspended_document
from coordinator.service import Service
from glassfleet import catalogue
from schemas.messages import Evaluation
from tests.support.coordinator_http import EVIL, births, publish, served, small_document


class World:
    """Runs that have ended, two of which made versions that two vehicles have scored."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        self.service, self.client, self.core = service, client, service.coordinator
        births(service, 2)
        for number, (run, name) in enumerate([("dusk", "bikes"), ("dawn", "bikes"), ("noon", "cars")]):
            model = catalogue.load("frt").from_document(small_document(1.0 - number / 4))
            record = publish(service, model, name, ["vehicle-0000"], run=run)
            made = {"name": name, "version": record.version, "digest": record.digest}
            parameters = {"max_depth": 3 - number, "n_sets": 5}
            self.ended(
                run,
                number * 1000,
                spec={"scheme": "frt", "model": name, "parameters": parameters},
                model=made,
                size={"leaves": 20 - number},
                target="rented" if name == "bikes" else "worn",
            )
            for agent, together in (("vehicle-0000", 0.4), ("vehicle-0001", 0.2)):
                scores: dict[str, Any] = {"metric": "rmse", "federated": together + number, "local": 0.6, "rows": 10}
                self.core.fleet.evaluated(
                    agent, Evaluation(name=name, version=record.version, digest=record.digest, **scores)
                )
        hostile = {"scheme": EVIL[:60], "model": "bikes", "parameters": {"x": EVIL}}
        self.ended("lost", 9000, spec=hostile, outcome="failed", reason=f"not-enough-agents {EVIL}")

    def ended(self, run: str, at: float, *, spec: dict[str, Any], outcome: str = "finished", **other: Any) -> None:
        told = {"run": run, "spec": {"run": run, **spec}, "started": at, "reason": ""}
        document = {**suspended_document(told, ended=at + 60 + at / 10), "outcome": outcome, "reason": "", **other}
        self.core.runs.journal.close_run(run, document, 0.0, keep_records=False)
        self.core.runs.__post_init__()

    def lines(self, address: str) -> list[str]:
        """Return what the lines' heads are, in order."""
        text = self.client.get(address).text
        return [part.split(">", 2)[2].split("<")[0] for part in text.split('<th role="rowheader" scope="row"')[1:]]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served(tmp_path_factory.mktemp("tables")) as (service, client):
        yield World(service, client)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["lost", "noon", "dawn", "dusk"]),
        ("sort=-started", ["dusk", "dawn", "noon", "lost"]),
        ("sort=score", ["dusk", "dawn", "noon", "lost"]),
        ("sort=-score", ["dawn", "dusk", "noon", "lost"]),
        ("sort=rules", ["noon", "dawn", "dusk", "lost"]),
        ("sort=took", ["lost", "noon", "dawn", "dusk"]),
        ("sort=nonsense", ["lost", "noon", "dawn", "dusk"]),
        ("q=BIKES+max_depth%3D2", ["dawn"]),
        ("q=worn", ["noon"]),
        ("q=enough&state=failed", ["lost"]),
        ("state=finished&sort=run", ["dawn", "dusk", "noon"]),
        ("q=nothing", []),
        ("page=9", ["lost", "noon", "dawn", "dusk"]),
    ],
)
def test_runs_are_sorted_and_filtered_on_the_server(there: World, query: str, found: list[str]) -> None:
    assert there.lines(f"/runs?{query}") == found


def test_line_of_a_run_says_target_score_rules_parameters_and_time(there: World) -> None:
    text = there.client.get("/runs?q=dusk").text
    for words in (">rented<", ">0.3 <", ">20<", ">max_depth=3<", ">1 min 0 s<", 'href="/models/bikes/1"'):
        assert words in text
    assert EVIL not in there.client.get("/runs").text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["bikes", "cars"]),
        ("sort=-model", ["cars", "bikes"]),
        ("sort=rules", ["cars", "bikes"]),
        ("q=worn", ["cars"]),
    ],
)
def test_models_are_sorted_and_filtered_on_the_server(there: World, query: str, found: list[str]) -> None:
    assert there.lines(f"/models?{query}") == found


def test_line_of_a_model_whose_run_is_forgotten_comes_from_its_record(tmp_path: Path) -> None:
    with served(tmp_path) as (service, client):
        publish(service, catalogue.load("frt").from_document(small_document()), "old", ["v"], run="forgotten")
        text = client.get("/models").text
        assert ">y</td>" in text  # the target
        assert 'value="forgotten"' not in text


def test_two_ticked_runs_are_compared_with_what_differs(there: World) -> None:
    text = there.client.get("/compare?run=dusk&run=dawn").text
    for words in ("parameters.max_depth", 'href="/models/bikes/2/against/1"', ">0.3<", "<b>1.3</b>"):
        assert words in text
    assert "parameters.n_sets" not in text  # the same, if only one had said so
    assert there.client.get("/compare?run=dusk").status_code == 422
    assert there.client.get("/compare?run=dusk&run=none").status_code == 404
    assert EVIL not in there.client.get("/compare?run=dusk&run=lost").text


def test_runs_that_have_ended_are_read_once_and_never_whole(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    there.client.get("/runs?q=x")
    journal = there.core.runs.journal
    asked: list[str] = []
    monkeypatch.setattr(journal, "document", asked.append)

    def overviews(runs: list[str]) -> dict[str, Any]:
        asked.extend(runs)
        return {}

    monkeypatch.setattr(journal, "overviews", overviews)
    assert there.lines("/runs") == ["lost", "noon", "dawn", "dusk"]
    assert len(there.client.get("/api/runs").json()) == 4
    assert asked == []


@pytest.mark.parametrize("version", ["7", "9" * 18, "9" * 5000])
@pytest.mark.parametrize("rest", ["", "/forecast", "/against/1"])
def test_version_that_there_is_not_is_a_page_that_says_so(there: World, version: str, rest: str) -> None:
    answer = there.client.get(f"/models/bikes/{version}{rest}")
    assert answer.status_code == 404
    assert f"no version {version}" in answer.text or "no such address: /models/bikes/999" in answer.text


def test_page_of_a_model_does_not_read_the_records_of_all_versions(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(type(there.core.registry), "versions")
    assert there.client.get("/models/bikes/2").status_code == 200
    assert there.client.get("/models/bikes/2/against/1").status_code == 200
