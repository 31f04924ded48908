"""What an agent reads, who stops when two have one id, and when it says again that it is up."""

from __future__ import annotations

from typing import Any

import pytest

from broker.port import Message
from edge_agent.messages import (
    Blob,
    CandidateWithdrawn,
    CoordinatorSeen,
    Decoder,
    ModelVersion,
    OwnState,
    RequestInParts,
)
from edge_agent.presence import QUIET, SPAN, OwnId, Reannouncer
from edge_agent.session.events import RequestCleared, RequestSeen
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import AgentState, Body, CoordinatorState, Manifest, ModelPointer, Receipt, Request, Trial
from schemas.topics import Topics

TOPICS = Topics("fleet")
TASK = {"scheme": "frt", "kind": "level", "body": {}}
REQUEST = Request(task=TASK, task_digest=codec.digest_of(TASK), remaining=1.0, asked=None)
OTHER_TASK = REQUEST.model_copy(update={"task_digest": "b" * 64})
MANIFEST = Manifest(what="request", digest="a" * 64, size=9, count=1)
STATE = {"incarnation": "i", "software": ""}
UP = AgentState.model_validate({"status": "up", "schemes": [], "features": [], "target": "", **STATE})
COORDINATOR = CoordinatorState.model_validate({"status": "up", **STATE})
CURRENT = ModelPointer(name="m", version=1, digest="a" * 64)
TRIED = CURRENT.model_copy(update={"trial": Trial(salt="s", below=1, champion="")})


def packed(body: Body, **head: Any) -> bytes:
    return Envelope(fleet="fleet", body=body, **head).to_bytes()


@pytest.mark.parametrize(
    ("topic", "payload", "event"),
    [
        (TOPICS.request("r1"), packed(REQUEST, run="r1"), RequestSeen),
        (TOPICS.request("r1"), packed(MANIFEST, run="r1"), RequestInParts),
        (TOPICS.request("r1"), b"", RequestCleared),
        (TOPICS.receipt("v1"), packed(Receipt(run="r1", task_digest="a" * 64, outcome="late")), Receipt),
        (TOPICS.agent_state("v1"), packed(UP, agent="v1"), OwnState),
        (TOPICS.agent_state("v1"), b"", None),
        (TOPICS.coordinator_state(), packed(COORDINATOR), CoordinatorSeen),
        (TOPICS.coordinator_state(), b"", None),
        (TOPICS.model_current("m"), packed(CURRENT), ModelPointer),
        (TOPICS.model_current("m"), b"", None),
        (TOPICS.model_candidate("m"), packed(TRIED), ModelPointer),
        (TOPICS.model_candidate("m"), b"", CandidateWithdrawn),
        (TOPICS.model_version("m", 1), b"{}", ModelVersion),
        (TOPICS.blob("a" * 64, 0), b"x", Blob),
    ],
)
def test_decoder_gives_the_event_of_each_message_an_agent_subscribes_to(topic: str, payload: bytes, event: Any) -> None:
    read = Decoder(TOPICS, "v1").decode(Message(topic, payload))
    assert read is None if event is None else type(read) is event


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        (TOPICS.request("r2"), packed(REQUEST, run="r1"), "malformed"),
        (TOPICS.request("r1"), packed(OTHER_TASK, run="r1"), "digest-mismatch"),
        (TOPICS.request("r1"), packed(CURRENT, run="r1"), "malformed"),
        (TOPICS.request("r1"), packed(REQUEST.model_copy(update={"task": {"scheme": "frt"}}), run="r1"), "malformed"),
        (
            TOPICS.request("r1"),
            packed(REQUEST.model_copy(update={"task": TASK | {"scheme": 1}}), run="r1"),
            "malformed",
        ),
        (TOPICS.receipt("v2"), packed(Receipt(run="r1", task_digest="a" * 64, outcome="late")), "unexpected-topic"),
        (TOPICS.receipt("v1"), b"", "malformed"),
        (TOPICS.model_current("other"), packed(CURRENT), "malformed"),
        (TOPICS.model_candidate("m"), packed(CURRENT), "malformed"),
        (TOPICS.model_current("m"), packed(TRIED), "malformed"),
    ],
)
def test_decoder_names_the_fault_when_a_message_is_not_what_its_topic_promises(
    topic: str, payload: bytes, code: str
) -> None:
    with pytest.raises(WireError, match=f"^{code}: "):
        Decoder(TOPICS, "v1").decode(Message(topic, payload))


