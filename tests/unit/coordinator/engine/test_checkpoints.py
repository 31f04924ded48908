"""The coordinator without threads, over the in-memory broker: journals of elastic runs that begin anew."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordinator.engine import Checkpoint, checkpoint
from coordinator.engine.state import RunState
from coordinator.journal.port import CHECKPOINT
from coordinator.runs import transaction
from lab.audit.journal import transcript_of
from schemas.errors import StorageError
from tests.support.coordinator_bench import Fleet
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec
from tests.support.privacy.private_bench import total_of


@pytest.fixture(autouse=True)
def at_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "BOUND", 1)


def kinds(fleet: Fleet, run: str = "r1") -> list[str]:
    return [entry.kind for entry in fleet.journal.entries if entry.run == run]


def elastic(*agents: str, **spec: Any) -> Fleet:
    return Fleet().begin(*agents, participation="elastic", parameters={"levels": 4}, **spec)


def test_journal_of_an_elastic_run_holds_where_it_stands_and_the_answers_to_its_open_round() -> None:
    fleet = elastic("a", "b", "c")
    assert kinds(fleet) == ["start"]
    fleet.answer("a", "b", "c")
    assert kinds(fleet) == ["checkpoint"]
    fleet.answer("b")
    assert kinds(fleet) == ["checkpoint", "answer"]
    fleet.answer("c", "a")
    assert kinds(fleet) == ["checkpoint"]
    fleet.answer("a")
    before, document = fleet.state(), fleet.core.runs.document("r1")
    fleet.hub.advance(1000)
    fleet.crash()
    assert fleet.state() == before
    assert fleet.core.runs.document("r1") == document, "when it was started, too"
    fleet.finish("a", "b", "c")
    assert fleet.core.runs.document("r1")["outcome"] == "finished"


def test_journal_of_a_run_whose_losses_are_solved_by_replay_keeps_all_answers() -> None:
    fleet = Fleet().begin("a", "b", participation="cohort")
    fleet.answer("a", "b")
    fleet.answer("a", "b")
    assert kinds(fleet) == ["start", *["answer"] * 4]


def test_journal_begins_anew_only_where_more_was_answered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = elastic("a", "b")
    fleet.answer("a", "b")
    size = fleet.state().rounds[0].bytes
    monkeypatch.setattr(checkpoint, "BOUND", 3 * size)
    fleet.answer("a", "b")
    assert kinds(fleet) == ["checkpoint", "answer", "answer"]
    fleet.answer("a", "b")
    assert kinds(fleet) == ["checkpoint"]


def test_answers_to_closed_rounds_are_told_as_what_they_are_after_a_checkpoint_and_a_restart() -> None:
    fleet = elastic("a", "b", "c", rounds={"min_agents": 2, "deadline": 5})
    first = fleet.task()
    fleet.answer("a", "b")
    fleet.pass_time(6)
    assert fleet.task() != first
    for _ in range(2):
        fleet.answer("a", "c", task=first)
        fleet.answer("b", task=first, value=7)
        fleet.crash()
    assert fleet.receipts("a") == ["accepted", "duplicate", "duplicate"]
    assert fleet.receipts("b") == ["accepted", "duplicate", "duplicate"], "what it said is no longer known"
    assert fleet.receipts("c") == ["late the round is closed"] * 2
    (summary,) = fleet.state().rounds
    assert (summary.late_agents, summary.dropped_agents) == (("c",), {"c": "deadline"})


def test_run_keeps_its_answers_when_its_state_is_too_large_for_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "MAX_DECODED_BYTES", 500)
    fleet = elastic("a", "b")
    with capture_logs() as logs:
        fleet.answer("a", "b")
    assert kinds(fleet) == ["start", "answer", "answer"]
    assert [each["run"] for each in logs if each["event"] == "checkpoint-skipped"] == ["r1"]


def test_run_keeps_its_answers_when_its_scheme_remembers_what_cannot_be_written_down() -> None:
    play = Play(toy_spec(participation="elastic"))
    play.answer("a", "b", "c")
    state = play.state
    assert transaction.begun_anew(TOY_ENGINE, state, 0.0) is not None
    object.__setattr__(state.levels[-1], "state", {"odd": float("nan")})
    assert transaction.begun_anew(TOY_ENGINE, state, 0.0) is None


def test_audit_says_that_the_answers_are_gone() -> None:
    fleet = elastic("a", "b")
    fleet.answer("a", "b")
    with pytest.raises(StorageError, match=r"no answers to the first 1 rounds: .* Audit a run of fewer vehicles"):
        transcript_of(TOY_ENGINE, fleet.journal.entries)


def test_checkpoint_has_every_field_of_a_state_or_is_not_made() -> None:
    play = Play(toy_spec(participation="elastic"))
    play.answer("a", "b", "c")
    state = play.state
    assert checkpoint.is_due(state, state.rounds[0].bytes)
    written = checkpoint.checkpoint_of(state).state.keys()
    left_out = {each.name for each in fields(RunState)} - written - {"spec", "parameters"}
    for name in left_out:
        value = {"earlier": (total_of("a"),), "reason": "so", "founders": 1}.get(name, {"a": 1})
        changed = type(state)(**{**vars(state), name: value})
        assert not checkpoint.is_due(changed, state.rounds[0].bytes), name
    assert len(left_out) > 15
    assert Checkpoint.kind == CHECKPOINT
