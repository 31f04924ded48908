"""Messages as events: what an agent reads, and what it refuses to read."""

from __future__ import annotations

from typing import Any

import pytest

from broker.port import Message
from edge_agent.messages.decoder import (
    Blob,
    CandidateWithdrawn,
    CoordinatorSeen,
    Decoder,
    ModelVersion,
    OwnState,
    RequestInParts,
)
from edge_agent.session.events import ReceiptSeen, RequestCleared, RequestSeen
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
        (TOPICS.receipt("v1"), packed(Receipt(run="r1", task_digest="a" * 64, outcome="late")), ReceiptSeen),
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
    with pytest.raises(WireError) as caught:
        Decoder(TOPICS, "v1").decode(Message(topic, payload))
    assert caught.value.code == code
