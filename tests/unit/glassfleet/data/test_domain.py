"""Domains: what they refuse, and the scaling they define."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from glassfleet.data.domain import Domain, Variable, pooled_domain

SPEED = Variable(name="speed", low=0.0, high=100.0, unit="km/h")
FLAT = Variable(name="flat", low=5.0, high=5.0)
TARGET = Variable(name="y", low=-1.0, high=3.0)


def test_domain_scales_to_the_unit_interval_and_clips_what_is_outside() -> None:
    domain = Domain(features=(SPEED, FLAT), target=TARGET)
    X = np.array([[0.0, 5.0], [50.0, 4.0], [100.0, 6.0], [-20.0, 5.0], [900.0, 5.0]])
    assert domain.scale_inputs(X).tolist() == [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    assert domain.scale_target(np.array([-1.0, 1.0, 7.0])).tolist() == [0.0, 0.5, 1.0]
    assert domain.unscale_target(np.array([0.0, 0.5, 1.0])).tolist() == [-1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    "fields",
    [
        {"features": (), "target": TARGET},
        {"features": (SPEED, SPEED), "target": TARGET},
        {"features": (SPEED,)},
        {"features": (SPEED,), "target": TARGET, "classes": ("a",)},
        {"features": (SPEED,), "target": TARGET, "extra": 1},
    ],
)
def test_domain_refuses_what_does_not_fit_together(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Domain(**fields)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0), (-1.7e308, 1.7e308)])
def test_variable_refuses_limits_that_define_no_scale(low: float, high: float) -> None:
    with pytest.raises(ValidationError):
        Variable(name="x", low=low, high=high)


def test_pooled_domain_takes_quantiles_of_inputs_and_extremes_of_the_target() -> None:
    X = np.arange(1001.0)[:, None]
    domain = pooled_domain(["x"], "y", X, X[:, 0] ** 2)
    assert (domain.features[0].low, domain.features[0].high) == pytest.approx((25.0, 975.0))
    assert domain.target == Variable(name="y", low=0.0, high=1e6)


def test_domain_finds_a_variable_by_name() -> None:
    domain = Domain(features=(SPEED, FLAT), target=TARGET)
    assert domain.variable("flat") == FLAT
    assert domain.variable("y") == TARGET
    with pytest.raises(KeyError, match="no variable 'nothing'"):
        domain.variable("nothing")
