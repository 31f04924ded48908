"""Fleets and agents over every broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.servers.process import ChildBroker
from coordinator.config import CoordinatorConfig
from coordinator.main import build
from coordinator.process.service import Service
from coordinator.specification.run import RoundPolicy, RunSpec
from lab.fleet import Fleet
from schemas.record import ModelRecord
from tests.support.agent_bench import source
from tests.support.cloud import serving
from tests.support.processes import eventually
from tests.support.schedules import central_digest
from tests.support.transports import mark_of, start_broker

AGENTS = ("v1", "v2", "v3", "v4")
SMALL = 4 * 1024
"""Bytes of a message: requests, answers and the model travel in parts."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=mark_of(name)) for name in ("embedded", "mosquitto-5", "mosquitto-3.1.1", "nats")],
)
def broker(request, tmp_path_factory) -> Iterator[tuple[str, ChildBroker]]:
    running = start_broker(request.param, tmp_path_factory.mktemp("broker"))
    assert running is not None
    yield {"mosquitto-5": "5", "mosquitto-3.1.1": "3.1.1"}.get(request.param, "auto"), running
    running.stop()


@pytest.fixture
def settings(broker, fleet_name) -> dict[str, Any]:
    """What coordinator and agents are both told."""
    protocol, running = broker
    return {"broker": running.url, "fleet": fleet_name, "max_message_bytes": SMALL, "protocol": protocol}


@pytest.fixture
def cloud(settings, tmp_path) -> Service:
    """A coordinator that does not serve yet."""
    return build(CoordinatorConfig.load(**settings, state_dir=tmp_path / "cloud", api=False))


def test_fleet_that_met_in_any_order_learns_the_central_model_over_every_broker(cloud, settings, tmp_path: Path):
    sources = {name: source(seed, count=200) for seed, name in enumerate(AGENTS)}

    def fleet(*names: str) -> Fleet:
        return Fleet({name: sources[name] for name in names}, state_dir=tmp_path / "vehicles", **settings)

    with fleet("v1", "v2") as early:
        eventually(lambda: all(agent.transport.is_connected for agent in early.agents.values()))
        with serving(cloud) as service:
            eventually(lambda: set(service.call(lambda coordinator: coordinator.fleet.offers())) >= {"v1", "v2"})
            spec = RunSpec(
                scheme="frt",
                parameters={"nullify": False, "min_rows": 1, "max_depth": 3},
                rounds=RoundPolicy(min_agents=3, gather_agents=2, deadline=60.0),
                model="m",
            )
            run = service.call(lambda coordinator: coordinator.start_run(spec))
            eventually(lambda: len(_accepted(service, run)) == 2)
            with fleet("v3"):  # never seen before: it answers the round that is open already
                eventually(lambda: service.call(lambda coordinator: coordinator.runs.live.get(run)) is None)
            document = service.call(lambda coordinator: coordinator.runs.document(run))
            assert (document["outcome"], document["cohort"]) == ("finished", ["v1", "v2", "v3"]), document["reason"]
            with fleet("v4") as late:  # never seen before: it gets the model that is there already
                kept = late.agents["v4"].config.directory / "models" / "m.json"
                eventually(kept.exists)
                record = ModelRecord.from_bytes(kept.read_bytes())
    assert record.cohort == ["v1", "v2", "v3"]
    assert kept.stat().st_size > SMALL
    assert record.digest == central_digest(record, sources)


def _accepted(service: Service, run: str) -> tuple[str, ...]:
    state = service.call(lambda coordinator: coordinator.runs.live.get(run))
    return () if state is None else state.accepted
