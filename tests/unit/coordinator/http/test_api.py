"""The API: documented shapes, named fields; and pages that read while the coordinator works."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.engine.table import TABLE
from coordinator.http.api import make_app
from coordinator.main import build
from coordinator.runs.view import run_document
from coordinator.specification.run import RoundPolicy, RunSpec
from schemas.messages import AgentState, Evaluation
from tests.support.coordinator_bench import Fleet as Bench
from tests.support.coordinator_http import ask, record_of, small_document
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec
from tests.support.schedules import quiet
from tests.support.scratch_journal import ScratchJournal

DOCS = Path(__file__).parents[4] / "docs"


def test_rounds_page_shows_the_diagram_of_the_engines_transitions() -> None:
    ways = defaultdict[str, dict[str, list[str]]](dict)
    for row in TABLE.rows:
        ways[row.source or "-"].setdefault(row.target, []).append(row.cause)
    lines = ["| phase | what follows, and why |", "|---|---|"]
    for source, targets in ways.items():
        follows = "; ".join(f"**{target}**: {', '.join(causes)}" for target, causes in targets.items())
        lines.append(f"| {source} | {follows} |")
    assert "\n".join(lines) in (DOCS / "explanation" / "rounds.md").read_text(encoding="utf-8")


def test_api_page_lists_every_address(tmp_path: Path) -> None:
    page = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
    service = build(CoordinatorConfig.load(state_dir=tmp_path), journal=ScratchJournal())
    schema = make_app(service, "token").openapi()
    addresses = {f"`{method.upper()} {path}`" for path, methods in schema["paths"].items() for method in methods}
    assert len(addresses) > 8
    assert [address for address in sorted(addresses) if address not in page] == []


@pytest.mark.parametrize("name", [*RunSpec.model_fields, *RoundPolicy.model_fields])
def test_api_page_shows_every_field_of_a_spec(name: str) -> None:
    assert f'"{name}"' in (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")


def test_api_page_shows_every_field_of_a_run() -> None:
    page = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    document = run_document(TOY_ENGINE, play.state, started=0.0, ended=None, model=None)
    assert [name for name in document if f'"{name}"' not in page] == []
    assert [name for name in document["rounds"][0] if name not in page] == []


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Return a coordinator's application with the model ``m``, of the inputs ``a`` and ``b``."""
    journal = ScratchJournal()
    record = record_of(small_document())
    journal.add_model("m", record.run, lambda _version: (record.digest, record.to_bytes()))
    service = build(CoordinatorConfig.load(state_dir=tmp_path_factory.mktemp("state")), journal=journal)
    service.coordinator.start_run(RunSpec(run="r0", scheme="frt"))
    return make_app(service, "token")


EXPLAIN = "/api/models/m/explain"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "rest", "text"),
    [
        (EXPLAIN, {"json": {"row": {"a": 0.5, "b": None}}}, "row.b must be a number (or a category's text), got null"),
        (EXPLAIN, {"json": {"row": {"a": True, "b": 0.5}}}, "row.a must be a number (or a category's text), got true"),
        (EXPLAIN, {"json": {"row": [0.5, False]}}, "row[1] (b) must be a number (or a category's text), got false"),
        (EXPLAIN, {"json": {"row": {"a": 10**400, "b": 0}}}, "row.a is too large for a number of 64 bits"),
        (EXPLAIN, {"json": {"row": {"a": "fast", "b": 0}}}, "a must be a number, got 'fast'"),
        (EXPLAIN, {"json": {"row": {"a": 0.5}}}, "the row has no 'b'; the model needs: a, b"),
        (EXPLAIN, {"json": {"row": [0, 0], "reference": {"a": None, "b": 0}}}, "reference.a must be a number (or a"),
        (EXPLAIN, {"json": {"row": "text"}}, 'row: write values by column, {"speed": 12.5}, or a list of them'),
        (EXPLAIN, {"json": {"row": [0.5] * 9000}}, "row: at most "),
        (EXPLAIN, {"json": {"row": [""]}}, "the row has 1 values, the model takes 2"),
        (EXPLAIN, {"json": {"row": [0.5, ""]}}, "b must be a number, got ''"),
        ("/api/runs", {"json": {"scheme": "frt", "rounds": {"min_agents": 10**30}}}, "integers beyond 64 bits"),
        (
            "/api/rollouts",
            {"json": {"name": "m", "version": 1, "plan": {"min_reports": 10**30}}},
            "min_reports as a number of reports is from 1 to 2**53 - 1",
        ),
        (EXPLAIN, {"json": {}}, "row is missing: the body must have it"),
        (
            EXPLAIN,
            {"json": {"row": [0, 0], "versoin": 1}},
            "versoin is not a field of this request; did you mean version?",
        ),
        (EXPLAIN, {"json": {"row": [0, 0], "version": True}}, "version: must be a whole number, got true"),
        (EXPLAIN, {"json": {"row": [0, 0], "version": 0}}, "version: must be greater than or equal to 1, got 0"),
        (EXPLAIN, {"json": [1]}, "the body must be a JSON object"),
        (EXPLAIN, {}, "the body is missing: send a JSON object"),
        ("/api/models/m/counterfactual", {"json": {"row": [0, 0], "keep": [1]}}, "keep.0: must be a text, got 1"),
        ("/api/models/m/promote", {"json": {"version": True}}, "version: must be a whole number, got true"),
        ("/api/runs", {"json": {"scheme": "frt", "rounds": {"deadline": True}}}, "rounds.deadline: true is no number"),
        ("/api/runs", {"json": {"scheme": "frt", "seed": False}}, "seed: false is no number"),
        (
            "/api/rollouts",
            {"json": {"name": "m", "version": 1, "plan": {"stages": [True]}}},
            "plan.stages.0: true is no number",
        ),
    ],
)
def test_api_answers_in_the_documented_shape_and_names_the_field_when_a_request_cannot_be_meant(
    app: FastAPI, path: str, rest: dict[str, Any], text: str
) -> None:
    answer = ask(app, "POST", path, **rest)
    assert answer.status_code == 422, answer.text
    result = answer.json()
    assert set(result) == {"detail"}
    assert isinstance(result["detail"], str)
    assert text in result["detail"]


