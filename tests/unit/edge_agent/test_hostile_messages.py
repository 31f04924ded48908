"""An agent on a broker in memory, in virtual time: messages that it must not believe."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.port import Message
from schemas.envelope import Envelope
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


KINDS = ["request", "receipt", "state", "coordinator", "current", "version", "blob", "other", "foreign"]


def topic_of(kind: Any) -> Any:
    prefix = "gf/1/fleet/"
    return {
        "request": f"{prefix}run/r1/request",
        "receipt": f"{prefix}agent/v1/receipt",
        "state": f"{prefix}agent/v1/state",
        "coordinator": f"{prefix}coordinator/state",
        "current": f"{prefix}model/m/current",
        "version": f"{prefix}model/m/v/1",
        "blob": f"{prefix}blob/{'a' * 64}/0",
        "other": f"{prefix}agent/v2/receipt",
        "foreign": "gf/1/elsewhere/run/r1/request",
    }[kind]


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """An agent that is connected, for many messages."""
    bench = Bench(tmp_path_factory.mktemp("standing"))
    agent = bench.agent()
    bench.run(1)
    return bench, agent


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(KINDS), payload=st.binary(min_size=1, max_size=300), data=st.data())
def test_agent_changes_nothing_when_a_message_is_garbage(standing, kind, payload, data):
    bench, agent = standing
    if data.draw(st.booleans()):
        # Nearly right: a true message with some bytes exchanged.
        whole = bytearray(bench.coordinator.request(first_task(rows(count=5))).to_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        payload = bytes(whole)
    before = state_of(agent)
    try:
        envelope = Envelope.from_bytes(payload, fleet="fleet")
    except ValueError:
        envelope = None
    agent.handle(Message(topic_of(kind), payload))
    if envelope is None or kind != "request":
        assert state_of(agent) == before


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
