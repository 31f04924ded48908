"""A scheme that others wrote, in one folder, learns over a real broker; nothing else of Glassfleet is touched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glassfleet.schemes
from broker.servers.child import ChildBroker
from coordinator.config import load_config
from coordinator.main import build
from coordinator.service import Service
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.fleet import Fleet
from glassfleet import catalogue
from schemas.record import ModelRecord
from tests.support.cloud import serving
from tests.support.fake_coordinator import source
from tests.support.processes import eventually
from tests.support.simulation import central_digest

TOY = Path(__file__).parents[2] / "conformance" / "toy"
NAME = "federated_mean"
AGENTS = ("v1", "v2", "v3")


@pytest.fixture(params=["folder beside ours", "entry point of another package"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Offer the toy in one of the two ways that the catalogue knows."""
    if request.param == "folder beside ours":
        monkeypatch.setattr(glassfleet.schemes, "__path__", [*glassfleet.schemes.__path__, str(TOY)])
    else:
        # What pip leaves behind when it installs a package that says so in its pyproject.toml.
        installed = tmp_path / "site" / f"{NAME}-1.0.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
        (installed / "entry_points.txt").write_text(f"[{catalogue.GROUP}]\n{NAME} = {NAME}\n")
        monkeypatch.syspath_prepend(installed.parent)
        monkeypatch.syspath_prepend(TOY)
    catalogue._modules.cache_clear()
    catalogue._reason.cache_clear()
    yield request.param
    catalogue._modules.cache_clear()
    catalogue._reason.cache_clear()
    sys.modules.pop(f"glassfleet.schemes.{NAME}", None)


@pytest.fixture
def service(broker: ChildBroker, way: str, tmp_path: Path) -> Iterator[Service]:
    config = load_config(broker=broker.url, fleet=fleet_of(way), state_dir=tmp_path / "cloud", api=False)
    with serving(build(config)) as made:
        yield made


def fleet_of(way: str) -> str:
    """A fleet of its own for every test: the broker is shared and remembers."""
    return f"toy-{way.split(maxsplit=1)[0]}"


def test_fleet_learns_a_scheme_that_lies_in_one_folder(
    broker: ChildBroker, way: str, service: Service, tmp_path: Path
) -> None:
    sources = {name: source(seed) for seed, name in enumerate(AGENTS)}
    with Fleet(sources, broker=broker.url, state_dir=tmp_path / "vehicles", fleet=fleet_of(way)):
        policy = RoundPolicy(min_agents=3, gather_agents=3, deadline=60.0)
        spec = RunSpec(scheme=NAME, policy=policy, model="m")
        run = service.call(lambda coordinator: coordinator.start_run(spec))
        eventually(lambda: service.call(lambda coordinator: coordinator.runs.live.get(run)) is None)
    document = service.call(lambda coordinator: coordinator.runs.document(run))
    assert (document["outcome"], document["cohort"]) == ("finished", list(AGENTS)), document["reason"]
    stored = service.call(lambda coordinator: coordinator.registry.versions("m"))[-1]
    record = ModelRecord.from_bytes(stored.record)
    assert record.scheme == NAME
    assert record.digest == central_digest(record, sources)
