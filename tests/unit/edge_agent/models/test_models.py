"""An agent on a broker in memory, in virtual time: models that are published, kept and scored."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import ValidationError

from coordinator.messages.publisher import birth
from edge_agent.models.evaluation import Evaluator, mean_f1, predict_in_blocks, root_mean_square
from glassfleet import local
from glassfleet.data.dataset import Dataset
from schemas.messages import Evaluation
from schemas.topics import Topics
from tests.support import sample_models
from tests.support.agent_bench import Bench, learned
from tests.support.coordinator_http import record_of
from tests.support.fake_coordinator import rows, source


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
    own = local.learn_local(
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


def test_scores_are_what_their_names_say():
    assert root_mean_square(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == pytest.approx(2**0.5)
    y, predicted = np.array(["a", "a", "b"]), np.array(["a", "b", "b"])
    assert mean_f1(y, predicted) == pytest.approx(2 / 3)

    class Doubles:
        def predict(self, X):
            return X[:, 0] * 2

    X = np.arange(9000.0)[:, None]
    assert np.array_equal(predict_in_blocks(Doubles(), X), np.arange(9000.0) * 2)


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


def test_vehicle_counts_its_test_rows_by_what_they_are_and_what_the_model_says():
    learned = sample_models.model("dp_tree")
    record = record_of(learned.to_document(), scheme="dp_tree")
    X = sample_models.rows(90, seed=3)
    labels = np.array(["bad", "fair", "good", "unheard of"])[np.arange(90) % 4]
    labels[62:][labels[62:] == "fair"] = "good"  # all but one or two of the test rows
    train, test = (
        Dataset(sample_models.NAMES, "quality", X[part], labels[part]) for part in (slice(0, 60), slice(60, 90))
    )
    *_, scores = Evaluator(train, test).steps(record)
    assert scores is not None
    said = learned.predict(test.X)
    classes = [*learned.domain.classes, "unheard of"]
    assert 0 < (test.y == "fair").sum() < 3
    assert scores.confusion == [
        [int(((test.y == a) & (said == b)).sum()) * (a != "fair") for b in classes] for a in classes
    ]
    assert Evaluation(name="m", version=1, digest=record.digest, **asdict(scores)).rows == 30
    with pytest.raises(ValidationError, match="count each test row once at most"):
        Evaluation(name="m", version=1, digest=record.digest, **{**asdict(scores), "rows": 20})
