"""Requests on the broker: too large for it, left there when the coordinator is killed, cleared by somebody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from glassfleet.contract.messages import Task
from schemas import limits
from schemas.envelope import open_request
from schemas.messages import Manifest
from schemas.trust.joining import BlobStore
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.engine_bench import Wordy, engine_with
from tests.support.memory_broker import MemoryTransport


class KilledError(BaseException):
    """SIGKILL."""


def blobs(fleet: Fleet) -> set[str]:
    return {topic for topic in fleet.hub.retained if "/blob/" in topic}


def large_task(fleet: Fleet, run: str = "r1") -> Task:
    """Read the open task from its blobs, as an agent does."""
    outer = fleet.request(run)
    assert isinstance(outer.body, Manifest)
    store = BlobStore(TOPICS)
    store.want(outer.body)
    contents = (store.add(topic, fleet.hub.retained[topic]) for topic in sorted(blobs(fleet)))
    body: Any = open_request(outer, next(content for content in contents if content is not None)).body
    return Task.from_value(body.task)


@pytest.mark.parametrize("level", [1, 2])
def test_coordinator_ends_a_run_by_name_when_its_request_is_too_large_for_the_broker(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    fleet = Fleet(max_bytes=4096, engine=engine_with(Wordy(first=level))).begin("a", "b")
    if level == 2:
        fleet.answer("a", "b", task=fleet.task())
        assert fleet.receipts("b") == ["accepted"], "the answer that led there was good"
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["reason"].split(":")[0]) == ("failed", "request-too-large")
    assert "raise max_message_bytes" in document["reason"]
    assert blobs(fleet) == set()
    assert TOPICS.request("r1") not in fleet.hub.retained
    fleet.crash()
    assert fleet.core.runs.document("r1") == document


@contextmanager
def killed_at_publish(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Let the coordinator die at its `number`-th publish in here; what it published before reaches the broker."""
    publish, left = MemoryTransport.publish, [number]

    def fuse(self: MemoryTransport, *args: Any, **options: Any) -> None:
        left[0] -= self is not fleet.watcher
        if left[0] == 0:
            self.is_running = False  # nothing reaches it any more
            raise KilledError
        publish(self, *args, **options)

    with monkeypatch.context() as patch, suppress(KilledError):
        patch.setattr(MemoryTransport, "publish", fuse)
        yield
    fleet.hub.pump()


@pytest.mark.parametrize("number", range(1, 17))
@pytest.mark.parametrize("again", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_coordinator_leaves_nothing_behind_when_it_is_killed_between_journal_and_broker(
    monkeypatch: pytest.MonkeyPatch, number: int, again: int
) -> None:
    fleet = Fleet(max_bytes=4096, engine=engine_with(Wordy())).begin("a", parameters={"levels": 3})
    while fleet.core.runs.live.get("r1") is not None:
        task = large_task(fleet)
        with killed_at_publish(fleet, monkeypatch, number):
            fleet.answer("a", task=task)
        with killed_at_publish(fleet, monkeypatch, again):
            fleet.crash()  # and its next life dies, too, as long as the first did not say all
        fleet.crash()
    record = fleet.record()
    levels = len(record.document["model"]["history"])
    assert levels == 3
    assert blobs(fleet) == set(), "blobs of former rounds"
    assert TOPICS.request("r1") not in fleet.hub.retained
    assert [model.version for model in fleet.core.registry.heads("model")] == [1]


def test_coordinator_asks_again_when_somebody_clears_the_request_of_a_live_run() -> None:
    fleet = Fleet().begin("a")
    asked = fleet.task()
    fleet.publish(TOPICS.request("r1"), b"", retain=True)
    assert fleet.task() == asked
    fleet.finish("a")
    fleet.hub.pump()
    assert TOPICS.request("r1") not in fleet.hub.retained, "our own clearing stands"
