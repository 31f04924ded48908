"""What stays when runs are forgotten, what a missing version does, and what a killed coordinator leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import structlog

from coordinator.journal import Journal
from coordinator.runs.defaults import default_engine
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RunSpec
from schemas.errors import BrokerError
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.coordinator_http import record_of

KEPT = 2


class World(Fleet):
    """A coordinator that remembers one ended run and two versions; models without learning."""

    def __init__(self, opener: Callable[[], Journal]) -> None:
        settings = {"retained_versions": KEPT, "kept_runs": 1}
        super().__init__(default_engine(), journal=opener(), reopen=lambda _: opener(), settings=settings)

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
def world(opener: Callable[[], Journal]) -> Iterator[World]:
    made = World(opener)
    yield made
    made.journal.close()


@pytest.mark.parametrize("paused", [False, True])
def test_candidate_stays_when_its_run_is_forgotten_before_the_rollout_opens(world: World, *, paused: bool) -> None:
    world.learn(5)
    world.core.models.rollouts.start("one", 1, RolloutPlan())
    if paused:
        world.core.models.rollouts.pause("one", "lunch")
    world.forget()
    # 5 is current, 4 was before it and is among the newest.
    assert world.versions() == [1, 4, 5]
    world.birth("v1")
    if paused:
        world.core.models.rollouts.resumed("one")
    world.pass_time(3.0)
    assert world.core.registry.aliases.candidate["one"].version == 1
    assert TOPICS.model_candidate("one") in world.hub.retained
    assert world.retained() == [1, 4, 5]


def test_rollback_goes_to_the_version_before_when_all_its_runs_are_forgotten(world: World) -> None:
    world.learn(4)
    world.core.models.rollback("one", 1, "tunnels")
    world.core.models.promote("one", 4)
    world.forget()
    assert world.versions() == [1, 3, 4]
    assert world.core.models.rollback("one", None, "tunnels again").version == 1
    world.hub.pump()
    assert world.retained() == [1, 3, 4]


def test_version_that_was_current_when_its_run_was_forgotten_stays_when_another_one_is(world: World) -> None:
    world.learn(4)
    world.core.models.rollback("one", 1, "tunnels")
    world.forget()
    world.core.models.promote("one", 3)
    world.pass_time(1.0)
    world.forget()
    assert world.versions() == [1, 3, 4]
    assert world.core.registry.before("one") == 1


@pytest.mark.parametrize("alias", ["current", "candidate"])
def test_coordinator_connects_and_says_so_when_the_version_of_a_pointer_is_missing(world: World, alias: str) -> None:
    world.learn(3)
    aliases, missing = world.core.registry.aliases, {"version": 7, "sequence": 2_000_000_000_000}
    if alias == "current":
        told = aliases.to_current("one", 7, "a" * 64, "published")
    else:
        world.core.models.rollouts.start("one", 2, RolloutPlan())
        world.birth("v1")
        world.pass_time(3.0)
        found = next(each for each in world.journal.decisions("one") if each.kind == "candidate")
        told = aliases.decision("one", "candidate", {**found.body, **missing})
    world.journal.decide([told])
    with structlog.testing.capture_logs() as logs:
        world.crash()
        world.birth("v2")
        world.pass_time(3.0)
    said = [(each["name"], each["version"], each["candidate"]) for each in logs if each["event"] == "model-missing"]
    assert said == [("one", 7, alias == "candidate")], "once, however often pointers are published"
    assert world.retained() == [2, 3]
    # Nothing is tried that nobody can have.
    assert TOPICS.model_candidate("one") not in world.hub.retained
    world.core.start_run(RunSpec(run="goes-on", scheme="frt"))
    assert "goes-on" in world.core.runs.live


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
    assert world.core.registry.aliases.current["one"].version == 4
    assert world.retained() == [3, 4]
