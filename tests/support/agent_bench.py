"""Agents and a scripted coordinator on a broker in memory, in virtual time."""

from typing import Any

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link
from edge_agent.agent import Agent
from edge_agent.config import load_config
from edge_agent.runner import link_of
from glassfleet import catalogue, local
from tests.support.fake_coordinator import FakeCoordinator, domain_of, rows, source

URL = "mqtt://memory"


class Bench:
    """One coordinator and some agents on one hub."""

    def __init__(self, folder: Any, *, limit: Any = 128 * 1024) -> None:
        self.hub = MemoryHub()
        self.folder = folder
        self.limit = limit
        self.agents: list[Agent] = []
        self.coordinator = FakeCoordinator(
            MemoryTransport(self.hub, Link(URL, "coordinator", max_message_bytes=limit)), limit=limit
        )

    def agent(
        self, name: Any = "v1", data: Any = None, folder: Any = None, *, verifier: Any = None, **changes: Any
    ) -> Any:
        flags = {"id": name, "broker": URL, "data": "memory", "max_message_bytes": self.limit, **changes}
        config = load_config(state_dir=folder or self.folder, **flags)
        make = lambda will: MemoryTransport(self.hub, link_of(config, will))
        now = lambda: self.hub.now
        agent = Agent(config, data or source(), make, clock=now, wall=now, verifier=verifier)
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
        agent.release()
        self.agents.remove(agent)


def learned() -> Any:
    scheme = catalogue.load("frt")
    data = rows(seed=5, count=200)
    return scheme, local.central(scheme, scheme.Parameters(), domain_of(data), data).model
