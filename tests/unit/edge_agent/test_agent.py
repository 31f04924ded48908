"""An agent in virtual time: birth, death, answers and what becomes of them; its process, and how little it loads."""

from __future__ import annotations

import hashlib
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.config import SHARED, AgentConfig
from edge_agent.forecast.log import ForecastLog
from edge_agent.presence import HEAD_EVERY, Presence
from edge_agent.runner import Loop, make_agent
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from schemas import limits
from schemas.errors import IdentityError, UsageError
from schemas.messages import AgentState
from schemas.settings import settings_of
from tests.support.agent_bench import Bench, first_task, rows, source
from tests.support.processes import python, python_where


def test_agent_refuses_to_start_when_its_columns_do_not_fit_one_message(tmp_path):
    data = rows()
    wide = type(data)(tuple(f"column-{index:04d}" for index in range(999)), "y", np.zeros((60, 999)), data.y)
    with pytest.raises(UsageError, match=r"999 column names .* raise max_message_bytes"):
        Bench(tmp_path, limit=4096).agent(data=type(source())(wide, wide))


def test_agent_refuses_to_start_when_another_one_holds_its_state_directory(bench):
    bench.agent()
    with pytest.raises(IdentityError, match="--state-dir"):
        bench.agent()


def test_loop_that_waits_ends_when_it_is_told_to():
    loop = Loop([])
    thread = threading.Thread(target=loop.serve, daemon=True)
    thread.start()
    time.sleep(0.1)  # it waits, up to a minute
    loop.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_agent_tells_the_head_of_the_log_beside_it_and_again_when_the_log_went_on(bench):
    agent = bench.agent()

    def heads() -> list[int | None]:
        return [body.forecasts and body.forecasts.n for body in bench.coordinator.bodies(AgentState)]

    bench.run(1)
    log = ForecastLog(agent.config.directory / "forecasts")
    for n in (1, 2):
        log.append({"kind": "note", "time": 1.0, "text": "x"})
        bench.run(10)
        assert heads() == [None, 1][:n], "not at once"
        bench.run(HEAD_EVERY)
        assert heads() == [None, 1, 2][: n + 1]
    log.close()
    bench.run(2 * HEAD_EVERY)
    assert heads() == [None, 1, 2], "once each"
    assert Presence.last_will(agent._presence).payload == agent.will.payload, "a will has no head, which would be old"


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


def test_agent_refuses_and_lives_on_when_a_task_makes_no_sense(bench, task):
    bench.agent()
    for number, body in enumerate([{}, {"parameters": 3}, {**task.body, "domain": {"features": []}}]):
        bench.coordinator.ask(Task("frt", "level", body), number=number)
        bench.run(1)
    assert len(bench.coordinator.refusals) == 3
    bench.coordinator.ask(task, number=9)
    bench.run(1)
    assert len(bench.coordinator.answers) == 1


@pytest.mark.parametrize("scheme", ["pairs", "private", "scores", "domain"])
def test_agent_refuses_what_is_no_question_of_a_plain_run_and_has_no_fault_of_its_own(bench, scheme, said):
    bench.agent()
    bodies: list[Any] = [{}, {"vehicles": 2, "group": "a"}, {"model": {}, "domain": []}, {"columns": {"x": "y"}}]
    kinds = ("pairs", "keys", "scores", "histogram", "scan", "")
    tasks = [Task(scheme, kind, body) for kind in kinds for body in bodies]
    for number, task in enumerate(tasks, 1):
        bench.coordinator.ask(task, number=number)
        bench.run(0.3)
    reasons = [refusal.reason for refusal in bench.coordinator.refusals]
    assert len(reasons) == len(tasks)
    assert [reason for reason in reasons if "internal fault" in reason] == []
    assert scheme != "pairs" or all("not a question of a plain run: pairs/" in reason for reason in reasons)
    assert [line for line in said if line["event"] == "answer-failed"] == []


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
    assert len([message for message in bench.coordinator.messages if "v2/contribution/" in message.topic]) > 1
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


GIVEN = {"id": "v1", "broker": "mqtt://here", "data": "rows.csv"}


def test_config_does_not_take_the_folder_of_test_data_for_the_vehicles_rows(monkeypatch):
    monkeypatch.setenv("GLASSFLEET_DATA", "datasets")
    assert AgentConfig.load(**GIVEN).data == Path("rows.csv")
    assert settings_of(AgentConfig).keys() >= SHARED


def test_config_keeps_agents_apart_that_share_a_state_directory(tmp_path, monkeypatch):
    one, two = (AgentConfig.load(**{**GIVEN, "id": name}, state_dir=tmp_path) for name in ("v1", "v2"))
    assert one.directory == tmp_path / "agents" / "fleet" / "v1"
    assert one.directory != two.directory
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    assert AgentConfig.load(**GIVEN).state_dir == tmp_path / "home" / "glassfleet"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"id": None}, "id is missing: give --id, set GLASSFLEET_AGENT_ID, or write it in the --config file"),
        ({"broker": None}, "broker is missing: give --broker, set GLASSFLEET_BROKER"),
        ({"id": "v/1"}, "id is not a valid id: use 1 to 64 letters"),
        ({"slow": -1}, "slow: Input should be greater than or equal to 0 (--slow, GLASSFLEET_AGENT_SLOW or --config)"),
        ({"slow": "soon"}, "slow: Input should be a valid number"),
        ({"max_message_bytes": 10}, "max_message_bytes: Input should be greater than or equal to 4096"),
        ({"resend_first": 90.0}, "resend_longest 60.0 is below resend_first 90.0"),
    ],
)
def test_config_names_setting_fault_and_where_to_give_it(flags, text):
    with pytest.raises(UsageError) as caught:
        AgentConfig.load(**{**GIVEN, **flags})
    assert text in str(caught.value)


def run(program: str) -> str:
    code = textwrap.dedent(program)
    done = python(code, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agent_learns_and_scores_with_the_core_packages_alone(tmp_path):
    done = python_where(
        """
        import edge_agent.runner
        import numpy as np
        from edge_agent.session.answers import client_of
        from edge_agent.models.evaluation import learn_in_steps, predict_in_blocks
        from edge_agent.session.outbox import Outbox
        from glassfleet.contract import catalogue
        from glassfleet.data.dataset import Dataset
        from glassfleet.data.domain import Domain, Variable

        assert "frt" in catalogue.names()
        assert client_of("domain") is not None
        rng = np.random.default_rng(0)
        X = rng.random((100, 3))
        data = Dataset(("a", "b", "c"), "y", X, X[:, 0] + X[:, 1])
        inputs = tuple(Variable(name=name, low=0, high=1) for name in data.features)
        domain = Domain(features=inputs, target=Variable(name="y", low=0, high=2))
        scheme = catalogue.load("frt")
        (model,) = [step for step in learn_in_steps(scheme, {}, domain, data) if step is not None]
        assert predict_in_blocks(model, X).shape == (100,)
        assert "sklearn" not in sys.modules
        """,
        ours=("schemas", "glassfleet", "broker", "edge_agent"),
    )
    assert done.returncode == 0, done.stderr


def test_agent_uses_one_blas_thread_unless_told_otherwise():
    program = (
        "import os; os.environ.pop('OPENBLAS_NUM_THREADS', None); {}; import edge_agent; "
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    assert run(program.format("pass")).strip() == "1"
    assert run(program.format("os.environ['OPENBLAS_NUM_THREADS'] = '3'")).strip() == "3"
