"""Which vehicles need somebody, pages of the fleet and of one vehicle; tables of runs and models, side by side."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from console.main import cli
from coordinator.duty import BROKE_OFF, STOPPED, look
from coordinator.http.dashboard.vehicles import chosen
from coordinator.process.service import Service
from coordinator.runs.attendance import Recent
from coordinator.runs.directory import Runs
from coordinator.runs.view import suspended_document
from coordinator.specification.run import RunSpec
from glassfleet.contract import catalogue
from schemas.messages import AgentState, Evaluation
from tests.support.coordinator_http import EVIL, births, publish, served, small_document

VEHICLES = [f"v{number}" for number in range(8)]


class World:
    """Eight vehicles that are up, and a model with two versions, of which the second is in use."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        self.client, self.core = client, service.coordinator
        self.fleet = self.core.fleet
        for agent in VEHICLES:
            self.fleet.up(agent, AgentState(status="up", incarnation="1", software="s 1", features=[EVIL]))
        models = [catalogue.load("frt").from_document(small_document(slope)) for slope in (1.0, 0.5)]
        self.digests = [publish(service, each, "m", ["v0"], run=f"r{n}").digest for n, each in enumerate(models)]
        registry = self.core.registry
        registry.decide([registry.aliases.to_current("m", 2, self.digests[1], "published")])

    def scored(self, agent: str, version: int, federated: float, **other: Any) -> None:
        about = {"metric": "rmse", "local": 2.0, "rows": 10, "constant": 3.0, **other}
        scores = Evaluation(name="m", version=version, digest=self.digests[version - 1], federated=federated, **about)
        self.fleet.evaluated(agent, scores)

    def ran(self, run: str, agents: dict[str, tuple[str, str]], **other: Any) -> None:
        """Write a run that has ended into the journal."""
        document = suspended_document({"run": run, "spec": {"scheme": "frt"}, "started": 0.0, "reason": ""}, ended=1.0)
        result = {agent: {"status": status, "reason": reason} for agent, (status, reason) in agents.items()}
        self.core.runs.journal.close_run(run, {**document, "agents": result, **other}, 0.0)
        self.core.runs.__post_init__()

    def needs(self) -> dict[str, list[str]]:
        """Return what is said of who needs somebody, in the page's order."""
        fleet = look(self.core, Recent())
        return {agent: [cause.words for cause in fleet.causes[agent]] for agent in chosen(fleet, status="needs")}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with served(tmp_path) as (service, client):
        yield World(service, client)


def test_who_needs_somebody_stands_first_the_most_urgent_at_the_top(there: World) -> None:
    for agent in VEHICLES:
        there.scored(agent, 1 if agent == "v4" else 2, {"v5": 2.3, "v6": 2.4, "v3": 40.0}.get(agent, 1.9))
    there.ran("dusk", {"v0": ("dropped", "refused: no sensor"), "v1": ("member", "")})
    there.ran("dawn", {"v0": ("idle", ""), "v1": ("late", "answered statistics 3 after its end"), "v7": ("member", "")})
    private = {"spec": {"scheme": "frt", "private": {"floor": 8}}, "false_answers": ["v7"]}
    there.ran("noon", {"v7": ("idle", "")}, **private)
    there.fleet.down("v2", None)
    assert there.needs() == {
        "v7": ["gave false answers, or ended private runs by refusing: these leave it out"],
        "v0": ["refused: no sensor"],
        "v3": [
            "its RMSE is 40, the median vehicle's is 1.9; always forecasting the mean would have 3",
            "more than 900 % worse than alone with m",
        ],
        "v2": [BROKE_OFF],
        "v1": ["late: answered statistics 3 after its end"],
        "v4": ["scored m v1 last, in use is v2"],
        "v6": ["20.0 % worse than alone with m"],
        "v5": ["15.0 % worse than alone with m"],
    }


@pytest.mark.parametrize("is_trial", [True, False], ids=["beside a new version", "again, when its agent began anew"])
@pytest.mark.parametrize(
    ("errors", "named"),
    [
        ({"v1": 8.0}, ["v1"]),
        ({"v1": 8.0, "v2": 0.6, "v3": 0.5}, ["v1"]),
        ({"v1": 8.0, "v2": 8.0, "v3": 7.0}, []),  # snow, say
        ({"v1": 1.4, "v2": 0.4}, []),
    ],
)
def test_vehicle_on_which_one_version_became_far_worse_is_named_in_the_smallest_fleets(
    there: World, errors: dict[str, float], named: list[str], is_trial: bool
) -> None:
    for agent in errors:
        there.scored(agent, 1, 0.5, rows=40)
    for agent, error in errors.items():
        if is_trial:
            there.scored(agent, 2, 0.5, rows=40, champion=error, champion_digest=there.digests[0])
        else:
            there.scored(agent, 1, error, rows=40, local=8.0)
    words = f"m: its RMSE with version 1 was 0.5 at first and is {errors['v1']:.4g} now: have its data changed?"
    needs = {agent: words_of for agent, words_of in there.needs().items() if "first" in words_of[0]}
    assert list(needs) == named
    assert all(each[0] == words for each in needs.values())


