"""From rows to a model's inputs: numbers, categories, empty cells. The same as in learning; no I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.categories import code_of
from glassfleet.data.cells import MISSING, PAIRS, as_number, is_empty
from glassfleet.data.domain import Domain, Variable


def inputs_of(row: Mapping[str, Any], domain: Domain) -> dict[str, float]:
    """Return a row's inputs by name, in the model's order; a category becomes its position, an empty cell NaN.

    Raises
    ------
    KeyError
        The row lacks a field.
    ValueError, TypeError
        A value is no finite number, or no text where the model takes one.
    """
    inputs = {variable.name: _number(row[variable.name], variable) for variable in domain.features}
    for variable in domain.features:
        value = inputs[variable.name]
        if not math.isfinite(value) and not (variable.may_be_empty and math.isnan(value)):
            raise ValueError(f"{variable.name!r} is {value}, not a finite number")
    return inputs


def _number(value: Any, variable: Variable) -> float:
    if variable.may_be_empty and is_empty(value):
        value = MISSING if variable.categories else math.nan
    if variable.categories:
        if isinstance(value, bool):  # the word that the fleet has for it
            words = (text for text in variable.categories for pair in PAIRS if text.lower() == pair[not value])
            value = next(words, value)
        if not isinstance(value, str):
            raise ValueError(f"{variable.name!r} is {str(value)[:40]}, and the model takes a text")
        value = code_of(value, variable.categories)
    elif value is None:
        raise ValueError(f"{variable.name!r} is empty, and the model takes a number")
    return as_number(value)


def vector(inputs: Mapping[str, float]) -> NDArray[np.float64]:
    """Return inputs as a row, shape (F,)."""
    return np.array(list(inputs.values()), dtype=np.float64)
