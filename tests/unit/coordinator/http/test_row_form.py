"""The row that is typed or pasted on the page of forecasts: read as everywhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.http.dashboard.model_pages import _row
from glassfleet.data.domain import Domain, Variable
from schemas.errors import DataError

FEATURES = (
    Variable(name="speed", low=-10.0, high=10.0),
    Variable(name="road", low=0.0, high=1.0, categories=("dry", "wet")),
    Variable(name="load", low=0.0, high=1.0, missing=0.5),
)
DOMAIN = Domain(features=FEATURES, target=Variable(name="rate", low=0.0, high=1.0))
LOADED: Any = SimpleNamespace(model=SimpleNamespace(domain=DOMAIN), example=(1.0, 0.0, 0.25))


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ({}, {"speed": 1.0, "road": "dry", "load": 0.25}),
        ({"x0": "−2.5", "x1": "wet", "x2": ""}, {"speed": -2.5, "road": "wet", "load": ""}),
        ({"x2": "yes"}, {"speed": 1.0, "road": "dry", "load": 1.0}),
        ({"row": "speed,road,load\n3,wet,no"}, {"speed": 3.0, "road": "wet", "load": 0.0}),
        ({"row": '{"load": null, "road": "dry", "speed": 4, "more": 1}'}, {"speed": 4.0, "road": "dry", "load": ""}),
    ],
)
def test_row_form_reads_numbers_words_and_empty_cells(query: dict[str, str], row: dict[str, Any]) -> None:
    assert _row(LOADED, query) == row


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ({"x0": "fast"}, "speed must be a number"),
        ({"row": "1,dry"}, "2 values for 3 columns"),
        ({"row": '{"speed": 1}'}, "the row has no 'road'"),
        ({"row": "{1}"}, "not a JSON object"),
    ],
)
def test_row_form_says_what_is_wrong(query: dict[str, str], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        _row(LOADED, query)
