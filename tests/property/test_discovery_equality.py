"""The domain found by a fleet is that of the pooled rows, and its limits enclose the quantiles they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import RESOLUTION, DiscoveryParameters, discover
from glassfleet.numerics.grids import join_small
from schemas.errors import RunFailedError
from tests.support.sample_models import search

FEATURES = ("a", "b")

KINDS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "any magnitude": lambda rng, n: rng.normal(size=n) * 10.0 ** rng.uniform(-12, 13, n),
    "integers": lambda rng, n: rng.integers(-4, 5, n).astype(np.float64),
    "narrow": lambda rng, n: rng.uniform(1000.0, 1030.0, n),
    "very narrow": lambda rng, n: 1.7e9 + rng.uniform(0, 1e3, n),
    "constant": lambda rng, n: np.full(n, rng.normal()),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, rng.choice([0.0, -0.0], n), rng.normal(size=n)),
    "edges": lambda rng, n: rng.choice([-(2.0**50), -1.5, -1.0, 0.0, 2.0**-30, 1.0, 2.0**50, 1e15], n),
}


ORDINARY = ("normal", "integers", "narrow", "constant", "mostly zero")
"""Columns whose values the rounds tell apart even when a withheld count made the coarse limits wider than needed."""


@st.composite
def fleets(
    draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS), min_rows: int = 1, empty: float = 0.0
) -> list[Dataset]:
    """Rows of two columns and a target, cut into vehicles (some empty) at random."""
    n = draw(st.integers(min_rows, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.stack([KINDS[draw(st.sampled_from(kinds))](rng, n) for _ in range(3)], axis=1)
    rows[:, :2][rng.random((n, 2)) < empty] = np.nan
    vehicle = rng.integers(0, draw(st.integers(1, 5)), n)
    return [Dataset(FEATURES, "y", rows[vehicle == v][:, :2], rows[vehicle == v][:, 2]) for v in range(5)]


def column(fleet: list[Dataset], name: str) -> NDArray[np.float64]:
    data = pool(fleet)
    values = data.y if name == "y" else data.X[:, FEATURES.index(name)]
    return np.sort(values)


@given(fleet=fleets(), seed=st.integers(0, 2**32 - 1), rounds=st.integers(2, 5))
def test_fleet_finds_the_domain_of_the_pooled_rows_when_nothing_is_withheld(
    fleet: list[Dataset], seed: int, rounds: int
) -> None:
    parameters = DiscoveryParameters(features=FEATURES, target="y", max_rounds=rounds).exact()
    order = np.random.default_rng(seed).permutation(len(fleet))
    result = discover(parameters, [fleet[i] for i in order])
    assert result == discover(parameters, [pool(fleet)])


@given(fleet=fleets(empty=0.2), seed=st.integers(0, 2**32 - 1), guarded=st.booleans())
def test_what_an_empty_cell_is_taken_for_is_that_of_the_pooled_rows_and_within_the_limits(
    fleet: list[Dataset], seed: int, guarded: bool
) -> None:
    parameters = DiscoveryParameters(features=FEATURES, target="y", missing=True).exact()
    order = np.random.default_rng(seed).permutation(len(fleet))
    empty = np.isnan(pool(fleet).X)
    if empty.all(axis=0).any():
        with pytest.raises(RunFailedError, match="no cell of column"):
            discover(parameters, fleet)
        return
    result = discover(parameters, [fleet[i] for i in order])
    assert result == discover(parameters, [pool(fleet)])
    for variable, gaps in zip(result.features, empty.T, strict=True):
        assert (variable.missing is not None) == gaps.any()
        if variable.missing is not None and variable.low < variable.high:
            values = column(fleet, variable.name)[: int((~gaps).sum())]  # NaN is sorted last
            middle = min(max(np.quantile(values, 0.5, method="inverted_cdf"), variable.low), variable.high)
            bins = min(abs(middle), variable.high - variable.low)  # two bins an octave, within the limits
            assert abs(variable.missing - middle) <= max(bins, 2.0**-30)
    # A guarded run with small counts withheld finds a domain, too, and every answer can be true.
    loose = parameters.model_copy(update={"min_count": 3, "guarded": guarded})
    with suppress(RunFailedError):
        features = search(loose, fleet)[1].model.features
        assert all(each.missing is None or each.low <= each.missing <= each.high for each in features)


@given(fleet=fleets())
def test_limits_enclose_the_quantiles_within_the_stated_bound(fleet: list[Dataset]) -> None:
    parameters = DiscoveryParameters(features=FEATURES, target="y", target_quantiles=(0.1, 0.9)).exact()
    domain = discover(parameters, fleet)
    assert domain.target is not None
    for variable in (*domain.features, domain.target):
        values = column(fleet, variable.name)
        lower, upper = np.quantile(values, parameters.quantiles_of(variable.name), method="inverted_cdf")
        if variable.low == variable.high:
            # After four rounds a bin is 1e-9 of the magnitude: what is closer than that is one value.
            assert upper - lower <= 1e-9 * max(abs(lower), abs(upper), 1e-9)
            continue
        assert variable.low <= lower
        assert variable.high >= upper
        # The bins of the last round are 1e-9 of the magnitude, which may be more.
        width = max((variable.high - variable.low) / RESOLUTION, 1e-9 * max(abs(lower), abs(upper)))
        assert lower - variable.low <= width
        assert variable.high - upper <= width


@given(fleet=fleets(), bounds=st.tuples(st.floats(-50, 0), st.floats(1, 50)))
def test_limits_stay_within_declared_bounds_and_outsiders_are_counted(
    fleet: list[Dataset], bounds: tuple[float, float]
) -> None:
    parameters = DiscoveryParameters(
        features=FEATURES, target="y", bounds={"a": bounds, "y": bounds}, input_quantiles=(0.0, 1.0)
    ).exact()
    _, done = search(parameters, fleet)
    limits = done.model.features[0]
    assert bounds[0] <= limits.low <= limits.high <= bounds[1]
    values = column(fleet, "a")
    expected = [int((values < bounds[0]).sum()), int((values > bounds[1]).sum())]
    assert done.summary["outside"].get("a", [0, 0]) == expected


@given(fleet=fleets(ORDINARY, min_rows=15), min_count=st.integers(2, 4))
def test_limits_are_displaced_by_few_ranks_when_small_counts_are_withheld(fleet: list[Dataset], min_count: int) -> None:
    fleet = [data for data in fleet if data.rows >= min_count]
    if not fleet:
        return
    parameters = DiscoveryParameters(
        features=FEATURES, target="y", input_quantiles=(0.1, 0.9), min_count=min_count, guarded=False
    )
    domain = discover(parameters, fleet)
    slack = (min_count - 1) * len(fleet)
    for variable in domain.features:
        values = column(fleet, variable.name)
        lower_rank, upper_rank = (max(1, math.ceil(q * values.size)) for q in (0.1, 0.9))
        width = (variable.high - variable.low) / RESOLUTION or 1e-9 * max(abs(variable.low), 1e-9)
        assert (values < variable.low).sum() < lower_rank + slack
        assert (values <= variable.low + width).sum() >= lower_rank - slack
        assert (values <= variable.high + width).sum() >= upper_rank - slack
        assert (values < variable.high - width).sum() < upper_rank + slack


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=40).map(lambda items: np.array(items, dtype=np.int64)),
    min_count=st.integers(0, 6),
)
def test_vehicle_joins_small_counts_without_losing_rows(counts: NDArray[np.int64], min_count: int) -> None:
    before = counts.copy()
    joined = join_small(counts, min_count)
    assert joined == ((before > 0) & (before < min_count)).sum()
    assert not ((counts > 0) & (counts < min_count)).any()
    if before.sum() >= min_count:
        assert counts.sum() == before.sum()
        assert np.abs(np.cumsum(counts) - np.cumsum(before)).max() <= max(min_count - 1, 0)
    else:
        assert counts.sum() == 0
