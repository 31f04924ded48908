"""A coordinator keeps scores in memory; each of its lives hears them."""

from __future__ import annotations

from coordinator.messages.publisher import birth
from schemas.messages import Evaluation
from schemas.topics import Topics
from tests.support.agent_bench import Bench, learned


def test_agent_tells_its_scores_again_when_a_new_coordinator_comes(tmp_path):
    bench = Bench(tmp_path)
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
