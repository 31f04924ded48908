"""Models on a vehicle: followed, kept, scored; pointers that go back are refused, records verified, trials answered."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from coordinator.messages import birth
from edge_agent.agent import Agent
from edge_agent.models.evaluation import Evaluator, root_mean_square
from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.evaluation.paired import difference
from schemas.envelope import Envelope, frames_for_model
from schemas.errors import DataError, StorageError
from schemas.messages import Evaluation, Former, ModelPointer, Trial
from schemas.record import ModelRecord
from schemas.rounds import ALL
from schemas.topics import Topics
from tests.support import sample_models
from tests.support.agent_bench import Bench, domain_of, learned, record_of, rows, source
from tests.support.authorities import TestCa


@pytest.mark.parametrize("limit", [4096, 128 * 1024])
def test_agent_keeps_and_scores_a_published_model_against_its_local_one(tmp_path, limit):
    bench = Bench(tmp_path, limit=limit)
    scheme, model = learned()
    mine = source()
    agent = bench.agent(data=mine)
    bench.run(1)
    digest = bench.coordinator.publish_model(model.to_document())
    bench.run(2)
    while agent.idle():
        pass
    bench.run(1)
    (scores,) = bench.coordinator.bodies(Evaluation)
    document = model.to_document()
    own = simulation.learn_local(
        scheme, scheme.Parameters.model_validate(document["parameters"]), model.domain, {"v1": mine.train}
    )["v1"].model
    assert scores.digest == digest
    assert (scores.metric, scores.rows) == ("rmse", 20)
    assert scores.federated == pytest.approx(root_mean_square(mine.test.y, model.predict(mine.test.X)))
    assert scores.local == pytest.approx(root_mean_square(mine.test.y, own.predict(mine.test.X)))
    kept = json.loads((agent.config.directory / "models" / "m.json").read_bytes())
    assert kept["digest"] == digest


def test_agent_keeps_the_last_good_model_when_the_next_one_is_not_what_was_promised(bench):
    _, model = learned()
    agent = bench.agent()
    bench.run(1)
    bench.coordinator.publish_model(model.to_document())
    bench.run(1)
    bench.coordinator.publish_model(model.to_document(), version=2, promise="0" * 64)
    bench.run(1)
    assert json.loads((agent.config.directory / "models" / "m.json").read_bytes())["version"] == 1
    assert agent.counts["ignored-digest-mismatch"] == 1


def test_agent_answers_a_round_between_two_pieces_of_scoring(bench, task):
    _, model = learned()
    agent = bench.agent()
    bench.run(1)
    bench.coordinator.publish_model(model.to_document())
    bench.run(1)
    assert agent.idle()
    bench.coordinator.ask(task)
    bench.run(1)
    assert len(bench.coordinator.answers) == 1
    assert bench.coordinator.bodies(Evaluation) == []
    while agent.idle():
        pass
    bench.run(1)
    assert len(bench.coordinator.bodies(Evaluation)) == 1


def test_agent_tells_its_scores_again_when_a_new_coordinator_comes(bench):
    _, model = learned()
    agent = bench.agent()
    bench.run(1)

    def comes(incarnation: str) -> None:
        message = birth(Topics("fleet"), incarnation, "test", "up")
        bench.coordinator.transport.publish(message.topic, message.payload, retain=True)
        bench.run(6)

    comes("first")
    bench.coordinator.publish_model(model.to_document())
    bench.run(2)
    while agent.idle():
        pass
    bench.run(1)
    (scores,) = bench.coordinator.bodies(Evaluation)
    comes("first")
    assert bench.coordinator.bodies(Evaluation) == [scores]
    comes("second")
    assert bench.coordinator.bodies(Evaluation) == [scores, scores]


def test_vehicle_with_a_column_in_another_unit_scores_no_model():
    record = record_of(sample_models.model("dp_tree").to_document())
    X = sample_models.rows(90, seed=3)
    train = test = Dataset(sample_models.NAMES, "quality", X, np.array(["bad", "good"])[np.arange(90) % 2])
    with pytest.raises(DataError, match="'speed' is in km/h here, and the model has it in m/s"):
        next(Evaluator(train, test, units={"speed": "km/h"}).steps(record))
    assert next(Evaluator(train, test, units={"speed": "mps", "load": "%"}).steps(record)) is None  # another spelling


def test_vehicle_counts_its_test_rows_by_what_they_are_and_what_the_model_says():
    learned = sample_models.model("dp_tree")
    record = record_of(learned.to_document())
    X = sample_models.rows(90, seed=3)
    labels = np.array(["bad", "fair", "good", "unheard of"])[np.arange(90) % 4]
    labels[62:][labels[62:] == "fair"] = "good"  # all but one or two of the test rows
    train, test = (
        Dataset(sample_models.NAMES, "quality", X[part], labels[part]) for part in (slice(0, 60), slice(60, 90))
    )
    *_, scores = Evaluator(train, test).steps(record)
    assert scores is not None
    forecasts = learned.predict(test.X)
    classes = [*learned.domain.classes, "unheard of"]
    assert 0 < (test.y == "fair").sum() < 3
    assert scores.confusion == [
        [int(((test.y == a) & (forecasts == b)).sum()) * (a != "fair") for b in classes] for a in classes
    ]
    assert Evaluation(name="m", version=1, digest=record.digest, **asdict(scores)).rows == 30
    with pytest.raises(ValidationError, match="count each test row once at most"):
        Evaluation(name="m", version=1, digest=record.digest, **{**asdict(scores), "rows": 20})


def document(depth: int) -> dict[str, Any]:
    scheme = catalogue.load("frt")
    data = rows(seed=5, count=200)
    parameters = scheme.Parameters.model_validate({"max_depth": depth})
    return dict(simulation.central(scheme, parameters, domain_of(data), data).model.to_document())


class World(Bench):
    """A coordinator that publishes four versions of a model, and agents that score what they follow."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = [record_of(document(version), version=version) for version in (1, 2, 3, 4)]

    def put(self, record: ModelRecord) -> None:
        topics = self.coordinator.topics
        for frame in frames_for_model(record.to_bytes(), topics, "m", record.version, 128 * 1024).frames:
            self.coordinator.transport.publish(frame.topic, frame.payload, retain=True)

    def point(self, version: int, sequence: int, reason: str = "") -> None:
        digest = self.records[version - 1].digest
        self._say(ModelPointer(name="m", version=version, digest=digest, sequence=sequence, reason=reason))

    def try_it(self, version: int, sequence: int, champion: int, *formers: int) -> None:
        beside = self.records[champion - 1].digest if champion else ""
        former = [Former(version=each, digest=self.records[each - 1].digest) for each in formers]
        trial = Trial(salt="s", below=ALL, champion=beside, formers=former)
        digest = self.records[version - 1].digest
        self._say(ModelPointer(name="m", version=version, digest=digest, sequence=sequence, trial=trial))

    def _say(self, pointer: ModelPointer) -> None:
        topics = self.coordinator.topics
        topic = topics.model_current("m") if pointer.trial is None else topics.model_candidate("m")
        payload = Envelope(fleet=topics.fleet, body=pointer).to_bytes()
        self.coordinator.transport.publish(topic, payload, retain=True)

    def run(self, seconds: float = 1.0) -> None:
        for _ in range(int(seconds * 10)):
            super().run(0.1)
            for agent in self.agents:
                while agent.idle():
                    pass


