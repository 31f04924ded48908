"""docs/reference/payloads.json says what tasks and answers hold; ``python -m deploy.site.payloads`` renews it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from deploy.site import payloads
from glassfleet.contract.messages import Contribution, Task

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "payloads.json"


@pytest.fixture(scope="module")
def spoken() -> list[payloads.Exchange]:
    return list(payloads.spoken())


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(PAGE.read_text(encoding="utf-8"))
    return loaded


def as_json(value: Any) -> Any:
    """Return a codec value with arrays as the maps that travel, and bytes as texts, as JSON Schema sees them."""
    if isinstance(value, np.ndarray):
        return {"__nd__": value.dtype.str, "shape": list(value.shape), "data": ""}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


def checker(schema: dict[str, Any], part: str) -> Any:
    return jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{part}"})


def test_schemas_are_those_of_the_code(schema: dict[str, Any], spoken: list[payloads.Exchange]) -> None:
    assert payloads.described_all(spoken) == schema, (
        "renew: python -m deploy.site.payloads > docs/reference/payloads.json"
    )


def test_all_that_is_said_in_runs_fits_and_nothing_that_is_damaged(
    schema: dict[str, Any], spoken: list[payloads.Exchange]
) -> None:
    for task, contribution in spoken:
        of_task = checker(schema, f"{task.scheme}.{task.kind}.task")
        of_answer = checker(schema, f"{task.scheme}.{task.kind}.answer")
        asked, given = as_json(task.to_value()), as_json(contribution.to_value())
        of_task.validate(asked)
        of_answer.validate(given)
        assert not of_task.is_valid(asked | {"more": 1})
        assert not of_answer.is_valid({name: each for name, each in given.items() if name != "rows"})
        for name in given["sums"]:
            assert not of_answer.is_valid(given | {"sums": given["sums"] | {name: [1.5]}})


def test_a_task_is_of_one_scheme_and_kind_and_a_masked_answer_is_an_answer(schema: dict[str, Any]) -> None:
    task = Task("private", "keys", {})
    assert not checker(schema, "task").is_valid(as_json(task.to_value()))
    masked = Contribution("level", 0, {"masked": np.zeros(5, np.int64)})
    checker(schema, "answer").validate(as_json(masked.to_value()))
