"""Two runs that ask the same ask different tasks: an answer to one is never counted in the other."""

from __future__ import annotations

import numpy as np

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link
from coordinator.core import Coordinator
from coordinator.engine import learning
from coordinator.engine.collecting import Openly
from coordinator.engine.state import Stored
from coordinator.journal.memory import MemoryJournal
from coordinator.main import assemble
from coordinator.runs.defaults import default_engine
from coordinator.specification.run import RunSpec
from edge_agent.messages.decoder import request_seen
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import pooled_domain
from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.messages import Request

X = np.random.default_rng(1).random((200, 2))
DOMAIN = pooled_domain(("a", "b"), "y", X, X[:, 0])


def coordinator(journal: MemoryJournal) -> Coordinator:
    return assemble("fleet", MemoryTransport(MemoryHub(), Link("mqtt://m", "c")), journal, default_engine())


def test_coordinator_draws_a_nonce_for_each_run_and_keeps_it_over_a_restart():
    journal = MemoryJournal()
    one = coordinator(journal)
    for run in ("r1", "r2"):
        one.start_run(RunSpec(run=run, scheme="frt", domain=DOMAIN, nonce="0" * 32))
    states = [one.runs.live.get(run) for run in ("r1", "r2")]
    nonces = [state.spec.nonce for state in states if state]
    assert len(set(nonces)) == 2
    assert all(len(nonce) == 32 and nonce != "0" * 32 for nonce in nonces)
    journal.close()
    again = coordinator(MemoryJournal(journal))
    assert [state.spec.nonce for run in ("r1", "r2") if (state := again.runs.live.get(run))] == nonces


def test_tasks_of_two_runs_differ_when_they_ask_the_same():
    scheme = catalogue.load("frt")
    params = scheme.Parameters()
    levels = [
        learning.start(scheme.server, params, DOMAIN, 0, nonce, 0, Openly()) for nonce in ("a" * 32, "b" * 32, "")
    ]
    assert len({level.digest for level in levels}) == 3
    assert len({Task(task.scheme, task.kind, task.body).digest for task in (level.task for level in levels)}) == 1


def test_nonce_reaches_every_level_and_the_vehicle():
    scheme = catalogue.load("frt")
    level = learning.start(scheme.server, scheme.Parameters(nullify=False), DOMAIN, 0, "a" * 32, 0, Openly())
    rng = np.random.default_rng(0)
    answer = scheme.client.contribute(level.task, Dataset(("a", "b"), "y", X, X[:, 0]), rng)
    store = {level.digest: {"v1": Stored("0" * 64, answer.rows, answer.nullified, answer)}}
    grown = learning.advance(scheme.server, (level,), ["v1"], store, Openly())
    assert grown.levels[-1].number == 2
    assert grown.levels[-1].task.nonce == "a" * 32
    task = grown.levels[-1].task
    request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
    wire = Envelope.from_bytes(Envelope(fleet="f", body=request, run="r", scheme="frt").to_bytes(), fleet="f")
    seen = request_seen(wire)
    assert Task.from_value(seen.request.task).digest == task.digest