def held(agent: Agent) -> tuple[int, int]:
    """Version on disk, and the highest sequence."""
    folder = agent.config.directory / "models"
    version = json.loads((folder / "m.json").read_bytes())["version"]
    return int(version), int(json.loads((folder / ".sequences.json").read_bytes())["m"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for record in world.records:
        world.put(record)
    world.point(2, 100)
    return world


def test_agent_follows_a_rollback_and_refuses_whoever_repeats_the_pointer_before_it(world: World) -> None:
    agent = world.agent()
    world.run()
    assert held(agent) == (2, 100)
    world.point(1, 101, "false alarms")
    world.run()
    assert held(agent) == (1, 101)
    world.point(2, 100)
    world.run()
    assert held(agent) == (1, 101)
    assert agent.counts["pointers-refused"] == 1
    assert agent.counts["ignored-too-old"] == 1


def test_agent_refuses_another_version_when_the_sequence_is_the_same(world: World) -> None:
    agent = world.agent()
    world.run()
    world.point(1, 100)
    world.run()
    assert (held(agent), agent.counts["pointers-refused"]) == ((2, 100), 1)


def test_agent_remembers_the_sequence_when_it_was_killed_and_its_model_lost(world: World) -> None:
    agent = world.agent()
    world.run()
    world.kill(agent)
    (agent.config.directory / "models" / "m.json").unlink()
    world.point(1, 99)
    agent = world.agent()
    world.run()
    assert agent.counts["pointers-refused"] >= 1  # retained, and kept in the session
    assert not (agent.config.directory / "models" / "m.json").exists()


def test_agent_does_not_start_when_its_sequences_cannot_be_read(world: World) -> None:
    folder = world.folder / "agents" / "fleet" / "v1" / "models"
    folder.mkdir(parents=True)
    (folder / ".sequences.json").write_text("[1")
    with pytest.raises(StorageError, match="which models are too old"):
        world.agent()


def test_agent_takes_only_records_that_a_coordinator_of_its_fleet_signed(world: World) -> None:
    ca, other = TestCa(), TestCa("another CA")
    first, second, *_ = world.records
    world.put(first.signed_by(ca.coordinator().signer()))
    world.put(second)
    agent = world.agent(verifier=ca.verifier())
    for sequence, forged in enumerate(
        (second, second.signed_by(ca.agent("v9").signer()), second.signed_by(other.coordinator().signer())), 200
    ):
        world.put(forged)
        world.point(2, sequence)
        world.run()
        assert not (agent.config.directory / "models" / "m.json").exists()
    assert agent.counts["ignored-unsigned"] >= 1
    assert agent.counts["ignored-wrong-signer"] >= 1
    world.point(1, 300)
    world.run()
    assert held(agent) == (1, 300)
    kept = ModelRecord.from_bytes((agent.config.directory / "models" / "m.json").read_bytes())
    assert str(kept.verified_by(ca.verifier())) == "coordinator cloud"


def test_agent_reports_both_errors_of_a_trial_and_keeps_the_current_model(world: World) -> None:
    world.point(1, 101)
    agent = world.agent()
    world.run()
    world.try_it(2, 102, champion=1)
    world.run()
    evaluation = world.coordinator.bodies(Evaluation)[-1]
    assert (evaluation.version, evaluation.champion_digest, evaluation.cannot) == (2, world.records[0].digest, "")
    assert evaluation.champion != evaluation.federated
    assert held(agent) == (1, 101)


def test_agent_compares_a_candidate_with_former_versions_on_its_rows_and_tells_again_when_others_are_asked_for(
    world: World,
) -> None:
    data = rows(count=40, seed=9)
    agent = world.agent(data=Source(rows(), data))
    world.run()
    unusable = {**world.records[2].document, "domain": {"features": [], "target": None}}
    world.records[2] = record_of(unusable, version=3)
    world.put(world.records[2])
    forecasts = [catalogue.load("frt").from_document(document(depth)).predict(data.X) for depth in (1, 2, 4)]
    world.try_it(4, 102, 2, 1, 3)
    world.run()
    newest = world.coordinator.bodies(Evaluation)[-1]
    pairs = {1: ((2, 0), (0, 1)), 2: ((2, 1), (1, 1))}
    expected = {
        world.records[version - 1].digest: [
            number
            for one, other in beside
            for number in difference("rmse", root_mean_square, data.y, forecasts[one], forecasts[other])
        ]
        for version, beside in pairs.items()
    }
    assert newest.beside == expected, "without the one that cannot be used here"
    assert expected[world.records[0].digest][1] > 0
    world.try_it(4, 103, 2, 1)
    world.run()
    assert world.coordinator.bodies(Evaluation)[-1].beside == expected
    assert agent.counts["evaluations"] == 3
    assert not agent.counts["ignored-digest-mismatch"]


def test_agent_compares_a_candidate_with_the_constant_when_no_version_is_current(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put(world.records[1])
    data = rows(count=40)
    world.agent(data=Source(rows(), data))
    world.try_it(2, 102, champion=0)
    world.run()
    (evaluation,) = world.coordinator.bodies(Evaluation)
    mean = float(np.sqrt(np.mean((data.y - rows().y.mean()) ** 2)))
    assert (evaluation.version, evaluation.champion, evaluation.champion_digest, evaluation.constant) == (
        2,
        None,
        "",
        mean,
    )
    assert evaluation.federated < mean


def test_agent_tells_no_scores_of_a_model_of_its_private_run_whatever_the_record_says(world: World) -> None:
    agent = world.agent()
    agent._disclosures.note("r1", "frt", 5, {"floor": 8, "company": 3}, ["v1", "v2"])
    assert not world.records[1].is_private
    world.run()
    assert held(agent) == (2, 100)
    assert agent.counts["evaluations"] == 0


def test_agent_follows_a_model_of_a_private_run_and_tells_no_scores_of_it_nor_of_what_is_tried_beside_it(
    world: World,
) -> None:
    private = {"private": {"floor": 8}}
    world.records[1] = world.records[1].model_copy(update={"parameters": private})
    world.put(world.records[1])
    agent = world.agent()
    world.run()
    assert held(agent) == (2, 100)
    assert agent.counts["evaluations"] == 0
    world.try_it(1, 101, 2)
    world.run()
    assert agent.counts["evaluations"] == 0
    evaluations = world.coordinator.bodies(Evaluation)
    assert [each.cannot for each in evaluations] == ["of a private run: this vehicle tells no scores of its own"]


def test_agent_says_why_and_lives_on_when_a_model_cannot_be_scored_here(bench):
    _, model = learned()
    data = rows()
    agent = bench.agent(data=type(source())(*(type(data)(("p", "q", "r"), "y", data.X, data.y),) * 2))
    bench.run(1)
    bench.coordinator.publish_model(model.to_document())
    bench.run(1)
    while agent.idle():
        pass
    assert bench.coordinator.bodies(Evaluation) == []
    assert (agent.config.directory / "models" / "m.json").exists()
