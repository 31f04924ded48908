"""An agent on a broker in memory, in virtual time: messages that it must not believe."""

from typing import Any

import pytest

from broker.port import Message
from tests.support.agent_bench import Bench
from tests.support.fake_coordinator import first_task, rows


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def task():
    return first_task(rows())


def state_of(agent: Any) -> Any:
    return agent.session, agent.outbox.contents(), dict(agent._effects.jobs), set(agent.transport.patterns)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda envelope: {"run": "r2"}, "malformed"),
        (lambda envelope: {"fleet": "other"}, "foreign-fleet"),
        (lambda envelope: {"body": envelope.body.model_copy(update={"task_digest": "0" * 64})}, "digest-mismatch"),
        (lambda envelope: {"body": envelope.body.model_copy(update={"task": {"scheme": "frt"}})}, "malformed"),
        (
            lambda envelope: {
                "body": envelope.body.model_copy(update={"task": {"scheme": 1, "kind": "level", "body": {}}})
            },
            "malformed",
        ),
    ],
)
def test_agent_counts_and_ignores_a_request_that_contradicts_itself(bench, task, change, code):
    from dataclasses import replace

    agent = bench.agent()
    bench.run(1)
    envelope = bench.coordinator.request(task)
    wrong = replace(envelope, **change(envelope))
    before = state_of(agent)
    agent.handle(Message(bench.coordinator.topics.request("r1"), wrong.to_bytes()))
    assert agent.counts[f"ignored-{code}"] == 1
    assert state_of(agent) == before
