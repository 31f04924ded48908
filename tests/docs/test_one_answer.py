"""One answer is followed through a signed fleet in one process: how many files somebody reads who follows it, too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import structlog

from coordinator.core import Coordinator
from coordinator.journal.sql import SqlJournal
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.agent import Agent
from edge_agent.effects import Effects
from edge_agent.sources import read_source
from glassfleet.data.domain import Domain, Variable
from tests.support.authorities import TestCa
from tests.support.docs.pages import ROOT
from tests.support.schedules import quiet
from tests.support.simulation import Simulation

ENTERED = {"answers": (16, 18), "scores": (21, 21), "arrives": (22, 22), "closes": (27, 28)}
"""As a rule, and at most, so many of our files, without what a scheme computes (`glassfleet/`) and a simulated broker:
a vehicle gets a request and sends its answer, or scores the model with it; the coordinator takes one; it takes the last
one, and asks the next question."""

APART = ("glassfleet/", "tests/", ".venv/", "broker/memory")
TASK_READ = "glassfleet/contract/messages.py", "Task.from_value"


class Follower:
    """Notes which functions of ours are entered, and in which files."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        path = frame.f_code.co_filename
        is_brokers = frame.f_back is not None and "/broker/memory" in frame.f_back.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}/") and not is_brokers:
            self.calls.append((path.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname))

    @property
    def files(self) -> set[str]:
        return {path for path, _ in self.calls if not path.startswith(APART)}

    def enters(self, name: str) -> bool:
        return any(each.endswith(name) for _, each in self.calls)


@contextmanager
def followed(take: Callable[[Follower], None]) -> Iterator[None]:
    before, follower = sys.getprofile(), Follower()
    sys.setprofile(follower)
    try:
        yield
    finally:
        sys.setprofile(before)
        take(follower)


def follow(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, take: Callable[[Any, Follower], None]) -> None:
    called = getattr(owner, method)

    def follows(self: Any, *given: Any) -> Any:
        with followed(lambda follower: take(self, follower)):
            return called(self, *given)

    monkeypatch.setattr(owner, method, follows)


def test_one_answer_enters_few_files_and_its_task_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet()
    asked: dict[str, Follower] = {}
    entered: dict[str, list[set[str]]] = {name: [] for name in ENTERED}
    read: list[int] = []

    def handles(agent: Agent, follower: Follower) -> None:
        asked[agent.id] = follower

    def works(effects: Effects, follower: Follower) -> None:
        if follower.enters("Outbox.put"):
            [agent] = [name for name, agent in fleet.agents.items() if agent._effects is effects]
            files = asked[agent].files | follower.files
            entered["scores" if "edge_agent/models/summed.py" in files else "answers"].append(files)
            read.append((asked[agent].calls + follower.calls).count(TASK_READ))

    def counts(_: Coordinator, follower: Follower) -> None:
        is_last = follower.enters("ModelPublisher.model")  # of the run: its model is published, which is another way
        if follower.enters("Publisher.receipt") and not is_last:
            entered["closes" if follower.enters(".reduce") else "arrives"].append(follower.files)

    follow(monkeypatch, Agent, "handle", handles)
    follow(monkeypatch, Effects, "work", works)
    follow(monkeypatch, Coordinator, "handle", counts)
    table = tmp_path / "rows.csv"
    table.write_text(
        "speed,load,minutes,split\n"
        + "".join(f"{n % 7 / 7:.3f},{n % 5 / 5:.3f},{n % 7 / 7 + n % 5 / 9:.3f},train\n" for n in range(60))
        + "0.5,0.5,1,test\n" * 5
    )
    fleet = Simulation({f"v{n}": read_source(table, target="minutes") for n in range(3)}, tmp_path, ca=TestCa())
    fleet.journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.sqlite'}")  # type: ignore[assignment]
    fleet.begin(5)
    sides = {name: Variable(name=name, low=0.0, high=1.0) for name in ("speed", "load")}
    domain = Domain(features=tuple(sides.values()), target=Variable(name="minutes", low=0.0, high=2.0))
    policy = RoundPolicy(min_agents=1, deadline=5, gather_agents=3)
    spec = RunSpec(scheme="tree", parameters={"max_rules": 3}, policy=policy, domain=domain, model="m")
    ended = fleet.run_until_ended(fleet.start_run(spec), within=300)
    structlog.reset_defaults()

    assert ended["outcome"] == "finished", ended["reason"]
    assert all(entered.values())
    counts = {name: sorted(map(len, ways)) for name, ways in entered.items()}
    found = {name: (numbers[len(numbers) // 2], numbers[-1]) for name, numbers in counts.items()}
    more = {
        name: sorted(max(entered[name], key=len))
        for name, numbers in found.items()
        if any(number > bound for number, bound in zip(numbers, ENTERED[name], strict=True))
    }
    assert more == {}, found
    assert set(read) == {1}
