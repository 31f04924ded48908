"""Models on the broker: only those that can be published are, and an old version gives way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from schemas import limits
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.engine_bench import NOISE, ToyModel, Wordy, engine_with


@dataclass(frozen=True)
class SpoiltModel(ToyModel):
    """A toy model with something in its document that cannot travel."""

    text: Any = None

    def to_document(self) -> dict[str, Any]:
        if isinstance(self.text, Exception):
            raise self.text
        return {**super().to_document(), "model": {"text": self.text}}


@pytest.mark.parametrize(
    "text", [math.nan, RuntimeError("no words"), {1, 2}, NOISE], ids=["nan", "raises", "no-json", "too-large"]
)
def test_coordinator_ends_a_run_by_name_when_its_model_cannot_be_published(
    monkeypatch: pytest.MonkeyPatch, text: Any
) -> None:
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    scheme = Wordy(first=99, change=lambda model: SpoiltModel(model.history, text=text))
    fleet = Fleet(max_bytes=4096, engine=engine_with(scheme)).begin("a", "b")
    fleet.finish("a", "b")
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["phase"]) == ("failed", "failed")
    assert document["reason"].startswith("model-unpublishable: ")
    assert document["model"] is None
    assert fleet.receipts("b") == ["accepted"] * 3, "the vehicles did nothing wrong"
    assert [topic for topic in fleet.hub.retained if "/model/" in topic or "/run/" in topic] == []
    assert fleet.core.registry.names() == []
    fleet.crash()
    assert fleet.core.runs.document("r1") == document
    assert fleet.core.registry.names() == []


def test_coordinator_publishes_only_the_new_version_and_clears_the_one_that_falls_out() -> None:
    fleet = Fleet()
    fleet.birth("a")
    for number in range(13):
        del fleet.seen[:]
        fleet.begin(run=f"r{number}")
        fleet.finish("a", run=f"r{number}")
        fleet.core.models.promote("model", number + 1)
        fleet.hub.pump()
        topics = [message.topic for message in fleet.seen if "/model/" in message.topic]
        gone = [TOPICS.model_version("model", number - 9)] if number >= 10 else []
        # The pointer to the present version, said again with the new one, and the promotion.
        pointers = [TOPICS.model_current("model")] * (2 if number else 1)
        assert topics == [*gone, TOPICS.model_version("model", number + 1), *pointers]
    kept = {topic for topic in fleet.hub.retained if "/v/" in topic}
    assert kept == {TOPICS.model_version("model", version) for version in range(4, 14)}


def test_coordinator_goes_on_when_a_model_of_former_days_is_too_large_for_this_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme = Wordy(first=99, change=lambda model: SpoiltModel(model.history, text=NOISE))
    fleet = Fleet(engine=engine_with(scheme)).begin("a")
    fleet.finish("a")
    assert fleet.core.runs.document("r1")["outcome"] == "finished"
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    fleet.max_bytes = 4096
    fleet.crash()
    assert fleet.core.metrics["models.unpublishable"] == 1
    assert fleet.core.metrics["connected"] == 1
    assert fleet.core.registry.names() == ["model"], "it is still there for the HTTP API"
