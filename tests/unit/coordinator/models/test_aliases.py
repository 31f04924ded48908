"""What a name stands for: sequences that only rise, decisions that last, rollbacks, and rollouts that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.journal import Journal, MemoryJournal
from coordinator.journal.sql import HEAD, SqlJournal
from coordinator.models.aliases import Aliases
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.specification.rollout import RolloutPlan
from schemas.errors import NotFoundError
from schemas.messages import Evaluation, Trial
from tests.support.coordinator_http import record_of
from tests.support.journals import migrate_back

WALL = 1.8e9
Opener = Callable[[], Journal]


def made(version: int) -> tuple[str, bytes]:
    record = record_of({"scheme": "toy", "version": version}, version=version, run=f"r{version}", scheme="toy")
    return record.digest, record.to_bytes()


def registry_of(journal: Journal, versions: int = 0) -> Registry:
    """A registry with so many more versions, each of them current once."""
    registry = Registry(journal, "f", "test", lambda: WALL)
    for _ in range(versions):
        model = journal.add_model("m", f"r{len(journal.models('m')) + 1}", made)
        registry.decide([registry.aliases.to_current("m", model.version, model.digest, "published")])
    return registry


def test_sequence_rises_with_each_decision_when_the_clock_stands_still_or_goes_back() -> None:
    clock = [WALL]
    aliases = Aliases(lambda: 0.0, lambda: clock[0])
    seen = []
    for at in (WALL, WALL, WALL - 3600.0, WALL + 60.0):
        clock[0] = at
        decision = aliases.to_current("m", 1, "a" * 64, "published")
        aliases.apply([decision])
        seen.append(decision.body["sequence"])
    assert seen == [1_800_000_000_000, 1_800_000_000_001, 1_800_000_000_002, 1_800_000_060_000]


def test_candidate_is_pinned_until_it_is_withdrawn_and_never_current() -> None:
    aliases = Aliases(lambda: 0.0, lambda: WALL)
    aliases.apply([aliases.to_current("m", 1, "a" * 64, "published")])
    aliases.apply([aliases.to_candidate("m", 2, "b" * 64, Trial(salt="s", below=1, champion="a" * 64))])
    assert (aliases.pinned(), aliases.current["m"].version) == ({("m", 1), ("m", 2)}, 1)
    aliases.apply([aliases.to_none("m", "stopped")])
    assert (aliases.pinned(), aliases.candidate) == ({("m", 1)}, {})


def test_journal_of_the_first_version_gets_its_decisions_and_keeps_its_models(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    url = f"sqlite:///{path}"
    journal = SqlJournal(url)
    journal.add_model("m", "r1", made)
    journal.close()
    migrate_back(url, "0001")
    journal = SqlJournal(url)
    registry = registry_of(journal)
    registry.adopt()
    assert (HEAD, registry.aliases.current["m"].version) == ("0004", 1)
    assert [each.body["cause"] for each in journal.decisions("m")] == ["adopted"]
    journal.close()


def test_rollback_goes_to_what_was_current_before_and_says_when_nothing_was() -> None:
    registry = registry_of(MemoryJournal(), 1)
    with pytest.raises(NotFoundError, match="name one with --to"):
        registry.before("m")
    registry = registry_of(MemoryJournal(), 3)
    assert registry.before("m") == 2


class Tried:
    """Three versions, the second current, and rollouts over a fleet that the test names."""

    def __init__(self, journal: Journal, *agents: str) -> None:
        self.now = 10.0
        self.registry = registry_of(journal, 3)
        self.registry.decide([self.registry.aliases.to_current("m", 2, made(2)[0], "rolled-back", "why")])
        self.metrics: Counter[str] = Counter()
        self.rollouts = Rollouts(self.registry, lambda *_: None, lambda: agents, self.metrics, lambda: self.now)
        self.rollouts.connected()

    def start(self, *stages: float) -> None:
        self.rollouts.start("m", 3, RolloutPlan(stages=stages or (1.0,), deadline=100.0))
        self.now += 5.0
        self.rollouts.tick(self.now)

    def say(self, agent: str, *, cannot: str = "", candidate: float = 1.0) -> None:
        self.rollouts.report(
            agent,
            Evaluation(
                name="m",
                version=3,
                digest=made(3)[0],
                metric="rmse",
                federated=candidate,
                local=1.0,
                rows=4,
                champion=None if cannot else 1.0,
                champion_digest=made(2)[0],
                cannot=cannot,
            ),
        )
        self.rollouts.tick(self.now)


def test_rollout_asks_others_when_those_asked_cannot_and_goes_on_with_them(opener: Opener) -> None:
    journal = opener()
    world = Tried(journal, "a", "b", "c", "d")
    world.start(0.25, 1.0)
    (first,) = world.rollouts.documents()[0]["stages"][0]["asked"]
    world.say(first, cannot="no \x1b[31mtest rows")
    (told,) = world.rollouts.documents()
    (stage,) = told["stages"]
    assert (len(stage["asked"]), stage["cannot"], told["awaited"], told["phase"]) == (2, 1, 1, "trying")
    assert told["cannot"] == {first: "no  [31mtest rows"}
    others = sorted({"a", "b", "c", "d"} - {first})
    # Twice: who is not asked yet is not heard, and a second report counts for nothing.
    for agent in (*others, *others):
        world.say(agent)
    (told,) = world.rollouts.documents()
    assert told["phase"] == "promoted"
    assert told["reason"] == "error +0.0% on average over 3 vehicles, worse off: 0"
    assert told["awaited"] is None
    again = Rollouts(registry_of(journal), lambda *_: None, lambda: (), Counter(), lambda: world.now)
    again.resume(journal.decisions())
    assert again.documents() == [told]
    journal.close()
