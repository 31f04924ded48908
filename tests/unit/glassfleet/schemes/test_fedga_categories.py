"""Columns of text: read at a vehicle, frozen, their categories found federatedly, used by a run and its evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.runs.defaults import discover as discovery_of
from edge_agent.models.evaluation import Evaluator
from edge_agent.sources import read_source
from glassfleet.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError
from glassfleet.local import federated
from glassfleet.scheme import Contribution
from schemas.errors import DataError, RunFailedError

RNG = np.random.default_rng(0)


def _file(
    folder: Path, name: str, fuels: tuple[str, ...], *, rows: int = 60, seed: int = 0, number: bool = False
) -> Path:
    rng = np.random.default_rng(seed)
    lines = ["speed,fuel,split,use"]
    for row in range(rows):
        speed, fuel = rng.uniform(0, 100), fuels[int(rng.integers(0, len(fuels)))]
        van = fuel == "diesel" and speed < 60
        use = f"{speed / 10 + 5 * (fuel == 'diesel'):.3f}" if number else ("van" if van else "car")
        lines.append(f"{speed:.2f},{fuel},{'test' if row % 5 == 0 else 'train'},{use}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_source_reads_text_as_positions_among_its_categories(tmp_path: Path) -> None:
    path = _file(tmp_path, "v", ("petrol", "diesel"))
    source = read_source(path, labels=True, categories=True)
    assert source.train.categories == source.test.categories == {"fuel": ("diesel", "petrol")}
    assert set(source.train.X[:, 1]) == {0.0, 1.0}
    assert (source.train.rows, source.test.rows) == (48, 12)
    assert set(source.train.y) == {"car", "van"}
    with pytest.raises(DataError, match="fuel"):
        read_source(path, labels=True)
    with pytest.raises(DataError, match="use"):
        read_source(path, categories=True)  # a target of text that is not said to be a class


def _parts(folder: Path, **options: Any) -> dict[str, Dataset]:
    texts = (("diesel", "petrol"), ("diesel", "electric"), ("gas", "petrol"))
    return {
        f"v{n}": read_source(
            _file(folder, f"v{n}", fuels, seed=n, **options), labels=not options.get("number"), categories=True
        ).train
        for n, fuels in enumerate(texts)
    }


@pytest.mark.parametrize("number", [False, True])
def test_fleet_finds_categories_and_whether_the_target_is_a_class(tmp_path: Path, number: bool) -> None:
    parts = _parts(tmp_path, number=number)
    server, wanted = discovery_of(("speed", "fuel"), "use", {}, load("fedga"))
    assert server is not None
    domain = discover(wanted, list(parts.values()))
    assert domain.variable("fuel").categories == ("diesel", "electric", "gas", "petrol")
    assert (domain.variable("fuel").low, domain.variable("fuel").high) == (0.0, 3.0)
    if number:
        low, high = (f([f(part.y) for part in parts.values()]) for f in (min, max))
        assert domain.target is not None
        assert low - 0.2 < domain.target.low <= low + 2.0
        assert high - 2.0 <= domain.target.high < high + 0.2
        assert domain.classes == ()
    else:
        assert domain.classes == ("car", "van")
        assert domain.target is None
    again = Domain.from_document(domain.to_document())
    assert again == domain


def test_category_stays_at_home_when_it_is_rare() -> None:
    codes = np.array([0.0] * 5 + [1.0] * 2 + [2.0] * 9)
    data = Dataset(("f",), "y", codes[:, None], np.arange(16.0), categories={"f": ("a", "rare", "z")})
    wanted = DiscoveryParameters(features=("f",), target="y", categories=True)
    assert discover(wanted, [data]).variable("f").categories == ("a", "z")
    assert discover(wanted.exact(), [data]).variable("f").categories == ("a", "rare", "z")
    few = Dataset(("f",), "y", codes[5:7, None], np.arange(2.0), categories={"f": ("a", "rare", "z")})
    with pytest.raises(RunFailedError, match="no-categories"):
        discover(wanted, [few])


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"other": ["a"]},
        {"f": ["b", "a"]},
        {"f": ["a", "a"]},
        {"f": [""]},
        {"f": [1]},
        {"f": list("abcdefgh")},
    ],
)
def test_server_refuses_categories_that_cannot_be_true(told: Any) -> None:
    data = Dataset(("f",), "y", np.zeros((6, 1)), np.arange(6.0), categories={"f": ("a",)})
    step = DISCOVERY.server.start(DiscoveryParameters(features=("f",), target="y", categories=True))
    given = DISCOVERY.client.contribute(step.task, data, RNG)
    DISCOVERY.server.check(step.task, given)
    with pytest.raises(ContributionError):
        DISCOVERY.server.check(step.task, Contribution(given.kind, given.rows, given.sums, {"categories": told}))


def test_vehicle_scores_its_own_tree_when_the_model_is_a_population(tmp_path: Path) -> None:
    path = _file(tmp_path, "v", ("diesel", "petrol"), rows=300)
    source = read_source(path, labels=True, categories=True)
    scheme: Any = load("fedga")
    _, wanted = discovery_of(("speed", "fuel"), "use", {}, scheme)
    domain = discover(wanted, [source.train])
    model = federated(scheme, scheme.Parameters(generations=3, population=4), domain, {"v": source.train}).model

    class Record:
        scheme = "fedga"
        document = model.to_document()

    record: Any = Record()
    *_, scores = Evaluator(source.train, source.test).steps(record)
    assert scores is not None
    assert scores.metric == "f1"
    assert scores.federated > 0.9  # the population alone would say "car" to all: below 0.5
    assert scores.local > 0.9
