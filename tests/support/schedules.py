"""Seeded faults for a simulated fleet, and what must hold of a run that met them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.model.baseline import recorded
from schemas.codec import document_digest
from schemas.log import Log
from schemas.record import ModelRecord
from schemas.rounds import Window
from tests.support.memory_broker import Saved
from tests.support.simulation import Simulation

KINDS = (
    *("kill-agent", "crash-agent", "kill-coordinator", "crash-coordinator"),
    *("partition", "cut", "broker", "amnesia"),
)


def schedule_fault(
    sim: Simulation, chance: random.Random, names: Sequence[str], *, within: float, gone: float, returns: float
) -> str:
    """Plan one fault of any kind; return its kind.

    Parameters
    ----------
    names : sequence of str
        The vehicles.
    within : float
        Seconds from now, at most, until it strikes.
    gone : float
        Seconds, at most, until what it struck is back.
    returns : float
        How often a killed vehicle comes back, [0, 1]; the coordinator always does.
    """
    when = sim.hub.now + chance.uniform(0, within)
    back = when + chance.uniform(0.05, gone)
    name, kind = chance.choice(names), chance.choice(KINDS)
    whom = chance.choice([f"gf-sim-agent-{name}", "coordinator"])
    match kind:
        case "kill-agent":
            sim.at(when, lambda: sim.kill_agent(name))
        case "crash-agent":
            count = chance.randrange(1, 4)
            sim.at(when, lambda: sim.crash_agent_at_publish(name, count))
        case "kill-coordinator":
            sim.at(when, sim.kill_coordinator)
        case "crash-coordinator":
            count = chance.randrange(1, 9)
            sim.at(when, lambda: sim.crash_coordinator_at_publish(count))
        case "partition":
            sim.at(when, lambda: sim.hub.partition([whom]))
            sim.at(back, sim.hub.heal)
        case "cut":
            sim.at(when, lambda: sim.hub.drop_link(whom))
        case _:
            sim.at(when, sim.stop_broker)
            sim.at(back, lambda: sim.start_broker(None if kind == "broker" else Saved()))
    if chance.random() < returns:
        sim.at(back, lambda: sim.start_agent(name))
    sim.at(back, sim.start_coordinator)
    return kind


def assert_promises(
    sim: Simulation, document: Mapping[str, Any], sources: Mapping[str, Source], *, model: bool, rest: float
) -> None:
    """Check an ended run: its end has a name, nothing counted twice, its model is central, nothing is left over.

    Parameters
    ----------
    model : bool
        Its model must be the central one of its cohort.
    rest : float
        Seconds in which the fleet comes to rest.
    """
    assert document["outcome"] in {"finished", "failed"}
    assert document["outcome"] == "finished" or document["reason"]
    assert sim.counted_twice() == [], "counted twice"
    if model and document["outcome"] == "finished":
        record = sim.record("model")
        assert record.digest == central_digest(record, sources), "not the central model of its cohort"
    sim.advance(rest)
    assert sim.pending() == dict.fromkeys(sources, 0), "answers without a receipt"
    assert sim.leaked() == [], "retained topics that stand for nothing"


def central_digest(record: ModelRecord, sources: Mapping[str, Source]) -> str:
    """Return the digest of the model that one machine learns from the pooled rows of the record's cohort.

    The typical row in the record must be the one that comes with it.
    """
    scheme = catalogue.load(record.scheme)
    parameters = scheme.Parameters.model_validate(record.document["parameters"])
    domain = Domain.from_document(record.document["domain"])
    most = record.parameters.get("max_rows_each", 0)
    window = Window.model_validate(named) if (named := record.parameters.get("window")) else None
    rows = pool([simulation.counted_rows(sources[name].train, domain, most, window) for name in record.cohort])
    # After a restart of a private run its decisions rest on the groups of both attempts.
    withheld = record.parameters.get("withheld", ())
    outcome = simulation.central(scheme, parameters, domain, rows, withheld=withheld)
    assert record.parameters.get("reference") == recorded(outcome.summary).get("reference")
    return document_digest(outcome.model.to_document())


def train_only(data: Dataset) -> Source:
    """Return a vehicle that learns from these rows and has none to test with."""
    return Source(data, Dataset(data.features, data.target, data.X[:0], data.y[:0]))


@contextmanager
def quiet() -> Iterator[None]:
    """Let coordinators and vehicles of this process tell nothing meanwhile."""
    former, Log.write = Log.write, lambda *_: None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        Log.write = former
        structlog.reset_defaults()
