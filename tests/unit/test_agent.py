"""An agent on a broker in memory, in virtual time."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.memory import MemoryHub
from broker.port import Link, Message
from edge_agent.agent import Agent
from edge_agent.config import load_config
from edge_agent.evaluation import macro_f1, predict_in_blocks, root_mean_square
from edge_agent.runner import link_of
from glassfleet import catalogue, local
from glassfleet.scheme import Contribution, Task
from schemas import limits
from schemas.envelope import Envelope
from schemas.errors import IdentityError, StorageError, UsageError
from schemas.messages import AgentState, Evaluation
from tests.desk import Desk, domain_of, first_task, rows, source

URL = "mqtt://memory"


class Bench:
    """One desk and some agents on one hub."""

    def __init__(self, folder: Any, *, limit: Any = 128 * 1024) -> None:
        self.hub = MemoryHub()
        self.folder = folder
        self.limit = limit
        self.agents: list[Agent] = []
        self.desk = Desk(self.hub.transport(Link(URL, "desk", max_message_bytes=limit)), limit=limit)

    def agent(self, name: Any = "v1", data: Any = None, folder: Any = None, **changes: Any) -> Any:
        flags = {"id": name, "broker": URL, "data": "memory", "max_message_bytes": self.limit, **changes}
        config = load_config(state_dir=folder or self.folder, **flags)
        make = lambda will: self.hub.transport(link_of(config, will))
        agent = Agent(config, data or source(), make, clock=lambda: self.hub.now, wall=lambda: self.hub.now)
        agent.start()
        self.agents.append(agent)
        return agent

    def run(self, seconds: Any = 1.0) -> Any:
        for _ in range(int(seconds * 10)):
            self.hub.advance(0.1)
            for agent in self.agents:
                agent.tick(self.hub.now)

    def kill(self, agent: Any) -> Any:
        self.hub.kill(link_of(agent.config).client_id)
        agent._outbox.close()
        agent._lock.release()
        self.agents.remove(agent)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def task():
    return first_task(rows())


def test_agent_announces_what_it_can_when_connected(bench):
    bench.agent()
    bench.run()
    (birth,) = bench.desk.bodies(AgentState)
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
    assert [state.status for state in bench.desk.bodies(AgentState)] == ["up", "down"]


def test_agent_answers_as_the_client_half_does_from_the_request_alone(bench, task):
    bench.desk.ask(task)
    bench.run()
    bench.agent()
    bench.run(1)
    (answer,) = bench.desk.answers
    expected = catalogue.load("frt").client.contribute(task, rows(), np.random.default_rng(0))
    got = Contribution.from_value(answer.contribution)
    assert all(np.array_equal(got.sums[name], expected.sums[name]) for name in expected.sums)
    assert (answer.task_digest, answer.rows) == (task.digest, 60)


def test_agent_resends_the_same_bytes_until_the_receipt_and_then_no_more(bench, task):
    bench.agent()
    bench.desk.ask(task)
    bench.run(20)
    sent = [message.payload for message in bench.desk.messages if "contribution" in message.topic]
    assert len(sent) >= 3
    assert len(set(sent)) == 1
    bench.desk.acknowledge("v1", task.digest)
    bench.run(1)
    count = len(bench.desk.answers)
    bench.run(100)
    assert len(bench.desk.answers) == count


@pytest.mark.parametrize("receipt", [False, True])
def test_agent_sends_the_same_answer_or_none_when_killed_after_its_send_and_restarted(bench, task, receipt):
    agent = bench.agent()
    bench.desk.ask(task)
    bench.run(1)
    if receipt:
        bench.desk.acknowledge("v1", task.digest)
        bench.run(1)
    bench.kill(agent)
    bench.agent(data=source(seed=9))
    bench.run(1)
    sent = [message.payload for message in bench.desk.messages if "contribution" in message.topic]
    assert len(sent) == (1 if receipt else 2)
    assert len(set(sent)) == 1


def test_agent_refuses_with_the_reason_when_a_column_is_missing(bench):
    data = rows()
    other = type(data)(("a", "b", "z"), "y", data.X, data.y)
    bench.agent()
    bench.desk.ask(first_task(other))
    bench.run(1)
    (refusal,) = bench.desk.refusals
    assert "'z'" in refusal.reason
    assert bench.desk.answers == []


def test_agent_refuses_and_lives_on_when_a_task_makes_no_sense(bench, task):
    bench.agent()
    for number, body in enumerate([{}, {"parameters": 3}, {**task.body, "domain": {"features": []}}]):
        bench.desk.ask(Task("frt", "level", body), number=number)
        bench.run(1)
    assert len(bench.desk.refusals) == 3
    bench.desk.ask(task, number=9)
    bench.run(1)
    assert len(bench.desk.answers) == 1


def test_agent_says_internal_fault_and_lives_on_when_a_scheme_fails(bench, task, monkeypatch):
    class Broken:
        def contribute(self, task, data, rng):
            raise ZeroDivisionError

    monkeypatch.setattr("edge_agent.answers.client_of", lambda scheme: Broken())
    agent = bench.agent()
    bench.desk.ask(task)
    bench.run(1)
    assert [refusal.reason for refusal in bench.desk.refusals] == ["internal fault: ZeroDivisionError"]
    assert agent.tick(bench.hub.now + 1) is None


def test_agent_does_nothing_when_others_are_asked_or_its_allow_list_lacks_the_scheme(bench, task):
    bench.agent("v1")
    bench.agent("v2", schemes=())
    bench.desk.ask(task, asked=["v3"])
    bench.run(1)
    bench.desk.ask(task, asked=None, run="r2")
    bench.run(1)
    assert [said.agent for said in bench.desk.said if said.body.kind == "contribution"] == ["v1"]
    assert bench.desk.refusals == []


def test_agent_sends_each_answer_late_and_once_when_its_link_is_slow_and_newer_requests_supersede(bench, task):
    agent = bench.agent(slow=5.0)
    bench.desk.ask(task)
    bench.run(4)
    assert bench.desk.answers == [], "computed, but still on its way"
    newer = first_task(rows(), n_sets=3)
    bench.desk.ask(newer, number=2)
    bench.run(2)
    assert agent.session.phase("r1", task.digest) == "parked"
    assert [answer.task_digest for answer in bench.desk.answers] == [task.digest], "it cannot be called back"
    bench.desk.acknowledge("v1", task.digest, "late")
    bench.run(4)
    assert [answer.task_digest for answer in bench.desk.answers] == [task.digest, newer.digest]
    bench.desk.acknowledge("v1", newer.digest)
    bench.run(60)
    assert len(bench.desk.answers) == 2
    assert agent.counts["receipt-late"] == 1


def test_agent_has_one_copy_of_an_answer_on_its_slow_link_when_no_receipt_comes(bench, task):
    bench.agent(slow=5.0, resend_first=0.5)
    bench.desk.ask(task)
    bench.run(4.5)
    assert bench.desk.answers == []
    bench.run(5)
    assert len(bench.desk.answers) == 1


def test_agent_sends_nothing_of_a_run_that_ended_while_the_answer_was_on_its_way(bench, task):
    bench.agent(slow=5.0)
    bench.desk.ask(task)
    bench.run(2)
    bench.desk.clear()
    bench.run(10)
    assert bench.desk.answers == []


def test_agent_fetches_requests_and_sends_answers_in_parts_when_messages_are_small(tmp_path):
    bench = Bench(tmp_path, limit=4096)
    bench.agent()
    from glassfleet.discovery import DISCOVERY, DiscoveryParameters

    names = [hashlib.sha256(bytes([index])).hexdigest() for index in range(50)]  # names that do not compress
    data = rows()
    wide = type(data)(tuple(names), "y", np.tile(data.X, 17)[:, :50], data.y)
    task = DISCOVERY.server.start(DiscoveryParameters(features=tuple(names), target="y")).task
    bench.agent("v2", data=type(source())(wide, wide))
    bench.desk.ask(task)
    bench.run(3)
    assert [message for message in bench.desk.messages if "/blob/" in message.topic]
    assert len([message for message in bench.desk.messages if "v2/run" in message.topic]) > 1
    assert {answer.task_digest for answer in bench.desk.answers} == {task.digest}
    assert max(len(message.payload) for message in bench.desk.messages) <= 4096
    (refusal,) = bench.desk.refusals
    assert "is missing here" in refusal.reason
    assert not [pattern for pattern in vars(bench.agents[1].transport)["patterns"] if "blob" in pattern]


def test_agent_deletes_snapshot_and_answers_when_the_run_is_cleared(bench, task):
    agent = bench.agent()
    bench.desk.ask(task)
    bench.run(1)
    folder = agent.config.directory / "runs" / "r1"
    assert folder.exists()
    bench.desk.clear()
    bench.run(10)
    assert not folder.exists()
    assert agent._outbox.contents().pending == ()
    assert len(bench.desk.answers) == 1


def learned() -> Any:
    scheme = catalogue.load("frt")
    data = rows(seed=5, count=200)
    return scheme, local.central(scheme, scheme.Parameters(), domain_of(data), data).model


@pytest.mark.parametrize("limit", [4096, 128 * 1024])
def test_agent_keeps_and_scores_a_published_model_against_its_local_one(tmp_path, limit):
    bench = Bench(tmp_path, limit=limit)
    scheme, model = learned()
    mine = source()
    agent = bench.agent(data=mine)
    bench.run(1)
    digest = bench.desk.publish_model(model.to_document())
    bench.run(2)
    while agent.idle():
        pass
    bench.run(1)
    (scores,) = bench.desk.bodies(Evaluation)
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
    bench.desk.publish_model(model.to_document())
    bench.run(1)
    bench.desk.publish_model(model.to_document(), version=2, promise="0" * 64)
    bench.run(1)
    assert json.loads((agent.config.directory / "models" / "m.json").read_bytes())["version"] == 1
    assert agent.counts["ignored-digest-mismatch"] == 1


def test_agent_says_why_and_lives_on_when_a_model_cannot_be_scored_here(bench):
    _, model = learned()
    data = rows()
    agent = bench.agent(data=type(source())(*(type(data)(("p", "q", "r"), "y", data.X, data.y),) * 2))
    bench.run(1)
    bench.desk.publish_model(model.to_document())
    bench.run(1)
    while agent.idle():
        pass
    assert bench.desk.bodies(Evaluation) == []
    assert (agent.config.directory / "models" / "m.json").exists()


def test_agent_answers_a_round_between_two_pieces_of_scoring(bench, task):
    _, model = learned()
    agent = bench.agent()
    bench.run(1)
    bench.desk.publish_model(model.to_document())
    bench.run(1)
    assert agent.idle()
    bench.desk.ask(task)
    bench.run(1)
    assert len(bench.desk.answers) == 1
    assert bench.desk.bodies(Evaluation) == []
    while agent.idle():
        pass
    bench.run(1)
    assert len(bench.desk.bodies(Evaluation)) == 1


def state_of(agent: Any) -> Any:
    return agent.session, agent._outbox.contents(), dict(agent._jobs), set(agent.transport.patterns)


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
        whole = bytearray(bench.desk.request(first_task(rows(count=5))).to_bytes())
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
    envelope = bench.desk.request(task)
    wrong = replace(envelope, **change(envelope))
    before = state_of(agent)
    agent.handle(Message(bench.desk.topics.request("r1"), wrong.to_bytes()))
    assert agent.counts[f"ignored-{code}"] == 1
    assert state_of(agent) == before


def test_agent_stops_when_it_came_second_and_the_first_goes_on_when_two_have_one_id(bench, tmp_path):
    first = bench.agent(folder=tmp_path / "one")
    bench.run(2)
    second = bench.agent(folder=tmp_path / "two")
    with pytest.raises(IdentityError, match="another process is agent 'v1'"):
        bench.run(120)
    second.stop(say_goodbye=False)
    bench.agents.remove(second)
    bench.run(10)
    assert first.transport.is_connected
    state = Envelope.from_bytes(bench.hub.retained[bench.desk.topics.agent_state("v1")], fleet="fleet").body
    assert isinstance(state, AgentState)
    assert (state.status, state.incarnation) == ("up", first._identity.own)


def test_agent_does_not_stop_when_it_is_killed_and_restarted_again_and_again(bench):
    for _ in range(6):
        agent = bench.agent()
        bench.run(2)
        bench.kill(agent)
    agent = bench.agent()
    bench.run(30)
    assert agent.transport.is_connected


def test_agent_refuses_to_start_when_another_one_holds_its_state_directory(bench):
    bench.agent()
    with pytest.raises(IdentityError, match="--state-dir"):
        bench.agent()


def test_agent_stops_with_the_reason_when_an_answer_cannot_be_stored(bench, task):
    agent = bench.agent()
    bench.run(1)
    pages = agent._outbox._database.execute("PRAGMA page_count").fetchone()[0]
    agent._outbox._database.execute(f"PRAGMA max_page_count = {pages}")
    for run in ("r1", "r2", "r3"):
        bench.desk.ask(task, run=run)
    with pytest.raises(StorageError, match="the disk is full"):
        bench.run(1)
    assert len(bench.desk.answers) < 3


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
    bench.desk.ask(task)
    bench.run(1)
    (refusal,) = bench.desk.refusals
    assert ("outbox_max_bytes is 4096" if case == "outbox" else "raise max_message_bytes") in refusal.reason
    monkeypatch.undo()
    bench.desk.ask(task, run="r2")
    bench.run(1)
    assert agent.counts["answers"] == 1


def test_agent_refuses_to_start_when_its_allow_list_names_a_scheme_that_is_not_there(bench):
    with pytest.raises(UsageError, match="'alchemy' cannot be offered"):
        bench.agent(schemes=("alchemy",))


def test_scores_are_what_their_names_say():
    assert root_mean_square(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == pytest.approx(2**0.5)
    y, predicted = np.array(["a", "a", "b"]), np.array(["a", "b", "b"])
    assert macro_f1(y, predicted) == pytest.approx(2 / 3)

    class Doubles:
        def predict(self, X):
            return X[:, 0] * 2

    X = np.arange(9000.0)[:, None]
    assert np.array_equal(predict_in_blocks(Doubles(), X), np.arange(9000.0) * 2)
