"""The session: what an agent does about what it sees; its outbox: durable, bounded, the same bytes every time."""

import os
from typing import Any

import pytest

from edge_agent.session import session
from edge_agent.session.events import (
    Compute,
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Forget,
    Park,
    Refuse,
    RequestSeen,
    Send,
    Tick,
)
from edge_agent.session.outbox import Outbox
from edge_agent.session.session import SessionState, Timing, step
from glassfleet.contract.messages import Task
from schemas.errors import StorageError
from schemas.messages import Receipt, Request, Sample

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def fresh(**changes: Any) -> Any:
    return SessionState(**{"agent": "v1", "schemes": frozenset({"frt", "domain"}), "timing": Timing(), **changes})


def seen(digest: Any = A, *, sent: Any = 1.0, scheme: Any = "frt", run: Any = "r1", **whom: Any) -> Any:
    request = Request(task={}, task_digest=digest, remaining=1.0, **whom)
    return RequestSeen(run, request, Task(scheme, "level", {}), sent)


def play(state: Any, *events: Any) -> Any:
    """The state after `events`, and all effects."""
    effects: list[Any] = []
    for event in events:
        state, caused = step(state, event)
        effects += caused
    return state, effects


def wait_of(state: SessionState) -> float:
    """Seconds until the next resend."""
    due = state.next_due()
    assert due is not None
    return due - state.now


def kinds(effects: Any) -> Any:
    return [type(effect) for effect in effects]


def test_session_refuses_by_name_and_keeps_silent_in_general_when_the_scheme_is_not_installed():
    _, effects = play(fresh(), Connected(), seen(asked=["v1"], scheme="fedga"))
    assert [effect.body.reason for effect in effects] == ["scheme 'fedga' is not installed here"]
    _, effects = play(fresh(), Connected(), seen(scheme="fedga"))
    assert effects == []


def test_session_refuses_again_when_the_request_is_seen_again():
    failed = ComputeFailed("r1", A, "no column 'x'")
    _, effects = play(fresh(), Connected(), seen(), failed, seen(sent=2.0))
    assert kinds(effects) == [Compute, Refuse, Refuse]
    assert effects[2].body.reason == "no column 'x'"


def test_session_resends_with_growing_jittered_waits_when_no_receipt_comes():
    timing = Timing(first=2.0, longest=10.0)
    state, _ = play(fresh(timing=timing, seed=3), Connected(), seen(), Computed("r1", A))
    waits = []
    for _ in range(6):
        due = state.next_due()
        waits.append(due - state.now)
        assert play(state, Tick(due - 1e-3))[1] == []
        state, effects = step(state, Tick(due))
        assert kinds(effects) == [Send]
    for wait, most in zip(waits, [2, 4, 8, 10, 10, 10], strict=True):
        assert most / 2 <= wait <= most
    assert len(set(waits)) == len(waits)


def test_session_does_not_publish_twice_at_once_when_the_link_comes_back():
    state, _ = play(fresh(), Connected(), seen(), Computed("r1", A), Disconnected())
    state, effects = step(state, Connected())
    assert effects == ()
    assert wait_of(state) <= Timing().first


def test_session_resends_soon_when_the_coordinator_asks_again():
    state, _ = play(fresh(), Connected(), seen(), Computed("r1", A))
    for _ in range(5):
        state, _ = step(state, Tick(state.next_due()))
    assert wait_of(state) > 5
    state, effects = step(state, seen(sent=2.0))
    assert effects == ()
    assert wait_of(state) <= Timing().first