def test_api_explains_a_row_whose_other_columns_hold_anything(app: FastAPI) -> None:
    row = {"a": 0.5, "b": "0.25", "note": None, "flag": True, "more": {"of": []}}
    assert ask(app, "POST", EXPLAIN, json={"row": row}).status_code == 200


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb'{"row": ["\ud800", 0]}', "a text holds half a character"),
        (b'{"row": ["\xed\xa0\x80", 0]}', "the body is not a text in UTF-8"),  # the same, as Python reads it
        ('{"row": ["\\ud800", 0]}'.encode("utf-16"), "the body is not a text in UTF-8"),
        ('{"row": ["\\ud800", 0]}'.encode("utf-16-le"), "it has zeros"),
        (b'{"row": [0, 0]', "the body is not JSON, from character 14 on"),
        (b"[" * 100_000 + rb'"\u0041"', "the body"),
    ],
)
def test_body_that_is_no_text_or_no_json_is_malformed(app: FastAPI, body: bytes, text: str) -> None:
    answer = ask(app, "POST", EXPLAIN, content=body, headers=JSON)
    assert (answer.status_code, text in answer.json()["detail"]) == (400, True), answer.text


@pytest.mark.parametrize("path", ["/metrics", "/api/health", "/api/runs", "/api/models/m/1", "/", "/models"])
def test_address_that_answers_get_answers_head_without_a_body(app: FastAPI, path: str) -> None:
    whole, head = ask(app, "GET", path), ask(app, "HEAD", path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert whole.status_code == 200
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


def test_api_description_names_the_addresses_that_need_the_token(app: FastAPI) -> None:
    described, needing = set(), set()
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            described |= {(method, path)} if "security" in operation else set()
            address = path.format(name="m", version=1, run="r0", agent="a")
            answer = ask(app, method, address, headers={"Authorization": ""})
            needing |= {(method, path)} if answer.status_code == 401 else set()
    assert described == needing
    assert len(needing) > 8


VEHICLES = 1000
"""How many come; each of the looks that failed once failed many times meanwhile."""
SCORES = Evaluation(name="qoe", version=1, digest="0" * 64, metric="rmse", federated=1.0, local=1.0, rows=5)
UP = AgentState(status="up", incarnation="1", schemes=["toy"], features=["x"], target="y")


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with quiet():
        yield
    sys.setswitchinterval(before)


class Rubbish:
    """A thing in a circle with a finaliser, as web frameworks leave behind: any allocation may run Python code."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(5))


def litter(_number: int) -> None:
    for _ in range(50):
        Rubbish()
    time.sleep(0.0005)


def change(core: Coordinator, number: int) -> None:
    """Let ever new vehicles come, tell scores and go, and ever new counters begin."""
    agent = f"v{number}"
    core.fleet.up(agent, UP)
    core.fleet.evaluated(agent, SCORES)
    core.fleet.down(agent, None)
    core.metrics[f"ignored.{number}"] += 1
    if len(core.metrics) > 3000:
        core.metrics.clear()


def on_and_on(act: Callable[[int], object], most: int, done: threading.Event, faults: Counter[str]) -> None:
    """Do something again and again; whatever it raises would be an answer of 500."""
    for number in range(most):
        if done.is_set():
            return
        try:
            act(number)
        except Exception as fault:  # noqa: BLE001 - of whatever kind
            faults[repr(fault)] += 1
    done.set()


def test_look_from_another_thread_never_fails_while_vehicles_come_and_go_by_the_thousand(tmp_path: Path) -> None:
    service = build(CoordinatorConfig.load(state_dir=tmp_path, max_agents=5000), journal=ScratchJournal())
    core, faults, done = service.coordinator, Counter[str](), threading.Event()
    looks: list[Callable[[int], object]] = [
        litter,
        lambda _: core.fleet.known(),
        lambda _: core.fleet.evaluations("qoe", 1),
        lambda _: service.metrics(),
        lambda _: service.observed.page(),
    ]
    acts = [(partial(change, core), VEHICLES), *((look, sys.maxsize) for look in looks)]
    threads = [threading.Thread(target=on_and_on, args=(*act, done, faults)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_what_a_reader_holds_stays_as_it_was_while_runs_begin_and_end_and_names_change() -> None:
    fleet = Bench()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    core = fleet.core
    aliases = core.aliases
    held = core.runs.live, core.runs.past, aliases.current, aliases.candidate
    were = [dict(table) for table in held]
    fleet.hub.pump()
    fleet.finish("a", "b")
    fleet.hub.advance(3.0)
    core.tick()
    assert list(core.runs.past) == ["r1"]
    assert (list(aliases.candidate), list(aliases.current)) == (["model"], []), "the fleet has yet to score it"
    while_tried = aliases.candidate
    core.models.promote("model", 1, "tried by hand")
    assert (list(aliases.candidate), list(aliases.current)) == ([], ["model"])
    assert list(while_tried) == ["model"]
    assert [dict(table) for table in held] == were
    assert "r1" in held[0], "who looked before its end goes on with what stood then"
