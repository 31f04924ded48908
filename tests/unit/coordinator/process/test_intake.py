"""A coordinator answers the same, whether a worker has verified and decoded what it hears or not; workers' ids."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.port import Message
from coordinator.config import CoordinatorConfig
from coordinator.process.frames import FrameReader
from coordinator.process.intake import message_of
from coordinator.process.intake_worker import IntakeWorker
from coordinator.process.link import check_workers
from glassfleet.contract.messages import Task
from schemas.envelope import Envelope, frames_for_contribution
from schemas.errors import UsageError
from schemas.messages import Refusal
from schemas.topics import SHARDS, shard_of
from tests.support.authorities import FleetCa
from tests.support.coordinator_bench import TOPICS, Fleet, contribution, hostile
from tests.support.engine_bench import TOY_ENGINE


@dataclass
class Worked(Fleet):
    """A fleet whose answers go through an intake worker."""

    frames: FrameReader = field(default_factory=FrameReader)
    handed_on: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = CoordinatorConfig(fleet="f", intake_workers=2)
        self.worker = IntakeWorker(socket.socketpair()[0], 1, config, TOY_ENGINE)
        super().__post_init__()

    def arrive(self, message: Message) -> None:
        for each in self.seen:
            if each.topic.endswith("/request"):
                self.worker.hear(each.topic, each.payload)
        if "/contribution/" not in message.topic:
            super().arrive(message)
            return
        for kind, *value in self.frames.add(self.worker.frame(message, 0.0)):
            self.handed_on.append(kind)
            super().arrive(message_of(kind, value))


def said(task: Task) -> Iterator[tuple[str, bytes]]:
    topic, good = TOPICS.contribution("a"), Envelope(fleet="f", body=contribution("a", task), run="r1", agent="a")
    for _, payload in hostile(task):
        yield topic, payload
    yield topic, b"nonsense"
    yield TOPICS.contributions((shard_of("a") + 1) % SHARDS, "a"), good.to_bytes()
    refusal = Envelope(fleet="f", body=Refusal(task_digest=task.digest, reason="no"), run="r1", agent="b")
    yield TOPICS.contribution("b"), refusal.to_bytes()
    yield topic, good.to_bytes()
    yield topic, good.to_bytes()
    yield from frames_for_contribution(
        Envelope(fleet="f", body=contribution("b", task), run="r1", agent="b"), TOPICS, 4096
    )


def test_receipts_state_and_journal_are_the_same_through_a_worker() -> None:
    alone, worked = Fleet().begin("a", "b", "c"), Worked().begin("a", "b", "c")
    nonces = [each.state().spec.nonce for each in (alone, worked)]
    for fleet in (alone, worked):
        for topic, payload in said(fleet.task()):
            fleet.publish(topic, payload)
    assert worked.handed_on.count("event") > 10
    for agent in "ab":
        assert alone.receipts(agent) == worked.receipts(agent) != []
    assert nonces[0] != nonces[1], "two runs, so the digests differ"
    summaries = [(each.state().accepted, each.state().open.rejected) for each in (alone, worked)]  # type: ignore[union-attr]
    assert summaries[0] == summaries[1] == (("a", "b"), summaries[0][1])
    kinds = [[entry.kind for entry in each.journal.records("r1")] for each in (alone, worked)]
    assert kinds[0] == kinds[1]
    for fleet in (alone, worked):
        fleet.finish("a", "b", "c")
    assert alone.record().document == worked.record().document


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["cloud-1"], "intake-2 must be the identity of intake worker 2"),
        (["cloud-1", "cloud"], "intake-2 must be the identity of intake worker 2"),
        (["cloud-1", "cloud-1"], "ca issue --coordinator cloud-2 --out .*intake-2"),
        (["cloud-1", "cloud-2"], None),
    ],
    ids=["none", "the coordinator's", "another worker's", "its own"],
)
def test_intake_worker_without_an_id_of_its_own_is_refused(names: list[str], fault: str | None, tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    identity = ca.identity("coordinator", "cloud", where="its")
    for number, name in enumerate(names, 1):
        ca.identity("coordinator", name, where=f"its/intake-{number}")
    with nullcontext() if fault is None else pytest.raises(UsageError, match=fault):
        check_workers(identity, 2)
