"""The session under any order of events: the rules of its theory of operation, whatever happens."""

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.session.events import (
    Compute,
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    EndRun,
    Forget,
    Park,
    Refuse,
    RequestCleared,
    RequestSeen,
    Restarted,
    Send,
    Tick,
)
from edge_agent.session.session import SessionState, step
from glassfleet.contract.messages import Task
from schemas.messages import OUTSIDE, Receipt, Request, Sample

RUNS = ["r1", "r2"]
DIGESTS = [letter * 64 for letter in "abcd"]
run = st.sampled_from(RUNS)
digest = st.sampled_from(DIGESTS)


ALL, NOBODY = Sample(salt="s", last="f" * 64), Sample(salt="s", last="0" * 64)


def request_seen(run: Any, digest: Any, sent: Any, asked: Any, scheme: Any) -> Any:
    names, sample = (None, asked) if isinstance(asked, Sample) else (asked, None)
    request = Request(task={}, task_digest=digest, remaining=0.0, asked=names, sample=sample)
    return RequestSeen(run, request, Task(scheme, "level", {}), sent)


def receipt(run: Any, digest: Any, outcome: Any, reason: str = "") -> Receipt:
    return Receipt(run=run, task_digest=digest, outcome=outcome, reason=reason)


events = st.one_of(
    st.builds(
        request_seen,
        run,
        digest,
        st.integers(0, 9).map(float),
        st.sampled_from([None, None, ["v1"], ["v2"], [], ALL, NOBODY]),
        st.sampled_from(["frt", "frt", "fedga"]),
    ),
    st.builds(RequestCleared, run),
    st.builds(receipt, run, digest, st.sampled_from(["accepted", "duplicate", "late", "rejected", "unknown-run"])),
    st.builds(receipt, run, digest, st.just("rejected"), st.sampled_from(["not-asked", "left-out", "others-asked"])),
    st.builds(Computed, run, digest),
    st.builds(ComputeFailed, run, digest, st.just("a column is missing")),
    st.just(Connected()),
    st.just(Disconnected()),
    st.builds(Tick, st.floats(0, 1000)),
    st.builds(
        Restarted,
        st.lists(st.tuples(run, digest), max_size=2),
        st.lists(st.tuples(run, digest), max_size=2),
        st.lists(st.tuples(run, digest), max_size=2),
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=60), st.integers(0, 2**64 - 1))
def test_session_keeps_its_rules_under_any_order_of_events(history, seed):  # noqa: C901, PLR0912, PLR0915 - a table of rules
    state = SessionState("v1", frozenset({"frt"}), seed=seed)
    online = False
    stored = set()  # the outbox, as the shell keeps it
    ended = set()
    outside: set[str] = set()
    asked_here = defaultdict(set)
    for event in history:
        match event:
            case Computed() if state.phase(event.run, event.task_digest) == "computing":
                stored.add((event.run, event.task_digest))
            case Restarted():
                outside.clear()  # not kept
                stored |= {*event.pending, *event.parked}
                ended |= set(event.ended) - set(event.pending) - set(event.parked)
                ended -= {*event.pending, *event.parked}
            case Connected():
                online = True
            case Disconnected():
                online = False
            case RequestSeen():
                asked_here[event.run].add(event.request.task_digest)
        before = state
        state, effects = step(state, event)
        assert step(before, event) == (state, effects), "the same state and event give the same effects"
        for effect in effects:
            match effect:
                case Send():
                    key = (effect.run, effect.task_digest)
                    assert online
                    assert key in stored, "only stored answers are sent"
                    assert key not in ended, "a receipt ended it"
                case Compute():
                    assert isinstance(event, RequestSeen)
                    assert effect.asked == event
                    assert event.request.asked is None or "v1" in event.request.asked
                    assert event.request.sample != NOBODY
                    assert event.run not in outside or event.request.asked is not None
                    assert (event.run, event.request.task_digest) not in ended
                case Refuse():
                    assert effect.body.reason
                    assert effect.body.task_digest in asked_here[effect.run]
                case Forget():
                    assert effect.receipt is event
                    ended.add((event.run, event.task_digest))
                    outside |= {event.run} if event.reason in OUTSIDE else set()
                    stored.discard((event.run, event.task_digest))
                case EndRun():
                    outside.discard(effect.run)
                    stored = {key for key in stored if key[0] != effect.run}
                    ended = {key for key in ended if key[0] != effect.run}
                case Park():
                    assert isinstance(event, RequestSeen)
        assert state.now >= before.now


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=40))
def test_session_always_reaches_quiet_when_every_send_is_acknowledged(history):
    state = SessionState("v1", frozenset({"frt"}))
    for event in history:
        state, _ = step(state, event)
    pending: list[Any] = []
    for event in (Connected(), Tick(2000.0)):
        state, effects = step(state, event)
        pending += effects
    for name, jobs in list(state.runs.items()):
        for key, job in list(jobs.items()):
            if job.phase == "computing":
                state, _ = step(state, Computed(name, key))
            if state.phase(name, key) == "sending":
                state, _ = step(state, receipt(name, key, "accepted"))
    assert not state.busy
    assert state.next_due() is None
    assert step(state, Tick(1e9))[1] == ()