def test_nobody_is_behind_while_no_vehicle_has_scored_the_version_in_use(there: World) -> None:
    there.scored("v1", 1, 1.0)
    assert there.needs() == {}


def test_the_causes_are_the_same_everywhere_the_cause_before_what_follows_for_those_too_that_are_down(
    there: World,
) -> None:
    there.scored("v3", 2, 2.3)
    outside = "56% of its rows lie outside the limits of 'buffer_last_s'"
    there.ran("dusk", {"v3": ("member", "")}, far_out=[["v3", outside]])
    for words in ([outside, "15.0 % worse than alone with m"], [outside, STOPPED, "15.0 % worse than alone with m"]):
        (known,) = [each for each in there.client.get("/api/agents").json() if each["causes"]]
        assert (known["agent"], [each["words"] for each in known["causes"]]) == ("v3", words)
        assert known["causes"][0]["page"] == "/runs/dusk"
        for page in ("/", "/vehicles/v3"):
            assert causes_on(there.client.get(page).text) == words
        where = ["--coordinator", str(there.client.base_url)]
        line, counts = CliRunner().invoke(cli, ["fleet", *where]).output.splitlines()
        assert line.split("  ", 3)[3] == "; ".join(words)
        assert counts.endswith("1 needs attention")
        assert json.loads(CliRunner().invoke(cli, ["fleet", "--json", *where]).output)[0] == known
        there.fleet.down("v3", None, stopped=True)
    there.ran("dawn", {"v3": ("member", "")})
    assert there.needs()["v3"] == words[1:], "the newest run that asked it counts"


def test_after_a_private_run_a_vehicle_has_the_version_in_use_and_rows_that_were_told(there: World) -> None:
    there.scored("v1", 1, 1.0)
    there.ran("dusk", {"v1": ("member", "")}, rows={"v1": 700})
    there.ran("dawn", {"v1": ("member", "")}, spec={"scheme": "frt", "private": {"floor": 8}})
    for page in ("/", "/vehicles/v1"):
        text = there.client.get(page).text
        assert ">700<" in text
        assert "m v2" in text
        assert "m v1" not in text


@pytest.mark.parametrize("page", ["/", "/vehicles/v1"])
def test_a_vehicle_has_one_clock(there: World, page: str) -> None:
    """Of one met while down that is when it began: the coordinator does not know when it went."""
    there.fleet.down("gone", "7", born=time.time() - 240)
    there.fleet.down("v1", None)
    text = there.client.get(page).text
    assert "4 min ago" in text if page == "/" else "Last up" in text
    assert "ast seen" not in text


def causes_on(text: str) -> list[str]:
    """Return the causes that a page tells."""
    (inside,) = re.findall(r'<ul class="flat needs">(.*?)</ul>', text)
    return [html.unescape(re.sub("<[^>]+>", "", line)) for line in inside.split("</li>")[:-1]]


def test_a_vehicle_that_came_back_and_answered_needs_nobody_any_more(there: World) -> None:
    there.ran("dusk", {"v1": ("dropped", "deadline")})
    assert there.needs() == {"v1": ["dropped: no answer by the deadline"]}
    there.ran("dawn", {"v1": ("member", "")})
    assert there.needs() == {}


def test_whom_an_open_run_lost_is_told_without_its_document(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = there.core.runs
    there.core.start_run(RunSpec(run="now", scheme="frt"))
    runs.replace_states({"now": replace(runs.live["now"], lost={"v1": "the disk is full"})}, {})
    monkeypatch.delattr(Runs, "document")  # it has every vehicle of every round
    assert there.needs() == {"v1": ["lost: the disk is full"]}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("sort=id", ["v0", "v1"]),
        ("sort=rows", ["v6", "v7"]),
        ("sort=worse", ["v5", "v6"]),
        ("sort=nonsense", ["v5", "v0"]),
        ("q=V3", ["v3"]),
        ("status=down", []),
        ("status=needs", ["v5"]),
    ],
)
def test_fleet_page_is_sorted_and_filtered_on_the_server(there: World, query: str, first: list[str]) -> None:
    there.scored("v5", 2, 2.3)
    there.scored("v6", 2, 1.9)
    there.ran("dusk", {}, rows={"v7": 200, "v6": 100})
    text = there.client.get(f"/?{query}").text
    result = [part.split('"')[0] for part in text.split('scope="row" class="id"><a class="id" href="/vehicles/')[1:]]
    assert result[:2] == first


