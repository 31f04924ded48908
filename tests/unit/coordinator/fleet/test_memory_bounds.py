"""What a bound counts is at least what Python takes for it: else a peer chooses what is counted least."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from broker.port import Message
from coordinator.config import FleetLimits
from coordinator.fleet.arrivals import Arrivals
from coordinator.fleet.directory import BIRTHS_BURST, Fleet
from coordinator.process.queue import EventQueue
from schemas.envelope import Envelope
from schemas.messages import AgentState, Body, Evaluation, Part
from schemas.trust.joining import Assembler

COUNT = 100
LONG = "v{:063d}"
"""The longest id that an agent may have."""


def taken(envelope: bytes) -> Envelope:
    """As from the wire: nothing in it is shared with another message."""
    return Envelope.from_bytes(envelope, fleet="fleet")


def messages(make: Callable[[int], Body]) -> list[tuple[str, bytes]]:
    bodies = [(LONG.format(number), make(number)) for number in range(COUNT)]
    return [(agent, Envelope(fleet="fleet", agent=agent, run="r", body=body).to_bytes()) for agent, body in bodies]


def births(columns: Callable[[int], Iterable[str]]) -> Callable[[], Callable[[], int]]:
    def begin() -> Callable[[], int]:
        arriving = messages(
            lambda number: AgentState(
                status="up",
                incarnation=f"{number:016x}",
                software="glassfleet 0.1.0",
                schemes=["frt", "tree"],
                features=list(columns(number)),
                target="y",
            )
        )
        fleet = Fleet(lambda: 1.8e9, **vars(FleetLimits()))

        def act() -> int:
            for agent, payload in arriving:
                body = taken(payload).body
                assert isinstance(body, AgentState)
                fleet.up(str(bytes(agent, "ascii"), "ascii"), body)
            return fleet.size

        return act

    return begin


def held_back() -> Callable[[], int]:
    """Births of vehicles that have changed too often."""
    fleet = Fleet(lambda: 1.8e9, **vars(FleetLimits()))
    arrivals = Arrivals(fleet, lambda: 0.0, Counter())
    arriving = messages(
        lambda number: AgentState(
            status="up", incarnation="new", features=[chr(0x4E00 + number + each) for each in range(500)], target="y"
        )
    )
    for agent, _ in arriving:
        for change in range(BIRTHS_BURST):
            fleet.up(agent, AgentState(status="up", incarnation=str(change)))

    def act() -> int:
        for _, payload in arriving:
            assert arrivals.event_of(taken(payload), 0.0) is None
        return fleet.held

    return act


def scores() -> Callable[[], int]:
    fleet = Fleet(lambda: 1.8e9, **vars(FleetLimits()))
    for number in range(COUNT):
        fleet.up(LONG.format(number), AgentState(status="up", incarnation="1"))
    lines = [
        each
        for version in range(2**31 - 10, 2**31)
        for each in messages(
            lambda number, version=version: Evaluation(  # type: ignore[misc]
                name="m" * 64,
                version=version,
                digest=f"{number:064x}",
                metric="rmse",
                federated=number / 3,
                local=number / 7,
                rows=1000 + number,
                champion=number / 9,
                constant=number / 11,
                champion_digest=f"{version:064x}",
            )
        )
    ]
    before = fleet.size

    def act() -> int:
        for agent, payload in lines:
            body = taken(payload).body
            assert isinstance(body, Evaluation)
            fleet.evaluated(agent, body)
        return fleet.size - before

    return act


def parts() -> Callable[[], int]:
    arriving = messages(lambda number: Part(digest=f"{number:064x}", index=0, count=4096, data=b"x"))
    assembler = Assembler()

    def act() -> int:
        for _, payload in arriving:
            assembler.add(taken(payload))
        return assembler.kept_bytes

    return act


def waiting() -> Callable[[], int]:
    queue = EventQueue(10_000, 2**30)

    def act() -> int:
        for number in range(COUNT):
            queue.put(Message("/".join(["x" * 2000, str(number)]), b"%d" % number))
        return queue.depth()[1]

    return act


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(births(lambda _: ("x", "y")), id="births with the same columns"),
        pytest.param(births(lambda number: (chr(0x4E00 + number + each) for each in range(500))), id="many columns"),
        pytest.param(births(lambda number: [f"column {number}"]), id="one column of its own"),
        pytest.param(held_back, id="births that come too often"),
        pytest.param(scores, id="scores"),
        pytest.param(parts, id="parts of one byte"),
        pytest.param(waiting, id="messages of long topics"),
    ],
)
def test_bound_counts_at_least_the_memory_that_is_taken(begin: Callable[[], Callable[[], int]]) -> None:
    act = begin()
    gc.collect()
    tracemalloc.start()
    counted = act()
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory <= counted < 3 * memory
