"""Real agents over real brokers: threads, sockets, processes, SIGKILL."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.servers.launch import launch
from edge_agent.config import load_config
from edge_agent.runner import make_agent
from schemas.errors import IdentityError
from schemas.messages import AgentState
from tests.support.fake_coordinator import first_task, rows, source

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


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = launch(state_dir=tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


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


def test_agent_says_that_it_is_down_when_terminated(coordinator, spawn):
    process = spawn()
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    coordinator.wait_for(lambda: [state for state in coordinator.bodies(AgentState) if state.status == "down"])


def test_second_agent_with_the_same_id_elsewhere_ends_with_code_7_and_the_first_goes_on(coordinator, spawn, tmp_path):
    first = spawn()
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    second = spawn(state_dir=tmp_path / "elsewhere")
    assert second.wait(60) == 7
    assert "Stop it, or start this one with another --id" in second.stderr.read()
    coordinator.ask(first_task(rows()))
    coordinator.wait_for(lambda: coordinator.answers)
    assert first.poll() is None


def test_agent_that_stops_for_its_identity_leaves_no_files_open(tmp_path):
    config = load_config(id="v1", broker="mqtt://127.0.0.1:1", data="memory", state_dir=tmp_path)
    agent = make_agent(config, source())
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(IdentityError):
            make_agent(config, source())
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened
    agent.stop()