def test_page_of_a_vehicle_tells_its_part_in_runs_its_scores_and_what_it_offers(there: World) -> None:
    there.scored("v1", 1, 1.0)
    there.scored("v1", 2, 1.2, champion=0.96, champion_digest=there.digests[0])
    row = {"phase": "statistics", "number": 3, "dropped_agents": {"v1": "deadline"}, "late_agents": []}
    there.ran("dusk", {"v1": ("dropped", "deadline")}, rounds=[row], rows={"v1": 700})
    there.ran("dawn", {"v2": ("member", "")})
    there.ran("noon", {"v1": ("idle", "")}, spec={"scheme": "frt", "without": ["v1"]})
    text = there.client.get("/vehicles/v1").text
    for words in ("no answer by the deadline", "statistics 3", "700", "it was not up", "left out by the operator"):
        assert words in text
    assert "25.0 % worse" in text  # than with version 1, on the rows of today
    assert "40.0 % better" in text  # than alone
    assert EVIL not in text
    assert "&lt;script&gt;" in text


def test_vehicle_that_only_runs_name_has_a_page_and_one_that_nothing_names_has_none(there: World) -> None:
    there.ran("dusk", {"gone": ("lost", "went down")})
    assert "It is not known now" in there.client.get("/vehicles/gone").text
    answer = there.client.get("/vehicles/nobody")
    assert answer.status_code == 404
    assert "no vehicle" in answer.text


class EndedRuns:
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
        result = {"run": run, "spec": {"run": run, **spec}, "started": at, "reason": ""}
        document = {**suspended_document(result, ended=at + 60 + at / 10), "outcome": outcome, "reason": "", **other}
        self.core.runs.journal.close_run(run, document, 0.0)
        self.core.runs.__post_init__()

    def lines(self, address: str) -> list[str]:
        """Return what the lines' heads are, in order."""
        text = self.client.get(address).text
        return [part.split(">", 2)[2].split("<")[0] for part in text.split('<th role="rowheader" scope="row"')[1:]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndedRuns]:
    with served(tmp_path_factory.mktemp("tables")) as (service, client):
        yield EndedRuns(service, client)


@pytest.mark.parametrize(
    ("query", "result"),
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
def test_runs_are_sorted_and_filtered_on_the_server(ended: EndedRuns, query: str, result: list[str]) -> None:
    assert ended.lines(f"/runs?{query}") == result


def test_line_of_a_run_says_target_score_rules_parameters_and_time(ended: EndedRuns) -> None:
    text = ended.client.get("/runs?q=dusk").text
    for words in (">rented<", ">0.3 <", ">20<", ">max_depth=3<", ">1 min 0 s<", 'href="/models/bikes/1"'):
        assert words in text
    assert EVIL not in ended.client.get("/runs").text


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("", ["bikes", "cars"]),
        ("sort=-model", ["cars", "bikes"]),
        ("sort=rules", ["cars", "bikes"]),
        ("q=worn", ["cars"]),
    ],
)
def test_models_are_sorted_and_filtered_on_the_server(ended: EndedRuns, query: str, result: list[str]) -> None:
    assert ended.lines(f"/models?{query}") == result


def test_line_of_a_model_whose_run_is_forgotten_comes_from_its_record(tmp_path: Path) -> None:
    with served(tmp_path) as (service, client):
        publish(service, catalogue.load("frt").from_document(small_document()), "old", ["v"], run="forgotten")
        text = client.get("/models").text
        assert ">y</td>" in text  # the target
        assert 'value="forgotten"' not in text


def test_two_ticked_runs_are_compared_with_what_differs(ended: EndedRuns) -> None:
    text = ended.client.get("/compare?run=dusk&run=dawn").text
    for words in ("parameters.max_depth", 'href="/models/bikes/2/against/1"', ">0.3<", "<b>1.3</b>"):
        assert words in text
    assert "parameters.n_sets" not in text  # the same, if only one had said so
    assert ended.client.get("/compare?run=dusk").status_code == 422
    assert ended.client.get("/compare?run=dusk&run=none").status_code == 404
    assert EVIL not in ended.client.get("/compare?run=dusk&run=lost").text


@pytest.mark.parametrize("version", ["7", "9" * 18, "9" * 5000])
@pytest.mark.parametrize("rest", ["", "/forecast", "/against/1"])
def test_version_that_there_is_not_is_a_page_that_says_so(ended: EndedRuns, version: str, rest: str) -> None:
    answer = ended.client.get(f"/models/bikes/{version}{rest}")
    assert answer.status_code == 404
    assert f"no version {version}" in answer.text or "no such address: /models/bikes/999" in answer.text
