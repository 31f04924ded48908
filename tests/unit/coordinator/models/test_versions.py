"""Versions that stay, what names point to, and central references: made current again, and never taken for a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from coordinator.engine import Engine
from coordinator.journal import Journal
from coordinator.models.aliases import Aliases
from coordinator.models.central import read_reference
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RunSpec
from schemas.envelope import Envelope
from schemas.errors import BrokerError, NotFoundError, UsageError
from schemas.messages import ModelPointer
from schemas.record import ModelRecord
from tests.support.coordinator_bench import TOPICS, Fleet, TornDisk
from tests.support.coordinator_http import record_of, small_document

KEPT = 2


class World(Fleet):
    """A coordinator that remembers one ended run and two versions; models without learning."""

    def __init__(self) -> None:
        super().__init__(Engine(), settings={"retained_versions": KEPT, "kept_runs": 1})

    def store(self) -> None:
        """Register the next version of model ``one``, of a run that has ended, without deciding about it."""

        def make(version: int) -> tuple[str, bytes]:
            record = record_of({"scheme": "frt", "version": version}, "one", version, run=run)
            return record.digest, record.to_bytes()

        run = f"one-{len(self.journal.models('one')) + 1}"
        self.journal.add_model("one", run, make)
        self.journal.close_run(run, {}, 1.0)
        self.core.runs.past[run] = None

    def learn(self, number: int = 1) -> None:
        """Let so many versions more be current, one after the other."""
        for _ in range(number):
            self.store()
            newest = self.journal.models("one")[-1]
            stood = self.core.models.become_current(newest, "published", "")
            self.core.models.publisher.model(newest, stood)
        self.hub.pump()

    def forget(self) -> None:
        """End a run: all others that have ended are forgotten."""
        run = f"other-{self.hub.now}"
        self.core.start_run(RunSpec(run=run, scheme="frt"))
        self.core.cancel(run)
        assert self.core.runs.ids() == [run]

    def versions(self) -> list[int]:
        return [model.version for model in self.journal.models("one")]

    def retained(self) -> list[int]:
        """Versions that stand on the broker."""
        return [version for version in range(1, 9) if TOPICS.model_version("one", version) in self.hub.retained]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("paused", [False, True])
def test_candidate_stays_when_its_run_is_forgotten_before_the_rollout_opens(world: World, *, paused: bool) -> None:
    world.learn(5)
    world.core.rollouts.start("one", 1, RolloutPlan())
    if paused:
        world.core.rollouts.pause("one", "lunch")
    world.forget()
    # 5 is current, 4 was before it and is among the newest.
    assert world.versions() == [1, 4, 5]
    world.birth("v1")
    if paused:
        world.core.rollouts.resumed("one")
    world.pass_time(3.0)
    assert world.core.aliases.candidate["one"].version == 1
    assert TOPICS.model_candidate("one") in world.hub.retained
    assert world.retained() == [1, 4, 5]


def test_rollback_goes_to_the_version_before_when_all_its_runs_are_forgotten(world: World) -> None:
    world.learn(4)
    world.core.models.rollback("one", 1, "tunnels")
    world.core.models.promote("one", 4)
    world.forget()
    assert world.versions() == [1, 3, 4]
    assert world.core.models.rollback("one", None, "tunnels again").version == 1
    with pytest.raises(NotFoundError, match="no version before 1 was ever current; name one with --to"):
        world.core.models.rollback("one", None, "and again")
    world.hub.pump()
    assert world.retained() == [1, 3, 4]


def test_records_read_for_a_new_version_do_not_grow_with_the_versions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads() -> int:
        stood = world.core.models.become_current(world.journal.models("one")[-1], "published", "")
        journal = world.core.registry.journal
        with monkeypatch.context() as patch:
            patch.setattr(journal, "model", read := Mock(wraps=journal.model))
            patch.setattr(journal, "models", None)
            world.core.models.publisher.model(journal.heads("one")[-1], stood)
        return read.call_count

    world.learn(3)
    few = reads()
    world.learn(20)
    assert 0 < reads() <= few


def test_version_leaves_the_broker_after_a_crash_between_the_decision_and_its_publication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise BrokerError("killed here")

    world.learn(3)
    world.core.models.rollback("one", 1, "tunnels")
    world.hub.pump()
    assert world.retained() == [1, 2, 3]
    with monkeypatch.context() as crash:
        crash.setattr(world.core.models.publisher, "model", killed)
        with pytest.raises(BrokerError, match="killed here"):
            world.learn()
    world.crash()
    assert world.core.aliases.current["one"].version == 4
    assert world.retained() == [3, 4]


WALL = 1.8e9


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


def fleet_model(name: str, version: int = 1) -> ModelRecord:
    return record_of(small_document(), name, version)


def learned(journal: Journal, name: str) -> None:
    """Put the next version of a model that the fleet learned into the journal."""

    def make(version: int) -> tuple[str, bytes]:
        record = fleet_model(name, version)
        return record.digest, record.to_bytes()

    journal.add_model(name, f"run-{name}-{len(journal.models(name)) + 1}", make)


class ReferenceWorld(Fleet):
    """A coordinator with models ``one`` and ``two``, over the in-memory broker."""

    def __init__(self) -> None:
        journal = TornDisk()
        for name in ("one", "two"):
            learned(journal, name)
        super().__init__(Engine(), journal=journal, settings={"retained_versions": KEPT})

    def register(self, name: str, slope: float, about: str = "") -> int:
        version = self.core.models.central(read_reference(small_document(slope), fleet_model(name)), about).version
        self.hub.pump()
        return version

    def retained(self, name: str) -> list[int]:
        """Versions of a model that stand on the broker whole."""
        return [version for version in range(1, 9) if TOPICS.model_version(name, version) in self.hub.retained]

    def current(self, name: str) -> int:
        body = Envelope.from_bytes(self.hub.retained[TOPICS.model_current(name)], fleet="f").body
        assert isinstance(body, ModelPointer)
        assert body.version == self.core.aliases.current[name].version
        return body.version


@pytest.fixture
def references() -> ReferenceWorld:
    return ReferenceWorld()


def test_reference_stands_on_the_broker_when_an_older_one_is_registered_again(references: ReferenceWorld) -> None:
    assert [references.register("one", slope) for slope in (0.9, 0.8, 0.7, 0.6)] == [1, 2, 3, 4]
    assert references.retained("one.central") == [3, 4]
    assert references.register("one", 0.9) == 1
    assert (references.current("one.central"), references.retained("one.central")) == (1, [1, 3, 4])
    assert references.register("one", 0.6, "measured anew") == 4
    assert (references.current("one.central"), references.retained("one.central")) == (4, [3, 4])
    result = [(each.body["cause"], each.body["version"]) for each in references.core.registry.history("one.central")]
    assert result == [*(("published", version) for version in (1, 2, 3, 4)), ("rolled-back", 1), ("promoted", 4)]
    assert references.core.aliases.current["one.central"].reason == "measured anew"


def test_reference_is_refused_when_a_run_of_a_former_version_has_its_id(references: ReferenceWorld) -> None:
    wanted = read_reference(small_document(0.8), fleet_model("one"))
    record = fleet_model("three").to_bytes()
    references.journal.add_model("three", wanted.run, lambda _version: ("d" * 64, record))
    with pytest.raises(UsageError, match="'three' version 1 is of a run of that id"):
        references.core.models.central(wanted)
    assert "one.central" not in references.core.aliases.current


def deep(_value: Any) -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize("member", ["scheme", "format", "parameters", "domain", "model"])
@pytest.mark.parametrize("change", [deep, lambda _value: None, lambda _value: 1e400, lambda value: [value]])
def test_document_is_refused_by_name_whatever_one_member_holds(member: str, change: Callable[[Any], Any]) -> None:
    spoiled = {**small_document(0.8), member: change(small_document(0.8)[member])}
    with pytest.raises(UsageError, match="the document cannot be read") as fault:
        read_reference(spoiled, fleet_model("one"))
    assert len(str(fault.value)) < 1000


def test_nobody_promotes_rolls_back_or_tries_a_reference_by_hand(references: ReferenceWorld) -> None:
    for slope in (0.8, 0.6):
        references.register("one", slope)
    for move in (
        lambda: references.core.models.promote("one.central", 1),
        lambda: references.core.models.rollback("one.central", 1, "why not"),
        lambda: references.core.rollouts.start("one.central", 1, RolloutPlan()),
    ):
        with pytest.raises(UsageError, match=r"'one\.central' is a central reference"):
            move()
    assert references.current("one.central") == 2


@pytest.mark.parametrize(("run", "model"), [("r1", "one.central"), ("central-0123456789abcdef", "one")])
def test_run_is_refused_when_it_would_take_what_stands_for_references(world: World, run: str, model: str) -> None:
    with pytest.raises(UsageError, match="central references; choose another"):
        world.core.start_run(RunSpec(run=run, model=model, scheme="frt"))
    assert world.core.runs.ids() == []