def test_identity_ignores_its_own_birth_and_repeats_it_when_its_own_will_is_read():
    me = OwnId("me", 5.0)
    assert me.judge("me", "up", 5.0, 0.0) == ""
    assert me.judge("me", "down", 5.0, 1.0) == "repeat"


def test_identity_takes_what_was_there_before_its_birth_for_its_own_past():
    me = OwnId("me", 5.0)
    assert [me.judge("past", status, 1.0, 10.0 * index) for index, status in enumerate(["up", "down"] * 5)] == [""] * 10


@pytest.mark.parametrize("status", ["up", "down"])
def test_identity_does_not_stop_for_late_copies_of_its_past(status):
    me = OwnId("me", 5.0)
    me.judge("me", "up", 5.0, 0.1)
    assert [me.judge("past", status, 1.0, 0.2 + 0.1 * index) for index in range(10)] == ["repeat"] * 10


@pytest.mark.parametrize(("one", "two"), [((1.0, "b"), (2.0, "a")), ((1.0, "a"), (1.0, "b"))])
def test_identity_of_the_later_stops_and_that_of_the_first_stays_when_both_keep_coming_back(one, two):
    first, second = OwnId(one[1], one[0]), OwnId(two[1], two[0])
    first.judge(first.own, "up", first.started, 0.0)
    second.judge(second.own, "up", second.started, 5.0)
    verdicts: dict[str, list[str]] = {"first": [], "second": []}
    for index in range(10):
        at = 5.1 + index * SPAN / 4
        verdicts["first"].append(first.judge(second.own, "up", second.started, at))
        verdicts["second"].append(second.judge(first.own, "down", first.started, at))
    assert "stop" in verdicts["second"]
    assert "stop" not in verdicts["first"]


def test_identity_stops_in_the_end_when_the_later_one_never_does():
    me = OwnId("me", 1.0)
    me.judge("me", "up", 1.0, 0.0)
    verdicts = [me.judge("other", "up", 2.0, 1.0 + index * 2 * SPAN) for index in range(18)]
    assert verdicts == ["repeat"] * 17 + ["stop"]


def test_identity_does_not_stop_when_a_killed_broker_brings_its_past_back_again_and_again():
    me = OwnId("me", 5.0)
    me.judge("me", "up", 5.0, 0.1)
    # Retained will, a queued copy and the old birth at each restart; two restarts within four seconds, one much later.
    for restart in (2.0, 5.6, 5.6 + 2 * QUIET, 9.0 + 2 * QUIET):
        for late in (0.0, 0.001, 0.04, 0.3):
            assert me.judge("past", "down", 1.0, restart + late) == "repeat"
        me.judge("me", "up", 5.0, restart + 0.5)


def test_identity_memory_is_bounded_when_strangers_are_endless():
    me = OwnId("me", 1.0)
    me.judge("me", "up", 1.0, 0.0)
    for index in range(1000):
        assert me.judge(f"stranger-{index}", "up", 0.0, float(index)) == "repeat"
    assert len(me._sightings) <= 64


def state(incarnation: str, status: str = "up") -> CoordinatorState:
    return CoordinatorState.model_validate({"status": status, "incarnation": incarnation, "software": ""})


def test_agent_greets_each_life_of_a_coordinator_once() -> None:
    reannouncer = Reannouncer("me")
    waits = [reannouncer.delay(state(name), was_retained=False) for name in ("one", "one", "two", "two", "one")]
    assert [wait is not None for wait in waits] == [True, False, True, False, True]
    assert all(wait is None or 0.0 <= wait <= 1.0 for wait in waits)


def test_agent_does_not_greet_the_coordinator_that_was_there_before_it() -> None:
    reannouncer = Reannouncer("me")
    assert reannouncer.delay(state("one"), was_retained=True) is None
    assert reannouncer.delay(state("one"), was_retained=False) is None
    assert reannouncer.delay(state("two"), was_retained=True) is not None, "it came while the connection was lost"


def test_agent_does_not_greet_one_that_is_down() -> None:
    assert Reannouncer("me").delay(state("one", "down"), was_retained=False) is None


def test_agents_of_a_fleet_spread_their_greetings() -> None:
    waits = [Reannouncer(f"agent-{index}").delay(state("one"), was_retained=False) for index in range(200)]
    given = sorted(wait for wait in waits if wait is not None)
    assert len(given) == 200
    assert given[20] < 0.3
    assert given[-20] > 0.7
