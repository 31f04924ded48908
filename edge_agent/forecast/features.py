"""From rows to a model's inputs: memory and categories. The same code as in learning; no I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.categories import code_of
from glassfleet.data.cells import MISSING, PAIRS, as_number, is_empty
from glassfleet.data.domain import Domain
from glassfleet.data.lags import Recollection

KEPT_ROWS = 600
"""Rows in memory, ten minutes of one a second, so that a new model with a longer memory need not wait for them."""


class LiveFeatures:
    """What the vehicle has seen lately, as the inputs of whichever model is served.

    Parameters
    ----------
    observed : str or None
        Field of a row with the target's present value, for models that remember the target.
    """

    def __init__(self, observed: str | None = None) -> None:
        self._observed = observed
        self._rows: deque[tuple[Mapping[str, Any], float | None]] = deque(maxlen=KEPT_ROWS)
        self._domain: Domain | None = None
        self._recollection: Recollection | None = None

    def serve(self, domain: Domain) -> None:
        """Give inputs for a model of `domain` from now on; its memory is filled from the rows seen so far."""
        self._domain = domain
        self._recollection = None if domain.memory is None else Recollection(domain.memory)
        if self._recollection is not None:
            for row, observed in self._rows:
                try:
                    self._recollection.push(self._numbers(row), observed=observed)
                except (KeyError, ValueError):
                    self._recollection.clear()  # seen under another declaration; what follows counts

    def push(self, row: Mapping[str, Any]) -> dict[str, float] | None:
        """Take a row; return the inputs by name, in the model's order.

        Returns
        -------
        dict or None
            None: there is no model, or its memory is not full yet.

        Raises
        ------
        KeyError
            The row lacks a field.
        ValueError, TypeError
            A value is no finite number, no text where the model takes one, or comes out of order. The row is not taken.
        """
        observed = None if self._observed is None else float(row[self._observed])
        if self._domain is None:
            self._rows.append((row, observed))
            return None
        numbers = self._numbers(row)
        # Kept only if it could be taken, and before it is known whether the drive is old enough.
        full = numbers if self._recollection is None else self._recollection.push(numbers, observed=observed)
        self._rows.append((row, observed))
        if full is None:
            return None
        inputs = {name: float(full[name]) for name in self._domain.names}
        for name, value in inputs.items():
            may_be_empty = self._domain.variable(name).missing is not None
            if not np.isfinite(value) and not (may_be_empty and np.isnan(value)):
                raise ValueError(f"{name!r} is {value}, not a finite number")
        return inputs

    def _numbers(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Return the columns that the model needs as numbers; a category becomes its position, an empty cell NaN."""
        assert self._domain is not None
        numbers = {}
        variables = {variable.name: variable for variable in self._domain.features}
        for name in self._domain.needs:
            value = row[name]
            variable = variables.get(name)
            if variable is not None and variable.may_be_empty and is_empty(value):
                value = MISSING if variable.categories else np.nan
            if variable is not None and variable.categories:
                if isinstance(value, bool):  # the word that the fleet has for it
                    words = (text for text in variable.categories for pair in PAIRS if text.lower() == pair[not value])
                    value = next(words, value)
                if not isinstance(value, str):
                    raise ValueError(f"{name!r} is {str(value)[:40]}, and the model takes a text")
                value = code_of(value, variable.categories)
            elif value is None:
                raise ValueError(f"{name!r} is empty, and the model takes a number")
            numbers[name] = as_number(value)
        return numbers


def vector(inputs: Mapping[str, float]) -> NDArray[np.float64]:
    """Return inputs as a row, shape (F,)."""
    return np.array(list(inputs.values()), dtype=np.float64)
