"""Runs whose scheme is not installed any more: they wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.engine import Engine
from schemas.errors import NotFoundError, UsageError
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.engine_bench import TOY_ENGINE, central, toy_spec


def gone(name: str) -> Any:
    raise NotFoundError(f"no scheme {name!r} is installed")


@pytest.fixture
def suspended() -> Fleet:
    """A coordinator restarted without the scheme of a run that has an answer already."""
    fleet = Fleet().begin("a", "b")
    fleet.answer("a")
    fleet.engine = Engine(gone, TOY_ENGINE.search)
    fleet.crash()
    return fleet


def test_coordinator_starts_and_suspends_a_run_when_its_scheme_is_not_installed_any_more(suspended: Fleet) -> None:
    fleet = suspended
    document = fleet.core.runs.document("r1")
    assert (document["state"], document["scheme"], document["outcome"]) == ("suspended", "toy", None)
    assert "no scheme 'toy' is installed" in document["reason"]
    assert fleet.core.runs.ids() == ["r1"]
    assert TOPICS.request("r1") in fleet.hub.retained, "agents keep their answers and frozen rows for it"
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    task, before = fleet.task(), len(fleet.receipts("b"))
    fleet.answer("b", task=task)
    assert len(fleet.receipts("b")) == before, "a receipt would end the agent's sends"


def test_run_goes_on_when_its_scheme_is_installed_again(suspended: Fleet) -> None:
    fleet = suspended
    fleet.engine = TOY_ENGINE
    fleet.crash()
    fleet.finish("b", "a")
    record = fleet.record()
    assert record.document == central(toy_spec(), "ab").to_document()