@pytest.mark.parametrize(
    ("reason", "is_outside"),
    [("not-asked", True), ("left-out", True), ("others-asked", False), ("data-changed", False)],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_session_is_silent_in_a_run_that_does_not_ask_it_and_in_no_other(reason, is_outside, is_late):
    result = [Receipt(run="r1", task_digest=A, outcome="rejected", reason=reason), seen(B, sent=2.0)]
    state, effects = play(fresh(), Connected(), seen(A), Computed("r1", A), *(reversed(result) if is_late else result))
    if is_late:  # the next request came before the receipt
        assert kinds(effects) == [Compute, Send, Park, Compute, Forget]
        state, _ = play(state, Computed("r1", B))
    else:
        assert kinds(effects) == [Compute, Send, Forget] if is_outside else [Compute, Send, Forget, Compute]
    assert (Compute in kinds(play(state, seen(C, sent=3.0))[1])) is not is_outside
    assert Compute in kinds(play(state, seen(C, sent=3.0, asked=["v1"]))[1]), "by name it is asked in any case"
    assert Compute in kinds(play(state, seen(C, sent=3.0, run="r2"))[1])


def test_session_answers_a_sample_that_it_is_in_and_nothing_that_leaves_it_out():
    answered = {
        salt: kinds(play(fresh(), Connected(), seen(sample=Sample(salt=salt, last="7" + "f" * 63)))[1]) == [Compute]
        for salt in map(str, range(64))
    }
    assert all(Sample(salt=salt, last="7" + "f" * 63).asks("v1") is asked for salt, asked in answered.items())
    assert 16 < sum(answered.values()) < 48, "half of all, by the salt"
    assert play(fresh(), Connected(), seen(without=["v2", "v1"])) == play(fresh(), Connected())
    assert kinds(play(fresh(), Connected(), seen(without=["v2"]))[1]) == [Compute]


def test_session_ignores_receipts_and_results_of_tasks_that_it_does_not_know():
    state = fresh(online=True)
    for event in (Receipt(run="r1", task_digest=A, outcome="late"), Computed("r1", A), ComputeFailed("r1", A, "x")):
        assert step(state, event) == (state, ())


def test_session_memory_is_bounded_when_runs_and_tasks_are_endless(monkeypatch):
    monkeypatch.setattr(session, "REMEMBERED_RUNS", 8)
    monkeypatch.setattr(session, "REMEMBERED_TASKS", 16)
    state = fresh(online=True)
    for index in range(28):
        state, _ = step(state, seen(run=f"run-{index}"))
    assert len(state.runs) == 8
    for index in range(36):
        state, _ = step(state, seen(f"{index:064x}", sent=float(index), run="long"))
    assert len(state.runs["long"]) == 16
    assert state.phase("long", f"{35:064x}") == "computing"


@pytest.fixture
def outbox(tmp_path):
    box = Outbox(tmp_path / "outbox.sqlite", max_bytes=100)
    yield box
    box.close()


def test_outbox_keeps_parked_bytes_and_drops_ended_ones(outbox):
    outbox.put("r1", A, b"one")
    outbox.put("r1", B, b"two")
    outbox.park("r1", A)
    outbox.end("r1", B, "accepted")
    contents = outbox.contents()
    assert (contents.pending, contents.parked, contents.ended) == ((), (("r1", A),), (("r1", B),))
    assert (outbox.get("r1", A), outbox.get("r1", B)) == (b"one", None)
    outbox.unpark("r1", A)
    assert outbox.contents().pending == (("r1", A),)


def test_outbox_does_not_bring_an_ended_answer_back(outbox):
    outbox.put("r1", A, b"one")
    outbox.end("r1", A, "late")
    outbox.put("r1", A, b"again")
    outbox.unpark("r1", A)
    assert outbox.contents().ended == (("r1", A),)
    assert outbox.get("r1", A) is None


def test_outbox_lets_parked_then_oldest_pending_go_when_it_is_full(outbox):
    outbox.put("r1", A, b"x" * 40)
    outbox.put("r1", B, b"x" * 40)
    outbox.park("r1", B)
    assert outbox.put("r1", C, b"x" * 60) == ()
    assert outbox.get("r1", B) is None
    assert outbox.put("r2", A, b"x" * 40) == (("r1", A),)
    assert outbox.kept_bytes == 100


def test_outbox_refuses_an_answer_that_could_never_fit(outbox):
    with pytest.raises(StorageError, match="outbox_max_bytes"):
        outbox.put("r1", A, b"x" * 101)


def test_outbox_says_so_and_keeps_what_it_has_when_the_disk_is_full(tmp_path):
    box = Outbox(tmp_path / "outbox.sqlite")
    box.put("r1", A, b"one")
    pages = box._database.execute("PRAGMA page_count").fetchone()[0]
    box._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"the disk is full\. Make room"):
        box.put("r1", B, os.urandom(100_000))
    assert box.get("r1", A) == b"one"
    assert box.contents().pending == (("r1", A),)
    box.put("r1", C, b"small")
    box.close()


def test_outbox_names_the_damage_when_the_file_is_not_a_database(tmp_path):
    path = tmp_path / "outbox.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(StorageError, match="damaged"):
        Outbox(path)
