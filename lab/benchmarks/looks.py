"""What it costs to look at every run of a large fleet: the list that an operator's tools ask for again and again."""

from __future__ import annotations

from typing import Any

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.engine import Engine
from coordinator.journal import MemoryJournal
from coordinator.main import assemble
from coordinator.specification.run import RunSpec
from coordinator.telemetry import logs
from lab.benchmarks.measure import ms, print_table, timed
from schemas.envelope import Envelope
from schemas.messages import AgentState
from schemas.topics import Topics

VEHICLES, RUNS = 1000, 100


def looks() -> None:
    """Look at runs that gather: none of the vehicles has what they need, so each look says so."""
    logs.configure("error", "console")
    core = _waiting()
    first, _ = timed(lambda: _all(core), repeats=1)
    again, documents = timed(lambda: _all(core))
    assert all("has no column" in document["reason"] for document in documents)
    print_table(
        f"A look at all of {RUNS} runs that wait for others, {VEHICLES} vehicles up (ms)",
        ["the first", "again"],
        [[ms(first), ms(again)]],
    )


def _all(core: Coordinator) -> list[dict[str, Any]]:
    return [core.runs.document(run) for run in core.runs.ids()]


def _waiting() -> Coordinator:
    """Return a coordinator around an in-memory broker, with vehicles up and runs that none of them can join."""
    hub, topics = MemoryHub(), Topics("bench")
    transport = MemoryTransport(hub, Link("mqtt://memory", "coordinator"))
    core = assemble(CoordinatorConfig(fleet="bench"), transport, MemoryJournal(), Engine(), clock=lambda: hub.now)
    transport.start(Handlers(lambda message: core.handle([message]), core.connected, lambda _why: None))
    vehicles = MemoryTransport(hub, Link("mqtt://memory", "vehicles"))
    vehicles.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
    columns = [f"input_{number}" for number in range(15)]
    for number in range(VEHICLES):
        agent = f"v{number:04d}"
        body = AgentState(status="up", incarnation="1", schemes=["frt"], features=columns, target="rate")
        vehicles.publish(
            topics.agent_state(agent), Envelope(fleet="bench", body=body, agent=agent).to_bytes(), retain=True
        )
    hub.pump()
    for number in range(RUNS):
        wanted = ("input_0", f"input_{number + len(columns)}")
        core.start_run(RunSpec(run=f"r{number}", scheme="frt", model="m", features=wanted, target="rate"))
    return core
