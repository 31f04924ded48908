"""The coordinator without threads, over the in-memory broker: runs from start to end, and over crashes."""

from __future__ import annotations

import pytest

from broker.memory import Saved
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, UsageError
from schemas.messages import (
    ModelPointer,
    Request,
)
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.engine_bench import central, toy_spec


def test_coordinator_publishes_a_model_that_equals_the_central_one() -> None:
    fleet = Fleet().begin("a", "b", model="m")
    fleet.finish("b", "a")
    fleet.core.models.promote("m", 1)
    fleet.hub.pump()
    record = fleet.record("m")
    assert record.document == central(toy_spec(), "ab").to_document()
    assert (record.cohort, record.training.rows, record.training.nullified_cells) == (["a", "b"], 8, 6)
    pointer = Envelope.from_bytes(fleet.hub.retained[TOPICS.model_current("m")], fleet="f").body
    assert isinstance(pointer, ModelPointer)
    assert pointer.sequence > 0
    assert pointer == ModelPointer(name="m", version=1, digest=record.digest, sequence=pointer.sequence)
    assert TOPICS.request("r1") not in fleet.hub.retained, "the request of an ended run is cleared"
    order = [message.topic for message in fleet.seen if "/model/" in message.topic]
    assert order == [TOPICS.model_version("m", 1), TOPICS.model_current("m")]
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["model"]["digest"]) == ("finished", record.digest)


def test_coordinator_takes_the_remaining_time_from_the_journal_after_a_crash() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(policy={"deadline": 10}))
    fleet.hub.advance(6)
    fleet.answer("a")
    fleet.crash()
    request = fleet.request().body
    assert isinstance(request, Request)
    assert request.remaining == pytest.approx(4)
    fleet.hub.advance(1000)
    fleet.crash()
    state = fleet.state()
    assert state.phase == "recruiting", "no time passes while nobody counts it"
    fleet.pass_time(4)
    state = fleet.state()
    assert state.cohort == ("a",)


def test_coordinator_publishes_everything_again_when_the_broker_forgot() -> None:
    fleet = Fleet().begin("a", "b", run="r0")
    fleet.finish("a", "b", run="r0")
    fleet.core.models.promote("model", 1)
    fleet.begin()
    before = dict(fleet.hub.retained)
    fleet.hub.stop_broker()
    fleet.hub.start_broker(Saved())
    fleet.hub.advance(10)
    own = {topic for topic in before if "/agent/" not in topic}
    assert own <= set(fleet.hub.retained)
    assert TOPICS.request("r1") in own
    assert TOPICS.model_current("model") in own


def test_coordinator_clears_a_request_that_outlived_its_run() -> None:
    fleet = Fleet()
    fleet.publish(TOPICS.request("ghost"), b"anything", retain=True)
    assert TOPICS.request("ghost") not in fleet.hub.retained


def test_coordinator_refuses_a_run_id_that_is_taken_also_after_its_end() -> None:
    fleet = Fleet()
    fleet.birth("a")
    fleet.core.start_run(toy_spec())
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    fleet.core.cancel("r1")
    fleet.crash()
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    assert fleet.core.runs.document("r1")["outcome"] == "cancelled"
    fleet.core.cancel("r1")
    with pytest.raises(NotFoundError):
        fleet.core.cancel("other")
    with pytest.raises(NotFoundError):
        fleet.core.runs.document("other")
