"""The agent as a process, over the embedded broker: how it ends, its id taken elsewhere, and what it loads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edge_agent.config import AgentConfig
from edge_agent.runner import make_agent
from lab.benchmarks.vehicle import stages
from schemas.errors import IdentityError
from schemas.messages import AgentState
from tests.support.agent_bench import first_task, rows, source, write_rows
from tests.support.processes import Processes


@pytest.fixture
def arguments(processes: Processes, broker, fleet_name):
    path = write_rows(processes.folder / "rows.csv", rows())
    return ("agent", "--id", "v1", "--broker", broker.url, "--fleet", fleet_name, "--data", str(path))


def test_agent_says_that_it_is_down_when_terminated(coordinator, arguments, processes):
    process = processes.start(*arguments)
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    assert process.end(10) == 0
    coordinator.wait_for(lambda: [state for state in coordinator.bodies(AgentState) if state.status == "down"])


@pytest.mark.slow
def test_second_agent_with_the_same_id_elsewhere_ends_with_code_7_and_the_first_goes_on(
    coordinator, arguments, processes, tmp_path
):
    first = processes.start(*arguments)
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    second = processes.start(*arguments, "--state-dir", str(tmp_path / "elsewhere"))
    assert second.reap(60) == 7
    assert "Stop it, or start this one with another --id" in second.logged()
    coordinator.ask(first_task(rows()))
    coordinator.wait_for(lambda: coordinator.answers)
    assert first.is_running


def test_agent_that_stops_for_its_identity_leaves_no_files_open(tmp_path):
    config = AgentConfig.load(id="v1", broker="mqtt://127.0.0.1:1", data="memory", state_dir=tmp_path)
    agent = make_agent(config, source())
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(IdentityError):
            make_agent(config, source())
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened
    agent.stop()


def test_connected_agent_has_loaded_what_it_needs_and_no_more(coordinator, arguments, processes):
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from console.main import main; main()"
    agent = processes.start(*arguments, program=(sys.executable, "-c", code))
    coordinator.wait_for(lambda: coordinator.bodies(AgentState))
    agent.end(10)
    loaded = set(agent.printed().split())
    packages = {name.partition(".")[0] for name in loaded if not name.startswith("_")} - set(sys.stdlib_module_names)
    ours = {"broker", "console", "edge_agent", "glassfleet", "lab", "schemas"}  # lab: to list its schemes
    # Neither scipy nor the cryptography of a fleet that signs.
    core = {"annotated_types", "click", "msgpack", "numpy", "paho", "pydantic", "pydantic_core", "rfc8785"}
    core |= {"typing_extensions", "typing_inspection", "cython_runtime", "sitecustomize"}
    assert ours <= packages <= ours | core
    assert not [name for name in loaded if name.startswith(("glassfleet.schemes.", "lab.schemes."))], (
        "a scheme is loaded when it is used"
    )
    # urllib.request and email come with paho and importlib.metadata.
    heavy = {"asyncio", "concurrent.futures", "multiprocessing", "unittest", "xml.etree.ElementTree", "http.server"}
    assert loaded.isdisjoint(heavy | {"pydantic.v1", "statistics", "numpy.random", "numpy.ma", "numpy.testing"})


@pytest.mark.slow
def test_agent_with_36000_rows_keeps_its_bounds_of_memory(tmp_path):
    (_, connected, *_), *_, (_, _, peak, *_) = stages(tmp_path)  # MB
    assert connected <= 69.5
    assert peak <= 97.0
