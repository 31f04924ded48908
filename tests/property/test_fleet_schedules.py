"""Thousands of small fleets under seeded schedules of faults, in virtual time.

The same coordinator, engine, journal port, agent, session, outbox and frozen rows as in a deployment; only clock,
transport and journal are in memory, and the scheme is a tiny one. A failing seed stands in the message and can be
replayed alone: ``GLASSFLEET_SEED=4711 pytest tests/property/test_fleet_schedules.py``.

``GLASSFLEET_TINY_SCHEDULES`` sets how many are tried (default 30); docs/explanation/failure-model.md says how many a
minute were measured.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.engine import checkpoint
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset, pool
from tests.support.agent_bench import domain_of
from tests.support.memory_broker import Faults
from tests.support.schedules import assert_promises, schedule_fault, train_only
from tests.support.simulation import Simulation

BATCH = 50
SEED = os.environ.get("GLASSFLEET_SEED")
SCHEDULES = int(os.environ.get("GLASSFLEET_TINY_SCHEDULES", "30"))
BATCHES = (
    [range(start, min(start + BATCH, SCHEDULES)) for start in range(0, SCHEDULES, BATCH)]
    if SEED is None
    else [range(int(SEED), int(SEED) + 1)]
)
NAMES = ("a", "b", "c")


pytestmark = pytest.mark.usefixtures("quiet_logs", "tiny_scheme")


@pytest.fixture
def tiny_scheme(add_schemes: Callable[[Path], None]) -> None:
    add_schemes(Path(__file__).parent / "tiny")


def source(index: int) -> Source:
    rng = np.random.default_rng(index)
    X = rng.random((9 + 2 * index, 1))
    data = Dataset(("x",), "y", X, X[:, 0] ** (1 + index))
    return train_only(data)


SOURCES = {name: source(index) for index, name in enumerate(NAMES)}
DOMAIN = domain_of(pool([each.train for each in SOURCES.values()]))


def play(seed: int, folder: Path, *, elastic: bool = False) -> tuple[Counter[str], dict[str, Any], Simulation]:
    """Play one schedule; return what happened, the run, and its fleet. Raises when a promise does not hold."""
    chance = random.Random(seed)
    faults = Faults(
        delay=(0.0, chance.choice([0.0, 0.1, 0.6])),
        duplicate=chance.choice([0.0, 0.2]),
        loss=chance.choice([0.0, 0.0, 0.05]),
        reconnect=(0.2, 2.0),
    )
    slow = {name: {"slow": chance.choice([0.0, 0.5, 1.5])} for name in NAMES}
    sim = Simulation(SOURCES, folder, seed=seed, faults=faults, settings=slow)
    sim.begin(1)
    participation = "elastic" if elastic else chance.choice(["cohort", "cohort", "elastic"])
    policy = RoundPolicy(
        min_agents=1, deadline=chance.choice([2, 5]), gather_agents=chance.choice([1, 3]), max_restarts=9, extensions=20
    )
    spec = RunSpec(
        run="r", scheme="federated_median", domain=DOMAIN, participation=participation, rounds=policy, seed=seed
    )
    sim.start_run(spec)
    # In the first seconds, while rounds are open.
    seen = Counter(
        schedule_fault(sim, chance, NAMES, within=6, gone=8, returns=0.8) for _ in range(chance.randrange(1, 6))
    )
    sim.at(sim.hub.now + 30, sim.heal_everything)
    document = sim.run_until_ended("r", within=300)
    is_cohort = participation == "cohort"
    assert_promises(sim, document, SOURCES, model=is_cohort, rest=45)
    seen[document["outcome"]] += 1
    if document["outcome"] == "finished" and is_cohort:
        record = sim.record("model")
        seen["equal"] += 1
        seen["replayed"] += document["restarts"] > 0
        seen["smaller"] += len(record.cohort) < len(NAMES)
    for name in list(sim.agents):
        sim.kill_agent(name)
    return seen, document, sim


def play_all(seeds: range, root: Path) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        folder = root / "now"
        try:
            total += play(seed, folder)[0]
        except BaseException as fault:
            fault.add_note(f"seed {seed}; replay it with GLASSFLEET_SEED={seed}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
    return total


@pytest.mark.timeout(600)  # 4 s on a quiet core
@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_fleet_counts_once_and_equals_central_under_seeded_schedules(seeds: range, state_dir: Path) -> None:
    seen = play_all(seeds, state_dir)
    if len(seeds) >= BATCH:
        # Schedules that meet nothing would prove nothing.
        for what in ("equal", "replayed", "smaller", "kill-coordinator", "crash-coordinator", "amnesia"):
            assert seen[what] > 0, f"no schedule of {seeds} met {what!r}: {dict(seen)}"


@pytest.mark.parametrize("seed", range(12))
def test_elastic_run_whose_journal_begins_anew_goes_as_it_would_have_gone(
    seed: int, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, kept, _ = play(seed, state_dir / "kept", elastic=True)
    monkeypatch.setattr(checkpoint, "BOUND", 1)
    again, anew, sim = play(seed, state_dir / "anew", elastic=True)
    assert (again, facts_of(anew)) == (seen, facts_of(kept))
    kinds = Counter(entry.kind for entry in sim.journal.entries)
    assert kinds["checkpoint"] == (len(anew["rounds"]) > 1)
    assert kinds["answer"] <= len(SOURCES), "those of the last round"


def facts_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return what does not depend on the run's nonce."""
    rounds = [{key: value for key, value in each.items() if key != "task_digest"} for each in document["rounds"]]
    named = ("outcome", "reason", "cohort", "rows", "nullified", "started", "ended", "model", "summary", "agents")
    return {"rounds": rounds, **{name: document[name] for name in named}}
