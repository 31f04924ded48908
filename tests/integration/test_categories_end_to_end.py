"""Columns of text from a file at a vehicle to the published model: the fleet learns what one machine would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog

from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source, read_source
from glassfleet.data.dataset import Dataset
from tests.support.simulation import Simulation, central_digest

FUELS = {"v1": ("petrol", "diesel"), "v2": ("petrol", "gas"), "v3": ("diesel", "gas")}
"""No vehicle has seen all of them."""


def sources(folder: Path) -> dict[str, Source]:
    found = {}
    for seed, (name, fuels) in enumerate(FUELS.items()):
        rng = np.random.default_rng(seed)
        lines = ["speed,fuel,use"]
        for _ in range(120):
            speed, fuel = rng.uniform(0, 100), fuels[int(rng.integers(0, 2))]
            lines.append(f"{speed:.2f},{fuel},{'van' if fuel == 'diesel' and speed < 60 else 'car'}")
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        found[name] = read_source(path, labels=True, categories=True)
    return found


def with_categories(source: Source, categories: dict[str, tuple[str, ...]]) -> Source:
    """Return the rows as positions among the fleet's categories, as one machine with all files would have them."""
    data = source.train
    X = data.X.copy()
    for name, own in data.categories.items():
        at = data.features.index(name)
        X[:, at] = [categories[name].index(own[int(place)]) for place in data.X[:, at]]
    return Source(Dataset(data.features, data.target, X, data.y, categories=dict(categories)), source.test)


def run_spec(scheme: str, **parameters: object) -> RunSpec:
    policy = RoundPolicy(deadline=20.0, gather_agents=3, gather_timeout=30, min_agents=3, on_missed_quorum="fail")
    return RunSpec(
        run="r1",
        scheme=scheme,
        model="m",
        parameters=parameters,
        policy=policy,
        participation="elastic" if scheme in {"dp_tree", "fedga"} else "cohort",
    )


def learned(folder: Path, there: dict[str, Source], spec: RunSpec) -> tuple[Simulation, dict[str, object]]:
    fleet = Simulation(there, folder)
    fleet.start_coordinator()
    for name in there:
        fleet.start_agent(name)
    fleet.advance(2.0)
    fleet.start_run(spec)
    return fleet, fleet.run_until_ended("r1", within=600.0)


def test_fleet_learns_from_text_columns_what_one_machine_learns_from_all_files(tmp_path: Path) -> None:
    there = sources(tmp_path)
    fleet, ended = learned(tmp_path, there, run_spec("dp_tree", noise="none"))
    assert ended["outcome"] == "finished", ended
    record = fleet.record("m")
    assert record is not None
    (fuel,) = [each for each in record.document["domain"]["features"] if each["name"] == "fuel"]
    assert fuel["categories"] == ["diesel", "gas", "petrol"]
    assert sorted(record.cohort) == sorted(FUELS)
    pooled = {name: with_categories(each, {"fuel": tuple(fuel["categories"])}) for name, each in there.items()}
    assert record.digest == central_digest(record, pooled)


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("scheme", ["frbc", "frt"])
def test_vehicle_refuses_by_name_when_the_scheme_takes_no_text(tmp_path: Path, scheme: str) -> None:
    with structlog.testing.capture_logs() as lines:
        _, ended = learned(tmp_path, sources(tmp_path), run_spec(scheme))
    assert ended["outcome"] == "failed"
    (closed,) = [each for each in lines if each["event"] == "round-closed"]
    assert set(closed["dropped"]) == set(FUELS)
    assert all("column 'fuel' holds text" in why for why in closed["dropped"].values())
