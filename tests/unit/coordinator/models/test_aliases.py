"""What a name stands for: sequences that only rise, decisions that last, rollbacks, and rollouts that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from coordinator.journal import Journal, MemoryJournal, migrations
from coordinator.journal.port import Decision
from coordinator.journal.sql import HEAD, SqlJournal
from coordinator.models.aliases import Aliases
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.specification.rollout import RolloutPlan
from schemas.documents import document_digest
from schemas.errors import NotFoundError, UsageError
from schemas.messages import Evaluation, Trial
from schemas.record import ModelRecord

WALL = 1.8e9
Opener = Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same journal each time it is called."""
    if request.param == "sqlite":
        return lambda: SqlJournal(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    kept: list[MemoryJournal] = []

    def open_memory() -> Journal:
        kept.append(MemoryJournal(kept[-1] if kept else None))
        return kept[-1]

    return open_memory


def made(version: int) -> tuple[str, bytes]:
    document = {"scheme": "toy", "version": version}
    record = ModelRecord(
        name="m",
        version=version,
        digest=document_digest(document),
        document=document,
        fleet="f",
        run=f"r{version}",
        scheme="toy",
        cohort=[],
        created="2026-01-01T00:00:00+00:00",
    )
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


def test_decisions_come_back_in_order_and_by_name_when_the_journal_is_opened_again(opener: Opener) -> None:
    journal = opener()
    told = [Decision(name, "current", 1.5, WALL, {"version": number}) for number, name in enumerate("abab")]
    journal.decide(told[:3])
    journal.decide(told[3:])
    journal.close()
    journal = opener()
    assert (journal.decisions(), journal.decisions("b")) == (told, [told[1], told[3]])
    journal.close()


def test_registry_stands_for_the_same_versions_when_the_coordinator_starts_again(opener: Opener) -> None:
    journal = opener()
    first = registry_of(journal, 2)
    first.decide([first.aliases.to_current("m", 1, made(1)[0], "rolled-back", "tunnels")])
    before = first.aliases.current
    journal.close()
    journal = opener()
    again = registry_of(journal)
    again.adopt()
    assert again.aliases.current == before
    assert again.aliases.current["m"].reason == "tunnels"
    journal.close()


def test_compaction_keeps_what_a_name_stands_for_when_its_run_is_old(opener: Opener) -> None:
    journal = opener()
    registry = registry_of(journal, 4)
    for number in range(1, 5):
        journal.close_run(f"r{number}", {}, float(number))
    registry.decide([registry.aliases.to_current("m", 1, made(1)[0], "rolled-back", "why")])
    journal.compact(1, 1, registry.aliases.pinned())
    assert [model.version for model in journal.models("m")] == [1, 4]
    assert [each.body["version"] for each in registry.history("m")] == [1, 2, 3, 4, 1]
    journal.close()


def test_journal_of_the_first_version_gets_its_decisions_and_keeps_its_models(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    url = f"sqlite:///{path}"
    journal = SqlJournal(url)
    journal.add_model("m", "r1", made)
    journal.close()
    engine = sa.create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        assert not sa.inspect(connection).has_table("decisions")
    engine.dispose()
    journal = SqlJournal(url)
    registry = registry_of(journal)
    registry.adopt()
    assert (HEAD, registry.aliases.current["m"].version) == ("0003", 1)
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


def test_rollout_ends_at_once_by_name_when_no_vehicle_can_score_the_candidate() -> None:
    world = Tried(MemoryJournal(), "a", "b")
    world.start(0.5, 1.0)
    # Who is not asked yet is not heard: whichever of the two is first, after two rounds both have said it.
    for agent in ("a", "b", "a", "b"):
        world.say(agent, cannot="no test rows")
    (told,) = world.rollouts.documents()
    assert told["phase"] == "rolled-back"
    assert told["reason"] == "nobody-can: none of 2 vehicles can score it (no test rows)"
    assert told["cannot"] == {"a": "no test rows", "b": "no test rows"}
    assert "m" not in world.registry.aliases.candidate


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


def test_rollout_refuses_what_cannot_be_meant(opener: Opener) -> None:
    journal = opener()
    world = Tried(journal, "a")
    with pytest.raises(UsageError, match="current already"):
        world.rollouts.start("m", 2, RolloutPlan())
    with pytest.raises(NotFoundError, match="has no version 9"):
        world.rollouts.start("m", 9, RolloutPlan())
    with pytest.raises(NotFoundError, match="under way"):
        world.rollouts.stop("m")
    world.start()
    with pytest.raises(UsageError, match="is being tried already"):
        world.rollouts.start("m", 1, RolloutPlan())
    assert world.rollouts.stop("m", "enough").reason == "enough"
    journal.close()
