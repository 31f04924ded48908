"""The form for a new run: what is typed becomes the run, what is wrong names its field, and former runs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.http.dashboard.new_run import FieldError, defaults, fields_of, spec_of, texts_of, typed
from coordinator.runs.view import suspended_document
from coordinator.service import Service
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import PrivatePolicy, RoundPolicy, RunSpec
from glassfleet import catalogue
from glassfleet.data.parameters import parameters_of
from schemas.messages import AgentState
from tests.support.coordinator_http import served

FULL: dict[str, Any] = {
    "run": "full",
    "scheme": "frt",
    "model": "bikes",
    "features": ["hour", "temp"],
    "target": "rented",
    "participation": "cohort",
    "parameters": {"max_depth": None, "n_sets": 3, "nullify": False, "min_gain": 1e-05, "order": 0},
    "policy": {"min_agents": 1.0, "sample": 0.5, "deadline": 2.5, "target": 4, "on_missed_quorum": "fail"},
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
        spec(policy={"min_agents": 1}, rollout=None, scheme="fmt", parameters={"other_sets": [], "max_rules": 9}),
        spec(policy={}, rollout=None, max_rows_each=None, private={"floor": 12, "support": 0}, readmit=["v9"]),
        spec(scheme="dp_tree", participation="elastic", parameters={"noise": "none", "losses": 2}),
    ],
    ids=["full", "one-vehicle", "private", "elastic"],
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
    models = {"": RunSpec, "policy.": RoundPolicy, "private.": PrivatePolicy, "rollout.": RolloutPlan}
    settings = {f"{place}{each.name}" for place, model in models.items() for each in parameters_of(model)}
    without = {"scheme", "guarded", "nonce", "rollout.gate"}  # chosen above the others, or set by the coordinator
    assert settings - fields_of("fmt").keys() == without


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"policy.deadline": "soon"}, "policy.deadline", "Seconds for each round: must be a number, got 'soon'"),
        ({"policy.deadline": ""}, "policy.deadline", "is empty"),
        (
            {"parameters.fmt.max_rules": "257"},
            "parameters.fmt.max_rules",
            "max_rules: must be less than or equal to 256",
        ),
        ({"parameters.fmt.n_sets": "7.5"}, "parameters.fmt.n_sets", "must be a whole number"),
        ({"parameters.fmt.other_sets": "5, many"}, "parameters.fmt.other_sets", "must be a whole number"),
        ({"parameters.fmt.partition": "x"}, "parameters.fmt.partition", "must be 'mixed', "),
        ({"policy.min_agents": "1.5"}, "policy.min_agents", "lies in (0, 1], got 1.5"),
        ({"policy.min_agents": "5", "policy.sample": "3"}, "policy.sample", "below min_agents 5"),
        ({"model": "two words"}, "model", "letters, digits"),
        ({"without": "v1, a b"}, "without", "letters, digits"),
        ({"rollout": "yes", "rollout.stages": "50 %, 20 %"}, "rollout.stages", "must rise, got 0.5, 0.2"),
        ({"private": "yes", "private.floor": "2"}, "private.floor", "greater than or equal to 8"),
        ({"features": "a, a"}, "features", "must differ"),
        ({"private": "yes", "rollout": "yes"}, "", "is not tried in stages"),
    ],
)
def test_error_names_the_field(changes: dict[str, str], field: str, words: str) -> None:
    with pytest.raises(FieldError) as fault:
        spec_of({**defaults(), **changes}, 15)
    assert fault.value.field == field
    assert words in str(fault.value)


def test_quorum_as_a_share_is_of_the_known_fleet_and_the_run_waits_for_so_many() -> None:
    policy = spec_of({**defaults(), "policy.min_agents": "50 %"}, 15).policy
    assert (policy.min_agents, policy.gather_agents) == (8, 8)
    policy = spec_of({**defaults(), "policy.min_agents": "20%", "policy.gather_agents": "9"}, 15).policy
    assert (policy.min_agents, policy.gather_agents) == (3, 9)


def test_box_that_is_not_ticked_is_not_sent_and_is_no_default_then() -> None:
    sent = {name: text for name, text in defaults("frt").items() if name != "parameters.frt.nullify"}
    assert spec_of(typed(sent)).parameters == {"nullify": False}
    # Another scheme was shown: this one's boxes have not been seen.
    assert spec_of(typed({**sent, "shown": "fmt"})).parameters == {}


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
        service.coordinator.runs.journal.close_run("dusk", document, 0.0, keep_records=False)
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
    fields = {**texts_of({"spec": FULL}), "csrf": value(text, "csrf"), "policy.deadline": "<soon>"}
    answer = client.post("/new-run", data=fields)
    assert answer.status_code == 422
    assert '<a href="#policy.deadline">Seconds for each round: must be a number' in answer.text
    assert value(answer.text, "policy.deadline") == "&lt;soon&gt;"
    assert value(answer.text, "parameters.frt.n_sets") == "3"
    other = client.post("/new-run", data={**fields, "scheme": "dp_tree"})
    assert other.status_code == 200
    assert (value(other.text, "parameters.dp_tree.max_depth"), value(other.text, "model")) == ("6", "bikes")
    assert client.get("/new-run?like=none").status_code == 404


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
