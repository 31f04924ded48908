"""Real agents over real brokers: threads, sockets, processes, SIGKILL."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Link
from broker.servers.launch import launch
from edge_agent.config import load_config
from edge_agent.fleet import Fleet
from edge_agent.runner import Loop, make_agent
from glassfleet import local
from glassfleet.catalogue import load
from glassfleet.data.dataset import pool
from glassfleet.scheme import Contribution, Done, Next
from schemas.documents import document_digest
from schemas.errors import BrokerError, IdentityError
from schemas.messages import AgentState, Evaluation
from tests.support.fake_coordinator import FakeCoordinator, domain_of, first_task, rows, source, start

PROGRAM = """
import sys
from edge_agent.config import load_config
from edge_agent.runner import run_agent
from schemas.errors import GlassfleetError
try:
    run_agent(load_config(**dict(pair.split("=", 1) for pair in sys.argv[1:])))
except GlassfleetError as fault:
    print(fault, file=sys.stderr)
    sys.exit(fault.exit_code)
"""


@pytest.fixture(scope="module", params=[pytest.param("mosquitto", marks=pytest.mark.mosquitto), "embedded"])
def broker(request, tmp_path_factory):
    running = launch(request.param, state_dir=tmp_path_factory.mktemp(request.param))
    yield running
    running.stop()


@pytest.fixture
def fleet_name(request):
    """A fleet of its own for every test: the broker is shared and remembers."""
    return f"f{abs(hash(request.node.nodeid)) % 10**9}"


@pytest.fixture
def coordinator(broker, fleet_name):
    transport = PahoTransport(Link(broker.url, f"coordinator-{fleet_name}"))
    yield FakeCoordinator(transport, fleet=fleet_name)
    transport.stop()


@pytest.fixture
def data_file(tmp_path):
    data = rows()
    path = tmp_path / "rows.csv"
    lines = ["a,b,c,y", *(",".join(map(repr, [*map(float, x), float(y)])) for x, y in zip(data.X, data.y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def spawn(tmp_path, broker, fleet_name, data_file):
    processes = []

    def spawn(name="v1", **settings):
        given = {
            "id": name,
            "broker": broker.url,
            "fleet": fleet_name,
            "data": data_file,
            "state_dir": tmp_path / "state",
        }
        arguments = [f"{key}={value}" for key, value in {**given, **settings}.items()]
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def test_agent_answers_once_when_killed_between_send_and_receipt_and_started_again(coordinator, spawn):
    task = first_task(rows())
    coordinator.ask(task)
    first = spawn()
    coordinator.wait_for(lambda: coordinator.answers)
    first.send_signal(signal.SIGKILL)
    first.wait()
    spawn()
    coordinator.wait_for(lambda: len(coordinator.answers) >= 2)
    coordinator.acknowledge("v1", task.digest)
    sent = {message.payload for message in coordinator.messages if message.topic.endswith("/contribution")}
    assert len(sent) == 1, "the same bytes, whoever sends them"


def test_agent_does_not_answer_again_when_killed_after_its_receipt(coordinator, spawn):
    task, other = first_task(rows()), first_task(rows(), n_sets=3)
    coordinator.ask(task)
    first = spawn()
    coordinator.wait_for(lambda: coordinator.answers)
    coordinator.acknowledge("v1", task.digest)
    topic = coordinator.topics.receipt("v1")
    coordinator.wait_for(lambda: [message for message in coordinator.messages if message.topic == topic])
    # A second round proves that the receipt was handled before the kill: messages of one sender arrive in order.
    coordinator.ask(other, run="r2")
    coordinator.wait_for(lambda: [answer for answer in coordinator.answers if answer.task_digest == other.digest])
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = len([answer for answer in coordinator.answers if answer.task_digest == task.digest])
    spawn()
    coordinator.wait_for(
        lambda: len([answer for answer in coordinator.answers if answer.task_digest == other.digest]) >= 2
    )
    assert len([answer for answer in coordinator.answers if answer.task_digest == task.digest]) == before


def test_agent_says_that_it_is_down_when_terminated(coordinator, spawn):
    process = spawn()
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    coordinator.wait_for(lambda: [state for state in coordinator.bodies(AgentState) if state.status == "down"])


def test_second_process_on_the_same_state_ends_with_code_7(coordinator, spawn):
    first = spawn()
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    second = spawn()
    assert second.wait(20) == 7
    assert "another process is agent 'v1' already" in second.stderr.read()
    assert first.poll() is None


def test_second_agent_with_the_same_id_elsewhere_ends_with_code_7_and_the_first_goes_on(coordinator, spawn, tmp_path):
    first = spawn()
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    second = spawn(state_dir=tmp_path / "elsewhere")
    assert second.wait(60) == 7
    assert "Stop it, or start this one with another --id" in second.stderr.read()
    coordinator.ask(first_task(rows()))
    coordinator.wait_for(lambda: coordinator.answers)
    assert first.poll() is None


def test_fleet_in_one_process_learns_the_central_model_and_scores_it(coordinator, broker, tmp_path, fleet_name):
    sources = {f"v{index}": source(index, 40, 10) for index in range(10)}
    scheme = load("frt")
    pooled = pool([part.train for part in sources.values()])
    with Fleet(sources, broker=broker.url, state_dir=tmp_path, fleet=fleet_name) as fleet:
        step: Next | Done = start(pooled)
        number = 0
        while isinstance(step, Next):
            number += 1
            coordinator.ask(step.task, number=number)
            answers: dict[str, Any] = {}

            def all_in(task: Any = step.task, answers: Any = answers) -> Any:
                for envelope in coordinator.received:
                    if getattr(envelope.body, "task_digest", "") == task.digest:
                        answers[envelope.agent] = envelope.body
                return len(answers) == len(sources)

            coordinator.wait_for(all_in)
            for agent in answers:
                coordinator.acknowledge(agent, step.task.digest)
            parts = [Contribution.from_value(answers[agent].contribution) for agent in sorted(answers)]
            step = scheme.server.reduce(step.state, parts)
        coordinator.clear()
        digest = coordinator.publish_model(step.model.to_document())
        coordinator.wait_for(lambda: len(coordinator.bodies(Evaluation)) == len(sources))
        assert {scores.digest for scores in coordinator.bodies(Evaluation)} == {digest}
        assert all(agent.counts["dropped-here"] == 0 for agent in fleet.agents.values())
    central = local.central(scheme, scheme.Parameters(), domain_of(pooled), pooled).model
    assert document_digest(central.to_document()) == digest


@pytest.mark.mosquitto
def test_agent_goes_on_when_the_broker_was_away(tmp_path, free_port):
    running = launch("mosquitto", state_dir=tmp_path / "broker", port=free_port())
    transport = PahoTransport(Link(running.url, "coordinator"))
    coordinator = FakeCoordinator(transport)
    try:
        with Fleet({"v1": source()}, broker=running.url, state_dir=tmp_path) as fleet:
            coordinator.wait_for(lambda: coordinator.bodies(AgentState))
            running.kill()
            agent = fleet.agents["v1"]
            until = time.monotonic() + 20
            while agent.transport.is_connected and time.monotonic() < until:
                time.sleep(0.02)
            running.start()
            coordinator.ask(first_task(rows()))
            coordinator.wait_for(lambda: coordinator.answers, timeout=40)
    finally:
        transport.stop()
        running.stop()


def test_agent_says_why_when_nothing_listens(tmp_path, free_port):
    config = load_config(
        id="v1", broker=f"mqtt://127.0.0.1:{free_port()}", data="memory", state_dir=tmp_path, broker_wait=0.3
    )
    with pytest.raises(BrokerError, match="is the broker running"):
        Loop([make_agent(config, source())]).serve()


def test_agent_that_stops_for_its_identity_leaves_no_files_open(tmp_path):
    config = load_config(id="v1", broker="mqtt://127.0.0.1:1", data="memory", state_dir=tmp_path)
    agent = make_agent(config, source())
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(IdentityError):
            make_agent(config, source())
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened
    agent.stop()
