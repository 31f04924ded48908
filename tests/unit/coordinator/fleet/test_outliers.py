"""A vehicle whose score is far out is named: when it is, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.fleet.outliers import far_out


def fleet(*others: tuple[float, float | None], metric: str = "rmse", sound: int = 4) -> dict[str, dict[str, Any]]:
    """Return what sound vehicles send (score 0.5, the constant's 1.2; of F1: 0.9 and 0.4), and others their own."""
    usual = (0.9, 0.4) if metric == "f1" else (0.5, 1.2)
    pairs = [*[usual] * sound, *others]
    return {
        f"v{number}": {"metric": metric, "federated": score, "constant": constant}
        for number, (score, constant) in enumerate(pairs, 1)
    }


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (fleet((40.0, 1.2)), ["v5"]),
        (fleet((1.6, 1.5), (9.0, 2.0)), ["v6", "v5"]),
        (fleet((1.4, 1.3)), []),  # not three times the median
        (fleet((40.0, 41.0)), []),  # its target varies more: so does what forecasts without inputs
        (fleet((40.0, None)), []),  # earlier software does not tell of the constant
        (fleet((40.0, 1.2), sound=3), []),  # of four nobody can tell who is wrong
        (fleet((0.1, 0.3), metric="f1"), ["v5"]),
        (fleet((0.1, 0.05), metric="f1"), []),
        (fleet((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (2.0, 1.0), sound=0), ["v5"]),
        (fleet((40.0, 1.2)) | {"v9": {"metric": "f1", "federated": 0.1, "constant": 0.9}}, ["v5"]),
        ({}, []),
    ],
)
def test_vehicle_is_named_when_its_error_is_far_above_the_median_and_above_its_constants(
    sent: dict[str, dict[str, Any]], named: list[str]
) -> None:
    assert [line.partition(":")[0] for line in far_out(sent)] == named


def test_line_says_what_the_numbers_are_of_when_a_score_is_far_out() -> None:
    assert far_out(fleet((0.1, 0.3), metric="f1")) == [
        "v5: its F1 is 0.1, the median vehicle's is 0.9; always forecasting the most frequent class would have 0.3"
    ]
