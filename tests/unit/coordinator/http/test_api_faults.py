"""The HTTP API when it is asked what cannot be meant: one shape of answer, which names the field; and HEAD."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from coordinator.config import load_config
from coordinator.http.api import make_app
from coordinator.journal import MemoryJournal
from coordinator.main import build
from coordinator.specification.run import RunSpec
from tests.support.coordinator_http import ask, record_of, small_document


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Return a coordinator's application with the model ``m``, of the inputs ``a`` and ``b``."""
    journal = MemoryJournal()
    record = record_of(small_document())
    journal.add_model("m", record.run, lambda _version: (record.digest, record.to_bytes()))
    service = build(load_config(state_dir=tmp_path_factory.mktemp("state")), journal=journal)
    service.coordinator.start_run(RunSpec(run="r0", scheme="frt"))
    return make_app(service, "token")


EXPLAIN = "/api/models/m/explain"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "rest", "said"),
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
        (EXPLAIN, {"content": rb'{"row": ["\ud800", 0]}', "headers": JSON}, "a text holds half a character"),
        (
            "/api/models/m/promote",
            {"content": rb'{"version": 1, "reason": "\udc00"}', "headers": JSON},
            "half a character",
        ),
        ("/api/runs", {"json": {"scheme": "frt", "policy": {"min_agents": 10**30}}}, "integers beyond 64 bits"),
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
        (
            EXPLAIN,
            {"content": "{", "headers": JSON},
            "the body is not JSON, from character",
        ),
        ("/api/models/m/counterfactual", {"json": {"row": [0, 0], "keep": [1]}}, "keep.0: must be a text, got 1"),
        ("/api/models/m/promote", {"json": {"version": True}}, "version: must be a whole number, got true"),
        ("/api/runs", {"json": {"scheme": "frt", "policy": {"deadline": True}}}, "policy.deadline: true is no number"),
        ("/api/runs", {"json": {"scheme": "frt", "seed": False}}, "seed: false is no number"),
        (
            "/api/rollouts",
            {"json": {"name": "m", "version": 1, "plan": {"stages": [True]}}},
            "plan.stages.0: true is no number",
        ),
    ],
)
def test_api_answers_in_the_documented_shape_and_names_the_field_when_a_request_cannot_be_meant(
    app: FastAPI, path: str, rest: dict[str, Any], said: str
) -> None:
    answer = ask(app, "POST", path, **rest)
    assert answer.status_code == 422, answer.text
    told = answer.json()
    assert set(told) == {"detail"}
    assert isinstance(told["detail"], str)
    assert said in told["detail"]


def test_api_explains_a_row_whose_other_columns_hold_anything(app: FastAPI) -> None:
    row = {"a": 0.5, "b": "0.25", "note": None, "flag": True, "more": {"of": []}}
    assert ask(app, "POST", EXPLAIN, json={"row": row}).status_code == 200


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
            address = path.format(name="m", version=1, run="r0")
            answer = ask(app, method, address, headers={"Authorization": ""})
            needing |= {(method, path)} if answer.status_code == 401 else set()
    assert described == needing
    assert len(needing) > 8
