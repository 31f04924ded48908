"""The coordinator without threads, over the in-memory broker: what it writes down, and when the disk is full."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from schemas.errors import StorageError
from tests.support.coordinator_bench import TOPICS, Fleet, TornDisk, answer_of
from tests.support.engine_bench import central, toy_spec


def test_coordinator_changes_nothing_when_the_disk_is_full() -> None:
    fleet = Fleet().begin("a", "b")
    state, entries = fleet.core.runs.live.get("r1"), list(fleet.journal.content.entries)
    message = answer_of("a", fleet.task())
    fleet.journal.is_full = True
    with pytest.raises(StorageError):
        fleet.core.handle([message])
    assert fleet.core.runs.live.get("r1") is state
    assert fleet.journal.content.entries == entries
    fleet.hub.pump()
    assert fleet.receipts("a") == [], "what is not stored is not acknowledged"
    fleet.journal.is_full = False
    fleet.finish("a", "b")
    assert fleet.core.runs.document("r1")["outcome"] == "finished"


def test_run_is_shown_as_ended_only_with_its_model_when_somebody_looks_in_between() -> None:
    fleet = Fleet()
    looks: list[tuple[str, Any]] = []

    def look() -> None:
        document = fleet.core.runs.document("r1")
        (listed,) = [fleet.core.runs.document(run) for run in fleet.core.runs.ids()]
        assert listed == document
        looks.append((document["state"], document["model"]))

    class Watched(TornDisk):
        def add_model(self, *arguments: Any) -> Any:
            look()
            model = super().add_model(*arguments)
            look()
            return model

        def close_run(self, *arguments: Any, **options: Any) -> None:
            look()
            super().close_run(*arguments, **options)

    fleet.hub.kill("coordinator")
    fleet.journal = Watched()
    fleet.open()
    fleet.begin("a", "b")
    fleet.finish("a", "b")
    look()
    assert [state for state, _ in looks] == ["running", "running", "running", "ended"]
    assert looks[-1][1] is not None


def test_coordinator_writes_one_transaction_for_a_batch() -> None:
    fleet = Fleet()
    agents = [f"agent-{number}" for number in range(20)]
    fleet.begin(*agents)
    before = fleet.core.metrics["journal.transactions"]
    task = fleet.task()
    fleet.core.handle([answer_of(agent, task) for agent in agents])
    assert fleet.core.metrics["journal.transactions"] == before + 1
    state = fleet.state()
    assert len(state.cohort) == 20


def test_coordinator_journals_a_flood_of_answers_that_change_nothing_as_one_record() -> None:
    fleet = Fleet().begin("a", "b", "c")
    fleet.answer("a")
    size = len(fleet.journal.content.entries)
    for _ in range(500):
        fleet.answer("a")
        fleet.publish(TOPICS.contribution("c", "r1"), b"nonsense")
        fleet.publish(TOPICS.contribution("stranger", "r1"), b"")
    assert len(fleet.journal.content.entries) == size, "what changes nothing is not written"
    assert Counter(fleet.receipts("a"))["duplicate"] == 500, "each has its receipt"
    assert len(fleet.receipts("c")) == len(fleet.receipts("stranger")) == 500
    assert (fleet.core.metrics["receipts.duplicate"], fleet.core.metrics["receipts.rejected"]) == (500, 1000)
    assert fleet.core.metrics["answers.only-counted"] == 1500
    fleet.answer("b")
    added = fleet.journal.content.entries[size:]
    assert [entry.kind for entry in added] == ["counted", "answer"]
    assert len(added[0].body) < 300
    before = fleet.core.runs.live.get("r1")
    fleet.crash()
    after = fleet.state()
    assert after.open is not None
    assert after == before
    assert (after.open.duplicate, after.open.rejected) == (500, 1000)


def test_coordinator_loses_nothing_but_counts_when_it_is_killed_amid_a_flood() -> None:
    fleet = Fleet().begin("a", "b", model="m")
    fleet.answer("a")
    for _ in range(10):
        fleet.answer("a")
    fleet.crash()
    state = fleet.state()
    assert state.open is not None
    assert (state.open.duplicate, state.accepted) == (0, ("a",))
    fleet.finish("b", "a")
    record = fleet.record("m")
    assert record.document == central(toy_spec(), "ab").to_document()
