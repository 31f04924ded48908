"""Pages of runs: what is typed becomes the run, what is wrong names its field, and better is said only rightly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.config import CoordinatorConfig
from coordinator.http.access import TokenCheck
from coordinator.http.dashboard import show
from coordinator.http.dashboard.comparison import Comparison
from coordinator.http.dashboard.new_run import FieldError, defaults, fields_of, spec_of, texts_of, typed
from coordinator.http.dashboard.pages import Dashboard
from coordinator.main import build
from coordinator.process.service import Service
from coordinator.runs.view import suspended_document
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import PrivatePolicy, RoundPolicy, RunSpec
from glassfleet.contract import catalogue
from glassfleet.data.documents import parameters_of
from glassfleet.evaluation.paired import in_words
from schemas.leakage import place_of
from schemas.messages import AgentState, Evaluation
from schemas.record import ModelRecord
from tests.support.coordinator_http import publish, served, small_document
from tests.support.scratch_journal import ScratchJournal

FULL: dict[str, Any] = {
    "run": "full",
    "scheme": "frt",
    "model": "bikes",
    "features": ["hour", "temp"],
    "target": "rented",
    "participation": "cohort",
    "parameters": {"max_depth": None, "n_sets": 3, "nullify": False, "min_gain": 1e-05, "order": 0},
    "rounds": {"min_agents": 1.0, "sample": 0.5, "deadline": 2.5, "target": 4, "on_missed_quorum": "fail"},
    "max_rows_each": 100,
    "without": ["v1", "v2"],
    "seed": 7,
    "rollout": {"stages": [0.1, 1.0], "min_reports": 3, "max_worse": -0.01},
}


def spec(**changes: Any) -> RunSpec:
    return RunSpec.from_document({**FULL, **changes})


@pytest.mark.parametrize(
    "wanted",
    [
        spec(),
        spec(rounds={"min_agents": 1}, rollout=None, scheme="tree", parameters={"max_rules": 9}),
        spec(rounds={}, rollout=None, max_rows_each=None, private={"floor": 12, "support": 0}, readmit=["v9"]),
        spec(scheme="dp_tree", participation="elastic", parameters={"noise": "none", "losses": 2}),
        spec(window={"days": 2.5, "time": "t"}),
    ],
    ids=["full", "one-vehicle", "private", "elastic", "window"],
)
def test_run_like_another_one_is_like_it_and_has_an_id_of_its_own(wanted: RunSpec) -> None:
    got = spec_of(texts_of({"spec": wanted.to_document()}))
    model = catalogue.load(wanted.scheme).Parameters
    assert model.model_validate(got.parameters) == model.model_validate(wanted.parameters)
    assert {**got.to_document(), "run": "full", "parameters": {}} == {**wanted.to_document(), "parameters": {}}
    assert got.run != "full"


@pytest.mark.parametrize("scheme", catalogue.names())
def test_every_parameter_of_every_scheme_has_a_field_that_says_what_it_is(scheme: str) -> None:
    model = catalogue.load(scheme).Parameters
    assert {each.name for each in parameters_of(model)} == set(model.model_fields)
    for field in fields_of(scheme).values():
        assert field.label
        assert field.about or field.parameter.values
        assert not {":mod:", "``", "None:"} & set(field.about.split())
    assert spec_of(defaults(scheme)).parameters == {}


def test_every_setting_of_a_run_has_a_field() -> None:
    models = {"": RunSpec, "rounds.": RoundPolicy, "private.": PrivatePolicy, "rollout.": RolloutPlan}
    settings = {f"{place}{each.name}" for place, model in models.items() for each in parameters_of(model)}
    without = {"scheme", "nonce", "rollout.gate"}  # chosen above the others, or set by the coordinator
    assert settings - fields_of("tree").keys() == without


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"rounds.deadline": "soon"}, "rounds.deadline", "Seconds for each round: must be a number, got 'soon'"),
        ({"rounds.deadline": ""}, "rounds.deadline", "is empty"),
        (
            {"parameters.tree.max_rules": "129"},
            "parameters.tree.max_rules",
            "max_rules: must be less than or equal to 128",
        ),
        ({"parameters.tree.max_rules": "7.5"}, "parameters.tree.max_rules", "must be a whole number"),
        (
            {"scheme": "fedavg_mlp", "parameters.fedavg_mlp.hidden": "5, many"},
            "parameters.fedavg_mlp.hidden",
            "must be a whole number",
        ),
        (
            {"scheme": "frt", "parameters.frt.inference": "x"},
            "parameters.frt.inference",
            "must be 'maximum_matching' or ",
        ),
        ({"rounds.min_agents": "1.5"}, "rounds.min_agents", "lies in (0, 1], got 1.5"),
        ({"rounds.min_agents": "5", "rounds.sample": "3"}, "rounds.sample", "below min_agents 5"),
        ({"model": "two words"}, "model", "letters, digits"),
        ({"without": "v1, a b"}, "without", "letters, digits"),
        ({"rollout": "yes", "rollout.stages": "50 %, 20 %"}, "rollout.stages", "must rise, got 0.5, 0.2"),
        ({"private": "yes", "private.floor": "2"}, "private.floor", "greater than or equal to 8"),
        ({"features": "a, a"}, "features", "must differ"),
        ({"window.days": "0"}, "window.days", "greater than 0"),
        ({"window.days": "1", "window.rows": "9"}, "", "give rows or days"),
        ({"private": "yes", "rollout": "yes"}, "", "is not tried in stages"),
    ],
)
def test_error_names_the_field(changes: dict[str, str], field: str, words: str) -> None:
    with pytest.raises(FieldError) as fault:
        spec_of({**defaults(), **changes}, 15)
    assert fault.value.field == field
    assert words in str(fault.value)


def test_quorum_as_a_share_is_of_the_known_fleet_and_the_run_waits_for_so_many() -> None:
    policy = spec_of({**defaults(), "rounds.min_agents": "50 %"}, 15).rounds
    assert (policy.min_agents, policy.gather_agents) == (8, 8)
    policy = spec_of({**defaults(), "rounds.min_agents": "20%", "rounds.gather_agents": "9"}, 15).rounds
    assert (policy.min_agents, policy.gather_agents) == (3, 9)


def test_box_that_is_not_ticked_is_not_sent_and_is_no_default_then() -> None:
    sent = {name: text for name, text in defaults("frt").items() if name != "parameters.frt.nullify"}
    assert spec_of(typed(sent)).parameters == {"nullify": False}
    # Another scheme was shown: this one's boxes have not been seen.
    assert spec_of(typed({**sent, "shown": "tree"})).parameters == {}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[tuple[Service, httpx.Client]]:
    """A coordinator with three vehicles, one of them down, a run with units, and an operator who has signed in."""
    with served(tmp_path) as (service, client):
        for agent in ("v1", "v2", "v3"):
            about = AgentState(
                status="up", incarnation="1", software="s", schemes=["frt"], features=["hour", "temp"], target="rented"
            )
            service.coordinator.fleet.up(agent, about)
        service.coordinator.fleet.down("v2", None)
        bounds = {"hour": {"low": 0, "high": 24, "unit": "h"}, "gone": [0, 1]}
        document = suspended_document(
            {"run": "dusk", "spec": {**FULL, "run": "dusk", "bounds": bounds}, "started": 0.0, "reason": ""}, ended=1.0
        )
        service.coordinator.runs.journal.close_run("dusk", document, 0.0)
        service.coordinator.runs.__post_init__()
        client.post("/sign-in", data={"token": (tmp_path / "api-token").read_text().strip()})
        yield service, client


def value(text: str, name: str) -> str:
    return text.split(f'name="{name}" value="')[1].partition('"')[0]


def test_page_says_who_is_there_and_a_wrong_form_comes_back_as_it_was_typed(
    there: tuple[Service, httpx.Client],
) -> None:
    _, client = there
    text = client.get("/new-run").text
    assert '<b>2 of 3</b> known vehicles are up; down: <a href="/vehicles/v2">v2</a>; 2 of those up cannot' in text
    assert '<option value="dusk" selected>as in run dusk' in text
    text = client.get("/new-run?like=dusk").text
    assert (value(text, "model"), value(text, "parameters.frt.n_sets")) == ("bikes", "3")
    fields = {**texts_of({"spec": FULL}), "csrf": value(text, "csrf"), "rounds.deadline": "<soon>"}
    answer = client.post("/new-run", data=fields)
    assert answer.status_code == 422
    assert '<a href="#rounds.deadline">Seconds for each round: must be a number' in answer.text
    assert value(answer.text, "rounds.deadline") == "&lt;soon&gt;"
    assert value(answer.text, "parameters.frt.n_sets") == "3"
    other = client.post("/new-run", data={**fields, "scheme": "dp_tree"})
    assert other.status_code == 200
    assert (value(other.text, "parameters.dp_tree.max_depth"), value(other.text, "model")) == ("6", "bikes")
    assert client.get("/new-run?like=none").status_code == 404


def test_form_makes_no_document_of_a_run_that_goes_on_and_looks_at_an_ended_one_once(
    there: tuple[Service, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = there
    runs = service.coordinator.runs
    service.coordinator.start_run(spec(run="dawn", rollout=None))
    documents: list[str] = []
    asked: list[str] = []
    overviews = runs.journal.overviews

    def noted(some: Sequence[str]) -> dict[str, dict[str, Any]]:
        asked.extend(some)
        return overviews(some)

    monkeypatch.setattr(runs, "document", documents.append)
    monkeypatch.setattr(runs.journal, "overviews", noted)
    for _ in range(2):
        assert '<option value="dusk" selected>as in run dusk' in client.get("/new-run").text
    assert (documents, asked) == ([], ["dusk"])


def test_units_of_a_former_run_are_kept_for_the_columns_that_there_are(
    there: tuple[Service, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = there
    started: list[RunSpec] = []

    class Core:
        def start_run(self, wanted: RunSpec) -> str:
            started.append(wanted)
            return wanted.run

    monkeypatch.setattr(service, "call", lambda function: function(Core()))  # nobody serves the queue here
    fields = {**defaults("frt"), "words": "dusk", "csrf": value(client.get("/new-run").text, "csrf")}
    answer = client.post("/new-run", data=fields)
    assert answer.headers["location"] == f"/runs/{started[0].run}"
    assert started[0].to_document()["bounds"] == {"hour": {"low": 0.0, "high": 24.0, "unit": "h", "terms": []}}


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
    result = Comparison.of(metric, [("a", 0.5, 0.4), ("b", 0.5, 0.6), ("c", 0.5, 0.75), ("d", 0.5, 0.5001)])
    assert result is not None
    assert result.better == better
    assert [line.agent for line in result.worse] == (["c", "b"] if metric == "rmse" else ["a"])
    assert in_words(result.worse_by) == f"12.5 % {'worse' if metric == 'rmse' else 'better'}"


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


def test_page_of_a_version_says_what_has_moved_since_by_the_newest_later_record(fleet: Fleet) -> None:
    assert "What has moved" not in fleet.page("/models/m/1")
    model = catalogue.load("frt").from_document(small_document(0.1))
    for words in ("rule 3: its error is 20% larger", "<b>x0 is lower by 0.6 standard deviations"):
        drift = {"of": fleet.records[0].digest, "rules": 1, "sums": [], "moved": [words]}
        publish(fleet.service, model, "m", ["a"], run=f"r{len(words)}", drift=drift)
    text = fleet.page("/models/m/1")
    assert "What has moved" in text
    assert "&lt;b&gt;x0 is lower by 0.6 standard deviations" in text
    assert "20% larger" not in text
    assert "What has moved" not in fleet.page("/models/m/2")


@pytest.mark.parametrize("other", [{"rows": 11}, {"digest": "0" * 64}, {"metric": "f1"}])
def test_scores_on_other_rows_or_of_another_document_are_not_compared(fleet: Fleet, other: dict[str, Any]) -> None:
    fleet.scored("a", 1, 1.0, **other)
    fleet.scored("a", 2, 0.8)
    assert "No vehicle has sent scores of both versions" in fleet.page("/models/m/2/against/1")
    assert "than version 1" not in fleet.page("/models/m/2")


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


LINE = {
    "protection": "private", "seen": "each group", "attack": "spans", "read": 30, "parts": 2, "rows": 120, "false": 4,
    "chance": 0, "owners": {"vehicle-01": [1, 2]},
}  # fmt: skip
REPORT: dict[str, Any] = {
    "run": "r1", "scheme": "tree", "vehicles": 9, "rows": 120, "lines": [LINE],
    "models": [{"protection": "private", "auc": 0.51, "met": 0.0, "met_others": 0.0, "rows": 120, "others": 30}],
}  # fmt: skip


def dashboard_of(folder: Path) -> Dashboard:
    return Dashboard(build(CoordinatorConfig.load(state_dir=folder), journal=ScratchJournal()), TokenCheck("token"))


def save(folder: Path, text: str) -> None:
    path = folder / place_of("r1")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_report_that_was_saved_is_shown_without_names_of_vehicles(tmp_path: Path) -> None:
    dashboard = dashboard_of(tmp_path)
    assert dashboard.leakage_values("r1") == {"found": None, "fault": ""}
    save(tmp_path, json.dumps(REPORT))
    values = dashboard.leakage_values("r1")
    assert values["fault"] == ""
    result = values["found"]
    assert result["lines"][0]["read"] == 30
    assert "vehicle-01" not in json.dumps(result)


def test_questions_are_told_by_kind_and_whom_each_sum_is_over() -> None:
    rounds = [
        {"phase": "pairing", "kind": "keys", "bytes": 9},
        {"phase": "domain", "kind": "counts", "bytes": 10},
        {"phase": "statistics", "kind": "level", "bytes": 20},
        {"phase": "statistics", "kind": "level", "bytes": 30},
    ]
    plain = show.opened({"rounds": rounds, "spec": {}})
    assert [(each["what"], each["questions"], each["over"], each["bytes"]) for each in plain] == [
        ("limits of the columns", 1, "one vehicle", 10), ("level", 2, "one vehicle", 50),
    ]  # fmt: skip
    private = show.opened({"rounds": rounds, "spec": {"private": {"floor": 8, "company": 3}}})
    assert {each["over"] for each in private} == {"8 or more vehicles"}
