"""The API's threads read everything while the coordinator's thread changes everything, and no look fails."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from coordinator.config import load_config
from coordinator.core import Coordinator
from coordinator.journal.memory import MemoryJournal
from coordinator.main import build
from schemas.messages import AgentState, Evaluation
from tests.support.coordinator_bench import Fleet as Bench
from tests.support.engine_bench import toy_spec
from tests.support.simulation import quiet

SECONDS = 4.0
"""How long they go on; each of the looks that failed once failed many times in it."""
SCORES = Evaluation(name="qoe", version=1, digest="0" * 64, metric="rmse", federated=1.0, local=1.0, rows=5)
UP = AgentState(status="up", incarnation="1", schemes=["toy"], features=["x"], target="y")


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    quiet()
    yield
    sys.setswitchinterval(before)
    structlog.reset_defaults()


class Rubbish:
    """A thing in a circle with a finaliser, as web frameworks leave behind: any allocation may run Python code."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(5))


def litter(_number: int) -> None:
    for _ in range(50):
        Rubbish()
    time.sleep(0.0005)


def change(core: Coordinator, number: int) -> None:
    """Let ever new vehicles come, tell scores and go, and ever new counters begin."""
    agent = f"v{number}"
    core.fleet.up(agent, UP)
    core.fleet.evaluated(agent, SCORES)
    core.fleet.down(agent, None)
    core.metrics[f"ignored.{number}"] += 1
    if len(core.metrics) > 3000:
        core.metrics.clear()


def on_and_on(act: Callable[[int], object], faults: Counter[str]) -> None:
    """Do something again and again; whatever it raises would be an answer of 500."""
    end = time.monotonic() + SECONDS
    for number in itertools.count():
        if time.monotonic() > end:
            return
        try:
            act(number)
        except Exception as fault:  # noqa: BLE001 - of whatever kind
            faults[repr(fault)] += 1


def test_look_from_another_thread_never_fails_while_vehicles_come_and_go_by_the_thousand(tmp_path: Path) -> None:
    service = build(load_config(state_dir=tmp_path, max_agents=5000), journal=MemoryJournal())
    core, faults = service.coordinator, Counter[str]()
    acts: list[Callable[[int], object]] = [
        partial(change, core),
        litter,
        lambda _: core.fleet.document(),
        lambda _: core.fleet.evaluations("qoe", 1),
        lambda _: service.metrics(),
        lambda _: service.observed.page(),
    ]
    threads = [threading.Thread(target=on_and_on, args=(act, faults)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(core.fleet.document()) > 1000
    assert not faults


def test_what_a_reader_holds_stays_as_it_was_while_runs_begin_and_end_and_names_change() -> None:
    fleet = Bench()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    core = fleet.core
    aliases = core.registry.aliases
    held = core.runs.live, core.runs.past, aliases.current, aliases.candidate
    were = [dict(table) for table in held]
    fleet.hub.pump()
    fleet.finish("a", "b")
    fleet.hub.advance(3.0)
    core.tick()
    assert list(core.runs.past) == ["r1"]
    assert (list(aliases.candidate), list(aliases.current)) == (["model"], []), "the fleet has yet to score it"
    while_tried = aliases.candidate
    core.models.promote("model", 1, "tried by hand")
    assert (list(aliases.candidate), list(aliases.current)) == ([], ["model"])
    assert list(while_tried) == ["model"]
    assert [dict(table) for table in held] == were
    assert "r1" in held[0], "who looked before its end goes on with what stood then"
