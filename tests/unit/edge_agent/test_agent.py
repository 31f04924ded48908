"""An agent on a broker in memory, in virtual time: its birth and death, its answers, and what becomes of them."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from broker.port import Message
from edge_agent.config import AgentConfig
from edge_agent.runner import make_agent
from glassfleet import catalogue
from glassfleet.scheme import Contribution, Task
from schemas import limits
from schemas.errors import IdentityError, StorageError, UsageError
from schemas.messages import AgentState
from tests.support.agent_bench import Bench
from tests.support.fake_coordinator import first_task, rows, source


def test_agent_announces_what_it_can_when_connected(bench):
    bench.agent()
    bench.run()
    (birth,) = bench.coordinator.bodies(AgentState)
    assert (birth.status, birth.features, birth.target) == ("up", ["a", "b", "c"], "y")
    assert "frt" in birth.schemes


def test_agent_refuses_to_start_when_its_columns_do_not_fit_one_message(tmp_path):
    data = rows()
    wide = type(data)(tuple(f"column-{index:04d}" for index in range(999)), "y", np.zeros((60, 999)), data.y)
    with pytest.raises(UsageError, match=r"999 column names .* raise max_message_bytes"):
        Bench(tmp_path, limit=4096).agent(data=type(source())(wide, wide))


def test_agent_is_declared_down_by_its_will_when_killed(bench):
    agent = bench.agent()
    bench.run()
    bench.kill(agent)
    bench.run()
    assert [state.status for state in bench.coordinator.bodies(AgentState)] == ["up", "down"]


def test_agent_refuses_to_start_when_another_one_holds_its_state_directory(bench):
    bench.agent()
    with pytest.raises(IdentityError, match="--state-dir"):
        bench.agent()


def state_of(agent: Any) -> Any:
    return agent.session, agent.outbox.contents(), dict(agent._effects.jobs), set(agent.transport.patterns)


def test_agent_counts_and_ignores_a_request_that_contradicts_itself(bench, task):
    agent = bench.agent()
    bench.run(1)
    envelope = bench.coordinator.request(task)
    before = state_of(agent)
    for wrong, code in (
        (replace(envelope, fleet="other"), "foreign-fleet"),
        (replace(envelope, body=envelope.body.model_copy(update={"task_digest": "0" * 64})), "digest-mismatch"),
    ):
        agent.handle(Message(bench.coordinator.topics.request("r1"), wrong.to_bytes()))
        assert agent.counts[f"ignored-{code}"] == 1
        assert state_of(agent) == before


def test_agent_answers_as_the_client_half_does_from_the_request_alone(bench, task):
    bench.coordinator.ask(task)
    bench.run()
    bench.agent()
    bench.run(1)
    (answer,) = bench.coordinator.answers
    expected = catalogue.load("frt").client.contribute(task, rows(), np.random.default_rng(0))
    got = Contribution.from_value(answer.contribution)
    assert all(np.array_equal(got.sums[name], expected.sums[name]) for name in expected.sums)
    assert (answer.task_digest, answer.rows) == (task.digest, 60)


def test_agent_resends_the_same_bytes_until_the_receipt_and_then_no_more(bench, task):
    bench.agent()
    bench.coordinator.ask(task)
    bench.run(20)
    sent = [message.payload for message in bench.coordinator.messages if "contribution" in message.topic]
    assert len(sent) >= 3
    assert len(set(sent)) == 1
    bench.coordinator.acknowledge("v1", task.digest)
    bench.run(1)
    count = len(bench.coordinator.answers)
    bench.run(100)
    assert len(bench.coordinator.answers) == count


@pytest.mark.parametrize("receipt", [False, True])
def test_agent_sends_the_same_answer_or_none_when_killed_after_its_send_and_restarted(bench, task, receipt):
    agent = bench.agent()
    bench.coordinator.ask(task)
    bench.run(1)
    if receipt:
        bench.coordinator.acknowledge("v1", task.digest)
        bench.run(1)
    bench.kill(agent)
    bench.agent(data=source(seed=9))
    bench.run(1)
    sent = [message.payload for message in bench.coordinator.messages if "contribution" in message.topic]
    assert len(sent) == (1 if receipt else 2)
    assert len(set(sent)) == 1


def test_agent_refuses_with_the_reason_when_a_column_is_missing(bench):
    data = rows()
    other = type(data)(("a", "b", "z"), "y", data.X, data.y)
    bench.agent()
    bench.coordinator.ask(first_task(other))
    bench.run(1)
    (refusal,) = bench.coordinator.refusals
    assert "'z'" in refusal.reason
    assert bench.coordinator.answers == []


def test_agent_refuses_and_lives_on_when_a_task_makes_no_sense(bench, task):
    bench.agent()
    for number, body in enumerate([{}, {"parameters": 3}, {**task.body, "domain": {"features": []}}]):
        bench.coordinator.ask(Task("frt", "level", body), number=number)
        bench.run(1)
    assert len(bench.coordinator.refusals) == 3
    bench.coordinator.ask(task, number=9)
    bench.run(1)
    assert len(bench.coordinator.answers) == 1


def test_agent_says_internal_fault_and_lives_on_when_a_scheme_fails(bench, task, monkeypatch):
    class Broken:
        def contribute(self, task, data, rng):
            raise ZeroDivisionError

    monkeypatch.setattr("edge_agent.session.answers.client_of", lambda scheme: Broken())
    agent = bench.agent()
    bench.coordinator.ask(task)
    bench.run(1)
    assert [refusal.reason for refusal in bench.coordinator.refusals] == ["internal fault: ZeroDivisionError"]
    assert agent.tick(bench.hub.now + 1) is None


def test_agent_does_nothing_when_others_are_asked_or_its_allow_list_lacks_the_scheme(bench, task):
    bench.agent("v1")
    bench.agent("v2", schemes=())
    bench.coordinator.ask(task, asked=["v3"])
    bench.run(1)
    bench.coordinator.ask(task, asked=None, run="r2")
    bench.run(1)
    assert [envelope.agent for envelope in bench.coordinator.received if envelope.body.kind == "contribution"] == ["v1"]
    assert bench.coordinator.refusals == []


def test_agent_sends_each_answer_late_and_once_when_its_link_is_slow_and_newer_requests_supersede(bench, task):
    agent = bench.agent(slow=5.0)
    bench.coordinator.ask(task)
    bench.run(4)
    assert bench.coordinator.answers == [], "computed, but still on its way"
    newer = first_task(rows(), n_sets=3)
    bench.coordinator.ask(newer, number=2)
    bench.run(2)
    assert agent.session.phase("r1", task.digest) == "parked"
    assert [answer.task_digest for answer in bench.coordinator.answers] == [task.digest], "it cannot be called back"
    bench.coordinator.acknowledge("v1", task.digest, "late")
    bench.run(4)
    assert [answer.task_digest for answer in bench.coordinator.answers] == [task.digest, newer.digest]
    bench.coordinator.acknowledge("v1", newer.digest)
    bench.run(60)
    assert len(bench.coordinator.answers) == 2
    assert agent.counts["receipt-late"] == 1


def test_agent_sends_nothing_of_a_run_that_ended_while_the_answer_was_on_its_way(bench, task):
    bench.agent(slow=5.0)
    bench.coordinator.ask(task)
    bench.run(2)
    bench.coordinator.clear()
    bench.run(10)
    assert bench.coordinator.answers == []


def test_agent_fetches_requests_and_sends_answers_in_parts_when_messages_are_small(tmp_path):
    bench = Bench(tmp_path, limit=4096)
    bench.agent()
    from glassfleet.discovery import DISCOVERY, DiscoveryParameters

    names = [hashlib.sha256(bytes([index])).hexdigest() for index in range(50)]  # names that do not compress
    data = rows()
    wide = type(data)(tuple(names), "y", np.tile(data.X, 17)[:, :50], data.y)
    task = DISCOVERY.server.start(DiscoveryParameters(features=tuple(names), target="y")).task
    bench.agent("v2", data=type(source())(wide, wide))
    bench.coordinator.ask(task)
    bench.run(3)
    assert [message for message in bench.coordinator.messages if "/blob/" in message.topic]
    assert len([message for message in bench.coordinator.messages if "v2/run" in message.topic]) > 1
    assert {answer.task_digest for answer in bench.coordinator.answers} == {task.digest}
    assert max(len(message.payload) for message in bench.coordinator.messages) <= 4096
    (refusal,) = bench.coordinator.refusals
    assert "is missing here" in refusal.reason
    assert not [pattern for pattern in vars(bench.agents[1].transport)["patterns"] if "blob" in pattern]


def test_agent_deletes_snapshot_and_answers_when_the_run_is_cleared(bench, task):
    agent = bench.agent()
    bench.coordinator.ask(task)
    bench.run(1)
    folder = agent.config.directory / "runs" / "r1"
    assert folder.exists()
    bench.coordinator.clear()
    bench.run(10)
    assert not folder.exists()
    assert agent.outbox.contents().pending == ()
    assert len(bench.coordinator.answers) == 1


def test_agent_stops_with_the_reason_when_an_answer_cannot_be_stored(bench, task):
    agent = bench.agent()
    bench.run(1)
    pages = agent.outbox._database.execute("PRAGMA page_count").fetchone()[0]
    agent.outbox._database.execute(f"PRAGMA max_page_count = {pages}")
    for run in ("r1", "r2", "r3"):
        bench.coordinator.ask(task, run=run)
    with pytest.raises(StorageError, match="the disk is full"):
        bench.run(1)
    assert len(bench.coordinator.answers) < 3


@pytest.mark.parametrize("case", ["parts", "outbox"])
def test_agent_refuses_and_lives_on_when_its_answer_can_never_be_sent_or_kept(tmp_path, task, monkeypatch, case):
    bench = Bench(tmp_path, limit=4096)
    if case == "parts":
        monkeypatch.setattr(limits, "MAX_PARTS", 2)
    settings = {"outbox_max_bytes": 4096} if case == "outbox" else {}
    agent = bench.agent(**settings)

    def contribute(asked, data, rng):
        noise = np.random.default_rng(1).integers(0, 2**62, 4000)
        return Contribution(asked.kind, data.rows, {"noise": noise}, {}, 0)

    honest = catalogue.load("frt").client
    monkeypatch.setattr(type(honest), "contribute", staticmethod(contribute))
    bench.coordinator.ask(task)
    bench.run(1)
    (refusal,) = bench.coordinator.refusals
    assert ("outbox_max_bytes is 4096" if case == "outbox" else "raise max_message_bytes") in refusal.reason
    monkeypatch.undo()
    bench.coordinator.ask(task, run="r2")
    bench.run(1)
    assert agent.counts["answers"] == 1


def test_agent_for_private_runs_only_does_not_start_where_nobody_signs(tmp_path):
    config = AgentConfig(
        id="v1", fleet="fleet", broker="mqtt://localhost", data=tmp_path / "v1.csv", state_dir=tmp_path, private="only"
    )
    with pytest.raises(UsageError, match="private = only needs a fleet that signs"):
        make_agent(config, source())
