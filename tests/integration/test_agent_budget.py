"""What no vehicle should compute: a real agent lets go of it, refuses it by name, and serves other runs meanwhile."""

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.servers.launch import launch
from edge_agent import worker
from edge_agent.models.evaluation import Evaluator
from edge_agent.session.answers import answer
from edge_agent.session.snapshots import Snapshots
from edge_agent.worker import Budget, WorkItem
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.contract.scheme import Abilities, Cost
from glassfleet.data.dataset import Dataset
from lab.schemes.fedavg_mlp import Perceptron, PerceptronParameters
from tests.support.agent_bench import Bench, domain_of, first_task, record_of, rows
from tests.support.processes import eventually
from tests.support.sample_models import class_domain

MONSTER = {"hidden": (256, 256, 256, 256), "epochs": 1000, "batch_size": 1}
"""Minutes, even for 60 rows."""


def task_of(name: str, data: Dataset, **parameters: Any) -> Task:
    scheme = catalogue.load(name)
    step = scheme.server.start(scheme.Parameters(**parameters), domain_of(data), 0)
    assert isinstance(step, Next)
    return step.task


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = launch("embedded", state_dir=tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


@pytest.fixture
def start_agent(processes, broker, fleet_name):
    def start_agent(data=None, tests=0, **settings):
        data = data or rows()
        lines = [",".join(("split", *data.features, data.target)), *["test,0,0,0,0"] * tests]
        lines += [
            ",".join(["train", *map(repr, [*x, y])]) for x, y in zip(data.X.tolist(), data.y.tolist(), strict=True)
        ]
        path = processes.folder / "rows.csv"
        path.write_text("\n".join(lines) + "\n")
        environment = {
            f"GLASSFLEET_AGENT_{name.replace('-', '_').upper()}": str(value) for name, value in settings.items()
        }
        flags = (f"--broker={broker.url}", f"--fleet={fleet_name}", f"--data={path}")
        return processes.start("agent", "--id=v1", *flags, environment=environment)

    return start_agent


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def busy(coordinator, start_agent):
    """An agent, and the process in which it computes the monster."""
    agent = start_agent(**{"answer-seconds": 3600})
    coordinator.wait_for(lambda: coordinator.messages)
    coordinator.ask(task_of("fedavg_mlp", rows(), **MONSTER), run="monster")
    eventually(lambda: agent.has_ended or children(agent.pid))
    return agent, children(agent.pid)[0]


@pytest.mark.parametrize("end", ["cancel", "newer round"])
def test_agent_serves_other_runs_and_lets_go_when_its_long_answer_is_no_longer_wanted(coordinator, busy, end):
    agent, worker = busy
    coordinator.ask(first_task(rows()), run="other")
    coordinator.wait_for(lambda: coordinator.answers)
    assert lives(worker)
    if end == "cancel":
        coordinator.clear("monster")
    else:
        coordinator.ask(first_task(rows(seed=1)), run="monster", number=2)
        coordinator.wait_for(lambda: len(coordinator.answers) == 2)
    eventually(lambda: not lives(worker))
    assert agent.is_running
    assert coordinator.refusals == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_agent_leaves_nobody_behind_when_it_is_ended_in_the_middle_of_a_long_answer(busy, number):
    agent, worker = busy
    agent.signal(number)
    assert agent.reap(30) == (0 if number == signal.SIGTERM else -number)
    eventually(lambda: not lives(worker))


LOCAL = {"antecedents": "local", "n_clusters": 1000, "tolerance": 0.0}


@pytest.mark.parametrize(
    ("settings", "asked", "why"),
    [
        # Known before it begins; found out by the clock; found out by the memory.
        ({"answer-seconds": 5}, ("fedavg_mlp", 60, MONSTER), "for 5 seconds at most (its answer_seconds); this"),
        ({"answer-seconds": 2}, ("tsk", 4000, LOCAL | {"max_iterations": 5000}), "for 2 seconds at most"),
        ({"answer-megabytes": 256}, ("tsk", 40_000, LOCAL | {"max_iterations": 10}), "with 256 MB at most"),
    ],
)
def test_agent_refuses_with_the_reason_what_is_over_its_budget(coordinator, start_agent, settings, asked, why):
    name, count, parameters = asked
    data = rows(count=count)
    agent = start_agent(data, **settings)
    coordinator.wait_for(lambda: coordinator.messages)
    coordinator.ask(task_of(name, data, **parameters))
    coordinator.wait_for(lambda: coordinator.refusals, 60)
    assert coordinator.refusals[0].reason.startswith("over-budget: this vehicle ")
    assert why in coordinator.refusals[0].reason
    assert children(agent.pid) == []
    coordinator.ask(first_task(data), run="other")
    coordinator.wait_for(lambda: coordinator.answers)


def test_agent_computes_one_long_answer_after_the_other_and_refuses_when_many_wait(tmp_path):
    bench = Bench(tmp_path, limit=1 << 22)
    agent = bench.agent(answer_seconds=3600)
    task = task_of("fedavg_mlp", rows(), **MONSTER)
    for number in range(7):
        bench.coordinator.ask(task, run=f"m{number}")
        bench.run(0.5)
    try:
        first = agent._effects._long.work._process.pid
        assert lives(first)
        assert [refusal.reason for refusal in bench.coordinator.refusals] == [
            "over-budget: 4 long answers wait here already"
        ] * 2
        bench.coordinator.clear("m1")  # which waits
        bench.coordinator.clear("m0")
        bench.run(0.5)
        assert not lives(first)
        assert agent._effects._long.asked.run == "m2"
        assert WorkItem.running["answer"] == 1
    finally:
        agent.stop()
    assert WorkItem.running["answer"] == 0


def kept(folder: Path, data: Dataset) -> Path:
    snapshots = Snapshots(folder, b"s" * 32)
    snapshots.of_run("r1", data)
    return snapshots.path("r1")


def worked(path: Path, task: Task) -> dict[str, Any]:
    work = WorkItem(
        Budget(),
        "answer",
        [path],
        {"task": task.to_value(), "noise": b"n" * 32, "condense": b"c" * 32},
        most_bytes=1 << 20,
    )
    try:
        eventually(work.done)
        return work.result()
    finally:
        work.end()


def test_answer_computed_apart_is_the_same_to_the_last_bit_with_its_noise(tmp_path):
    X = np.random.default_rng(0).random((50, 2))
    data = Dataset(("a", "b"), "label", X, np.where(X[:, 0] > 0.5, "yes", "no"))
    scheme = catalogue.load("dp_tree")
    domain = class_domain(data.features, "label", "no", "yes")
    step = scheme.server.start(scheme.Parameters(), domain, 0)
    assert isinstance(step, Next)
    hello = scheme.client.contribute(step.task, data, np.random.default_rng(0))
    edges = scheme.server.reduce(step.state, [hello])
    assert isinstance(edges, Next)
    task = edges.task
    here, apart = answer(task, data, b"n" * 32), worked(kept(tmp_path, data), task)
    assert apart["rows"] == here["rows"] == 50
    ours, theirs = (Contribution.from_value(part["contribution"]) for part in (here, apart))
    assert theirs.kind == "edges"
    assert np.array_equal(ours.sums["histogram"], theirs.sums["histogram"])


def test_agent_serves_runs_while_it_learns_a_local_model_that_takes_long(coordinator, start_agent):
    data = rows()
    weights = task_of("fedavg_mlp", data, **MONSTER).body["weights"]
    model = Perceptron(PerceptronParameters(**MONSTER), domain_of(data), weights)
    agent = start_agent(data, tests=2)
    coordinator.wait_for(lambda: coordinator.messages)
    coordinator.publish_model(model.to_document())
    eventually(lambda: agent.has_ended or children(agent.pid))
    (worker,) = children(agent.pid)
    coordinator.ask(first_task(data), run="other")
    coordinator.wait_for(lambda: coordinator.answers)
    assert lives(worker)
    assert agent.end() == 0
    eventually(lambda: not lives(worker))


def test_scores_computed_apart_are_those_computed_here_and_are_remembered(tmp_path, monkeypatch):
    train, test = rows(), rows(seed=1)
    scheme = catalogue.load("frt")
    model = simulation.central(scheme, scheme.Parameters(), domain_of(train), train).model
    document = model.to_document()
    record = record_of(document)
    (*_, here) = Evaluator(train, test).steps(record, record)
    monkeypatch.setattr(worker, "LIGHT", Cost(0.0, 0.0))
    apart = Evaluator(train, test, budget=Budget(), directory=tmp_path / "scoring")
    result = []
    for scores in apart.steps(record, record):
        result.append(scores)
        assert apart.is_waiting == (scores is None)
        time.sleep(0.01)
    assert here is not None
    assert result[-1] == here
    assert list((tmp_path / "scoring").iterdir()) == []
    assert list(apart._local.values()) == [here.local]


def test_every_scheme_says_what_an_answer_may_take():
    assert [name for name in catalogue.names() if catalogue.load(name).abilities.cost is Abilities.cost] == []
