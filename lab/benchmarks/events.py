"""What each kind of event costs the coordinator, in a small fleet and in a large one: the cost must not grow with it.

The whole coordinator with its SQLite journal takes messages as they come from a broker, in batches as it takes them
under load; only the MQTT client and signatures are left out. A run of FRT in which a third of the fleet is lost is
played, and between its rounds everything else that may arrive.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link, Message
from coordinator.config import CoordinatorConfig
from coordinator.engine import Engine
from coordinator.journal.sql import SqlJournal
from coordinator.main import assemble
from coordinator.specification.run import RoundPolicy, RunSpec
from coordinator.telemetry import logs
from coordinator.telemetry.metrics import Metrics
from coordinator.telemetry.refusals import Refusals
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY
from lab.benchmarks.measure import print_table
from schemas.envelope import Envelope
from schemas.messages import AgentState, ContributionBody, Refusal
from schemas.topics import Topics

SIZES = (1_000, 10_000)
ROWS, INPUTS = 40, 4
BATCH = 100
DEADLINE = 60.0
TOPICS = Topics("bench")


def made_up(seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((ROWS, INPUTS))
    y = np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2)
    return Dataset(tuple(f"x{index}" for index in range(INPUTS)), "y", X, y)


class Bench:
    """A coordinator and what it is sent."""

    def __init__(self, vehicles: int, folder: Path) -> None:
        self.agents = [f"v{number:05d}" for number in range(vehicles)]
        self.folder = folder
        self.hub = MemoryHub()
        self.data = made_up(1)
        self.costs: dict[str, float] = {}
        self.open()

    def open(self) -> None:
        self.transport = MemoryTransport(self.hub, Link("mqtt://memory", "coordinator"))
        self.journal = SqlJournal(f"sqlite:///{self.folder}/journal.db")
        self.core = assemble(
            CoordinatorConfig(fleet="bench"),
            self.transport,
            self.journal,
            Engine(),
            clock=lambda: self.hub.now,
            observers=[Metrics(time.monotonic), Refusals()],
        )

    def timed(self, what: str, events: int, work: Callable[[], Any]) -> None:
        """Note the processor time of `work` for each of so many events, in microseconds."""
        gc.collect()
        begun = time.process_time()
        work()
        self.costs[what] = 1e6 * (time.process_time() - begun) / events

    def send(self, what: str, messages: Sequence[Message]) -> None:
        """Let messages arrive; note what one cost in the cheapest batch of the second half, as others work here."""
        gc.collect()
        costs = []
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            begun = time.process_time()
            self.core.handle(batch)
            costs.append(1e6 * (time.process_time() - begun) / len(batch))
        self.costs[what] = min(costs[len(costs) // 2 :])

    def state(self, status: Any, incarnation: str, agents: Iterable[str]) -> list[Message]:
        sent = []
        for agent in agents:
            body = AgentState(
                status=status, incarnation=incarnation, schemes=["frt"], features=list(self.data.features), target="y"
            )
            sent.append(Message(TOPICS.agent_state(agent), Envelope(fleet="bench", body=body, agent=agent).to_bytes()))
        return sent

    @property
    def task(self) -> Task:
        return self.core.runs.live["r"].levels[-1].task

    def answers(self, agents: Iterable[str]) -> list[Message]:
        task = self.task
        client = DISCOVERY.client if task.scheme == "domain" else catalogue.load(task.scheme).client
        given = client.contribute(task, self.data, np.random.default_rng(0)).to_value()
        body = ContributionBody(task_digest=task.digest, rows=ROWS, data_digest="0" * 64, contribution=given)
        return [self._for_run(agent, body) for agent in agents]

    def refusals(self, agents: Iterable[str]) -> list[Message]:
        body = Refusal(task_digest=self.task.digest, reason="no rows today")
        return [self._for_run(agent, body) for agent in agents]

    @staticmethod
    def _for_run(agent: str, body: Any) -> Message:
        return Message(TOPICS.contribution(agent), Envelope(fleet="bench", body=body, run="r", agent=agent).to_bytes())

    def play(self) -> dict[str, float]:
        agents, third = self.agents, len(self.agents) // 3
        some, others = agents[:third], agents[third:]
        self.send("birth, no run", self.state("up", "1", agents))
        policy = RoundPolicy(min_agents=0.5, gather_agents=len(agents), deadline=DEADLINE, gather_timeout=DEADLINE)
        self.send("will", self.state("down", "1", agents))
        self.core.start_run(RunSpec(run="r", scheme="frt", model="m", policy=policy))
        self.send("birth, a run gathers", self.state("up", "2", agents))
        self.send("birth again, no news", self.state("up", "2", agents))
        self.send("answer, limits", self.answers(agents))
        self.send("answer, limits 2", self.answers(agents))
        assert self.task.scheme == "frt", self.task.scheme
        self.send("will in a round", self.state("down", "2", some))
        self.send("birth in a round", self.state("up", "3", some))
        self.send("refusal", self.refusals(some[: third // 2]))
        sent = self.answers(agents)
        self.send("answer, first level", sent[third // 2 : -1])
        self.timed("a look at the run", len(agents), lambda: self.core.runs.document("r"))
        self.send("resend", sent[third // 2 : -1])
        self.send("answer, after a refusal", [*sent[: third // 2], sent[-1]])
        self.send("resend, round closed", sent[: len(some)])
        sent = self.answers(agents)
        self.send("answer, second level", sent[third:])
        self.hub.now += DEADLINE + 1
        self.timed("timeout and replay, each of the fleet", len(agents), self.core.tick)
        self.send("answer of who was lost", sent[:third])
        self.send("answer, after the replay", self.answers(others))
        self.journal.close()
        self.timed("resuming, each record", 1, self.open)
        records = sum(1 for _ in self.journal.records("r"))
        self.costs["resuming, each record"] /= records
        self.journal.close()
        return self.costs


def events() -> None:
    """Play the run in fleets of `SIZES` vehicles."""
    logs.configure("error", "console")
    results = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as folder:
            results.append(Bench(size, Path(folder)).play())
    rows = [
        [what, *(f"{costs[what]:.0f}" for costs in results), f"{results[-1][what] / results[0][what]:.2f}"]
        for what in results[0]
    ]
    print_table(
        "An event, processor time in the coordinator without its MQTT client (microseconds)",
        ["event", *(f"{size:,} vehicles" for size in SIZES), "ratio"],
        rows,
    )
