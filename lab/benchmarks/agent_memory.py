"""Resident memory of one real agent process with 36,000 rows of 15 inputs: ``python -m lab.benchmarks.agent_memory``.

A broker is started, an agent process joins it, and this script plays the coordinator of one whole run of an exact FRT
(level by level, leaves, weights), publishes the model and waits until the agent has scored it against a model of its
own. Prints the agent's resident and peak memory (``VmRSS``, ``VmHWM`` of /proc) after each of these stages as a
Markdown table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from broker.paho_transport import PahoTransport
from broker.port import Link
from broker.servers.launch import launch
from edge_agent.sources import read_source
from glassfleet.catalogue import load
from glassfleet.scheme import Contribution, Done, Next
from schemas.messages import AgentState, ContributionBody, Evaluation
from tests.support.fake_coordinator import FakeCoordinator, domain_of

ROWS, INPUTS = 36_000, 15


def memory(pid: int) -> tuple[float, float]:
    """Resident and peak memory of a process in MB (10^6 bytes)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def write_rows(path: Path) -> None:
    """Write a file of the size that the fifteen vehicles of the case study have together."""
    rng = np.random.default_rng(0)
    X = rng.random((ROWS, INPUTS))
    y = np.clip(X[:, 0] * X[:, 1] + 0.3 * np.sin(6 * X[:, 2]) + 0.1 * rng.standard_normal(ROWS), 0, 1)
    names = [f"x{index + 1}" for index in range(INPUTS)]
    with path.open("w") as file:
        file.write(",".join(["split", *names, "y"]) + "\n")
        for index, (x, value) in enumerate(zip(X, y, strict=True)):
            part = "test" if index % 6 == 5 else "train"
            file.write(part + "," + ",".join(f"{cell:.6f}" for cell in [*x, value]) + "\n")


def answers_to(coordinator: FakeCoordinator, task_digest: str) -> list[ContributionBody]:
    """Answers to one task that have arrived."""
    return [body for body in coordinator.answers if body.task_digest == task_digest][:1]


def main() -> None:
    """Measure and print."""
    print("| stage | RSS MB | peak MB | CPU s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write_rows(folder / "rows.csv")
        broker = launch("auto", state_dir=folder / "broker")
        transport = PahoTransport(Link(broker.url, "coordinator"))
        coordinator = FakeCoordinator(transport)
        program = (
            "import sys; from edge_agent.config import load_config; from edge_agent.runner import run_agent; "
            "url, data, state = sys.argv[1:]; "
            "run_agent(load_config(id='v1', broker=url, data=data, state_dir=state, log_level='error'))"
        )
        agent = subprocess.Popen(
            [sys.executable, "-c", program, broker.url, str(folder / "rows.csv"), str(folder / "state")]
        )

        def tell(stage: str) -> None:
            resident, peak = memory(agent.pid)
            print(f"| {stage} | {resident:.1f} | {peak:.1f} | {cpu_seconds(agent.pid):.2f} |", flush=True)

        try:
            coordinator.wait_for(lambda: coordinator.bodies(AgentState))
            tell("data read, connected")
            source = read_source(folder / "rows.csv")
            scheme = load("frt")
            step: Next | Done = scheme.server.start(scheme.exact(scheme.Parameters()), domain_of(source.train), 0)
            number = 0
            while isinstance(step, Next):
                number += 1
                began = time.perf_counter()
                coordinator.ask(step.task, number=number)
                digest = step.task.digest
                (body,) = coordinator.wait_for(partial(answers_to, coordinator, digest))
                seconds = time.perf_counter() - began
                coordinator.acknowledge("v1", digest)
                tell(f"round {number} ({step.task.kind}) answered in {seconds * 1e3:.0f} ms")
                step = scheme.server.reduce(step.state, [Contribution.from_value(body.contribution)])
            coordinator.clear()
            coordinator.publish_model(step.model.to_document())
            coordinator.wait_for(lambda: coordinator.bodies(Evaluation), timeout=60)
            tell("own model learned, both scored")
        finally:
            agent.terminate()
            agent.wait(10)
            transport.stop()
            broker.stop()


if __name__ == "__main__":
    main()
