"""Central references: one for each name, made current again when it comes again, and nothing a run can be taken for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import load_config
from coordinator.http.api import make_app
from coordinator.journal import Journal, MemoryJournal
from coordinator.main import build
from coordinator.models.central import SOURCE, CentralModel, read_reference
from coordinator.runs.defaults import default_engine
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RunSpec
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, StorageError, UsageError
from schemas.messages import ModelPointer
from schemas.record import ModelRecord
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.coordinator_http import ask, record_of, small_document

KEPT = 2


document = small_document


def fleet_model(name: str, version: int = 1) -> ModelRecord:
    return record_of(small_document(), name, version)


def learned(journal: Journal, name: str) -> None:
    """Put the next version of a model that the fleet learned into the journal."""

    def make(version: int) -> tuple[str, bytes]:
        record = fleet_model(name, version)
        return record.digest, record.to_bytes()

    journal.add_model(name, f"run-{name}-{len(journal.models(name)) + 1}", make)


class World(Fleet):
    """A coordinator with models ``one`` and ``two``, over the in-memory broker."""

    def __init__(self, journal: Journal) -> None:
        for name in ("one", "two"):
            learned(journal, name)
        super().__init__(default_engine(), journal=journal, settings={"retained_versions": KEPT})

    def register(self, name: str, slope: float, about: str = "") -> int:
        version = self.core.models.central(read_reference(document(slope), fleet_model(name)), about).version
        self.hub.pump()
        return version

    def retained(self, name: str) -> list[int]:
        """Versions of a model that stand on the broker whole."""
        return [version for version in range(1, 9) if TOPICS.model_version(name, version) in self.hub.retained]

    def current(self, name: str) -> int:
        body = Envelope.from_bytes(self.hub.retained[TOPICS.model_current(name)], fleet="f").body
        assert isinstance(body, ModelPointer)
        assert body.version == self.core.registry.aliases.current[name].version
        return body.version


@pytest.fixture
def world(opener: Callable[[], Journal]) -> Iterator[World]:
    journal = opener()
    yield World(journal)
    journal.close()


def test_reference_stands_on_the_broker_when_an_older_one_is_registered_again(world: World) -> None:
    assert [world.register("one", slope) for slope in (0.9, 0.8, 0.7, 0.6)] == [1, 2, 3, 4]
    assert world.retained("one.central") == [3, 4]
    assert world.register("one", 0.9) == 1
    assert (world.current("one.central"), world.retained("one.central")) == (1, [1, 3, 4])
    assert world.register("one", 0.6, "measured anew") == 4
    assert (world.current("one.central"), world.retained("one.central")) == (4, [3, 4])
    told = [(each.body["cause"], each.body["version"]) for each in world.core.registry.history("one.central")]
    assert told == [*(("published", version) for version in (1, 2, 3, 4)), ("rolled-back", 1), ("promoted", 4)]
    assert world.core.registry.aliases.current["one.central"].reason == "measured anew"


@pytest.mark.parametrize(("run", "model"), [("r1", "one.central"), ("central-0123456789abcdef", "one")])
def test_run_is_refused_when_it_would_take_what_stands_for_references(world: World, run: str, model: str) -> None:
    with pytest.raises(UsageError, match="central references; choose another"):
        world.core.start_run(RunSpec(run=run, model=model, scheme="frt"))
    assert world.core.runs.ids() == []


def test_reference_is_refused_when_a_run_of_a_former_version_has_its_id(world: World) -> None:
    wanted = read_reference(document(0.8), fleet_model("one"))
    record = fleet_model("three").to_bytes()
    world.journal.add_model("three", wanted.run, lambda _version: ("d" * 64, record))
    with pytest.raises(UsageError, match="'three' version 1 is of a run of that id"):
        world.core.models.central(wanted)
    assert "one.central" not in world.core.registry.aliases.current


def test_reference_is_published_when_it_comes_again_after_its_decision_could_not_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_decisions: object) -> None:
        raise StorageError("no room")

    for slope in (0.9, 0.8):
        world.register("one", slope)
    with monkeypatch.context() as disk:
        disk.setattr(world.journal, "decide", full)
        with pytest.raises(StorageError, match="no room"):
            world.register("one", 0.7)
    assert [model.version for model in world.journal.models("one.central")] == [1, 2, 3]
    assert (world.current("one.central"), world.retained("one.central")) == (2, [1, 2])
    assert world.register("one", 0.7) == 3
    assert (world.current("one.central"), world.retained("one.central")) == (3, [2, 3])
    assert [each.body["cause"] for each in world.core.registry.history("one.central")] == ["published"] * 3


def deep(_value: Any) -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize("member", ["scheme", "format", "parameters", "domain", "model"])
@pytest.mark.parametrize("spoil", [deep, lambda _value: None, lambda _value: 1e400, lambda value: [value]])
def test_document_is_refused_by_name_whatever_one_member_holds(member: str, spoil: Callable[[Any], Any]) -> None:
    spoiled = {**document(0.8), member: spoil(document(0.8)[member])}
    with pytest.raises(UsageError, match="the document cannot be read") as fault:
        read_reference(spoiled, fleet_model("one"))
    assert len(str(fault.value)) < 1000


def test_reference_of_a_reference_and_of_nothing_is_refused() -> None:
    made = fleet_model("one")
    reference = made.model_copy(update={"name": "one.central", "parameters": {"source": SOURCE}})
    with pytest.raises(UsageError, match="a reference itself"):
        read_reference(document(0.8), reference)
    with pytest.raises(NotFoundError):
        read_reference({**document(0.8), "scheme": "none"}, made)
    for spoiled in ({"scheme": "frt"}, {}):
        with pytest.raises(UsageError, match="cannot be read"):
            read_reference(spoiled, made)
    assert isinstance(read_reference(document(0.8), made), CentralModel)


def test_nobody_promotes_rolls_back_or_tries_a_reference_by_hand() -> None:
    world = World(MemoryJournal())
    for slope in (0.8, 0.6):
        world.register("one", slope)
    for move in (
        lambda: world.core.models.promote("one.central", 1),
        lambda: world.core.models.rollback("one.central", 1, "why not"),
        lambda: world.core.models.rollouts.start("one.central", 1, RolloutPlan()),
    ):
        with pytest.raises(UsageError, match=r"'one\.central' is a central reference"):
            move()
    assert world.current("one.central") == 2


def test_api_calls_a_malformed_document_the_callers_fault_before_the_coordinator_is_asked(tmp_path: Path) -> None:
    spoiled = {**document(0.8), "model": {"nodes": "none"}}
    journal = MemoryJournal()
    learned(journal, "one")
    # Nothing runs the coordinator's thread: what it would have to do would never be answered.
    service = build(load_config(state_dir=tmp_path), journal=journal)
    answer = ask(make_app(service, "token"), "POST", "/api/models/one/central", json={"document": spoiled})
    assert answer.status_code == 422, answer.text
    assert "the document cannot be read" in answer.json()["detail"]
