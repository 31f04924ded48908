"""The sums that a private run with support opens give no whole row away, where those of one without do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.schemes.tree.messages import read_task
from glassfleet.schemes.tree.params import UNIT
from glassfleet.schemes.tree.rows import training_rows
from glassfleet.schemes.tree.support import STEP
from glassfleet.schemes.tree.tree import degrees
from lab.audit.report import TOLERANCE
from lab.audit.transcript import Opened, views
from tests.support.privacy.decomposition import decomposed
from tests.support.privacy.opened_sums import ATTACKS, attacked, opened
from tests.support.privacy.transcripts import Fleet, fleet_of


@pytest.mark.parametrize(
    "left", [pytest.param({}, id="all stay", marks=pytest.mark.slow), pytest.param({"v03": 9}, id="three leave")]
)
@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, "wine") for name in ATTACKS),
        *((name, "weather_izmir") for name in ("frt", "tsk")),
        pytest.param("tree", "weather_izmir", marks=pytest.mark.slow),
        *(
            pytest.param(name, data, marks=pytest.mark.slow)
            for data in ("compactiv", "qoe", "diabetes", "simulated")
            for name in ATTACKS
        ),
    ],
)
def test_no_row_is_read_from_the_sums_of_a_private_run(name: str, data: str, left: dict[str, int]) -> None:
    result = attacked(name, fleet_of(data, 15), 3, left)
    assert result.read == 0, result


def parked(vehicles: int = 15, rows: int = 20, parking: int = 60) -> Fleet:
    """Return vehicles of which each repeats one row, as one that is parked does."""
    rng, fleet = np.random.default_rng(2), {}
    for number in range(vehicles):
        X = rng.uniform(size=(rows + 1, 4))
        y = np.sin(6.0 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2] - 0.5) + rng.normal(0.0, 0.05, rows + 1)
        often = np.append(np.arange(rows), np.full(parking, rows))
        fleet[f"v{number:02d}"] = Dataset(("a", "b", "c", "d"), "y", X[often], y[often])
    return fleet


@pytest.mark.parametrize(
    ("name", "chosen"), [("frt", {}), ("tree", {"max_rules": 8}), pytest.param("tree", {}, marks=pytest.mark.slow)]
)
def test_equal_rows_hide_nobody(name: str, chosen: dict[str, Any]) -> None:
    assert attacked(name, parked(), 3, {}, **chosen).read == 0


def test_equal_rows_that_count_give_rows_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(hashes: Any) -> Any:
        return np.ones(hashes.shape, dtype=np.bool_)

    monkeypatch.setattr("glassfleet.schemes.tree.rows.is_first", every)
    assert attacked("tree", parked(), 3, {}, max_rules=8).read > 0


def test_a_decomposition_finds_the_rows_of_many_sums() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(60), rng.uniform(size=(60, 15))])
    sums = np.einsum("mn,ni,nj->mij", rng.uniform(size=(90, 60)), rows, rows)
    rank, candidates = decomposed(sums, starts=300)
    assert rank == len(rows)
    assert near(candidates, rows[:, 1:]) > 50


def wide(vehicles: int = 8, rows: int = 40, inputs: int = 60) -> Fleet:
    """Return vehicles with many inputs and few rows."""
    rng, fleet = np.random.default_rng(1), {}
    slopes, mixing = rng.normal(size=inputs), rng.normal(size=(inputs // 4, inputs)) / 2.0
    for number in range(vehicles):
        X = rng.normal(size=(rows, inputs // 4)) @ mixing + rng.normal(size=(rows, inputs))
        y = np.tanh(X @ slopes / 5.0) + 0.3 * X[:, 0] * X[:, 1] + rng.normal(0.0, 0.2, rows)
        fleet[f"v{number:02d}"] = Dataset(tuple(f"x{place}" for place in range(inputs)), "y", X, y)
    return fleet


def below(some: list[Opened], fleet: Fleet) -> Iterator[tuple[Any, Any]]:
    """Yield, of each node of tree, the columns of the rows in it, and all product sums of it and of nodes below it."""
    for members, view in views(some).items():
        asked = [(read_task(task), sums) for task, sums in view if task.kind in {"bands", "joint"}]
        if not asked:
            continue
        question, tree = asked[-1][0], asked[-1][0].tree
        products: list[tuple[set[int], Any]] = []  # leaves that share the rows
        for one, sums in asked:
            own = zip(one.leaves, sums["own"], strict=True) if "own" in sums else ()
            pairs = zip(one.tree.overlaps, sums["gram"], strict=True) if "gram" in sums else ()
            products += [*(({leaf}, each) for leaf, each in own), *((set(pair), each) for pair, each in pairs)]
        parts = [training_rows(fleet[agent], question.domain, 1, question.holdout) for agent in members]
        inputs = np.concatenate([part.inputs[:, : part.training] for part in parts], axis=1)
        reached = degrees(tree, inputs, STEP)
        for node in sorted({leaf for leaves, _ in products for leaf in leaves}):
            under = {node}
            under |= {each for each in range(1, tree.size) if tree.parent(each) in under}
            lines = np.array([each for leaves, each in products if leaves <= under and each[0]], dtype=np.float64)
            rows = inputs[list(question.regressors)][:, reached[node] > 0.0].T
            yield rows, unpack_symmetric(lines, question.columns) / UNIT


@pytest.mark.slow
@pytest.mark.parametrize("data", ["wide", "weather_izmir", "mortgage"])
def test_sums_of_a_node_and_of_those_below_it_span_fewer_products_than_it_has_rows(data: str) -> None:
    fleet = wide() if data == "wide" else fleet_of(data, 15)
    some, _ = opened("tree", fleet, 3, {} if data == "wide" else {"v03": 9})
    shares = [decomposed(sums, starts=1)[0] / len(rows) for rows, sums in below(some, fleet)]
    assert len(shares) > 10
    assert max(shares) < 0.75


def near(candidates: Any, rows: Any) -> int:
    """Return how many of `rows` are found to a thousandth of the range, as the audit counts."""
    return int(np.count_nonzero(np.abs(rows[:, None] - candidates[None]).max(axis=2).min(axis=1) < TOLERANCE))


@pytest.mark.parametrize("data", [pytest.param("weather_izmir", marks=pytest.mark.slow), "wine"])
def test_without_support_rows_are_read(data: str) -> None:
    result = attacked("tree", fleet_of(data, 15), 0, {}, max_rules=16 if data == "weather_izmir" else 4)
    assert result.read > 0.05 * result.rows, result


@pytest.mark.parametrize("data", [pytest.param("weather_izmir", marks=pytest.mark.slow), "wine"])
def test_bands_and_pairs_of_too_few_rows_give_rows_away(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def enough(parts: list[Any], least: int) -> Any:
        return np.ones(parts[0].shape, dtype=bool)

    monkeypatch.setattr("glassfleet.schemes.tree.support.holds", enough)
    result = attacked("tree", fleet_of(data, 15), 3, {}, max_rules=8 if data == "weather_izmir" else 2)
    assert result.read > 20, result


@pytest.mark.parametrize(("data", "least"), [pytest.param("qoe", 5, marks=pytest.mark.slow), ("wine", 0)])
def test_without_draws_inputs_that_say_nearly_the_same_give_rows_away(
    data: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassfleet.schemes.tree.client.draws", lambda hashes, about: np.ones(len(hashes)))
    result = attacked("tree", fleet_of(data, 15), 3, {})
    assert result.read > least, result
