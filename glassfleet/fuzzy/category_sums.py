"""The question about categories that comes first where inputs are text and the target is a number: rows and targets.

From the answers' sums each category gets its level, see :mod:`glassfleet.fuzzy.levels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError
from glassfleet.fuzzy.levels import Levels, by_input, find_levels, plain_levels, sums_by_category
from glassfleet.numerics.statistics import to_grid

Ints = NDArray[np.int64]

_GRID_BITS: Final = 20
"""Targets, in [0, 1], are rounded to multiples of 2^-20."""


def category_shapes(domain: Domain) -> dict[str, tuple[int, ...]]:
    """Return name and shape of the sums: rows and target of each category of each input of text."""
    return {"categories": (sum(len(variable.categories) for variable in domain.features), 2)}


def category_sums(domain: Domain, X: NDArray[np.float64], y: NDArray[np.float64]) -> dict[str, Ints]:
    """Count rows, and sum their scaled target `y`, by category; `X` holds positions among the domain's categories."""
    terms = np.column_stack([np.ones(len(y)), to_grid(y, _GRID_BITS)]).astype(np.int64)
    return {"categories": sums_by_category(domain, X, terms)}


def check_category_sums(domain: Domain, sums: Ints, rows: int) -> None:
    """Raise :class:`ContributionError` unless `sums`, shape (categories, 2), can be those of so many rows."""
    if sums.size and int(sums.min()) < 0:
        raise ContributionError("a category has a negative sum")
    for variable, part in by_input(domain, sums):
        if int(part[:, 0].astype(object).sum()) > rows:
            raise ContributionError(f"more rows have a category of {variable.name!r} than there are")
    if (sums[:, 1] > sums[:, 0] << _GRID_BITS).any():
        raise ContributionError("a category's target is too high")


def levels_of(domain: Domain, sums: Mapping[str, Any]) -> Levels:
    """Return the levels of each input's categories from the fleet's sums."""
    found = (
        find_levels(part[:, 0], part[:, 1:], 0.5**_GRID_BITS) if len(part) else ()
        for _, part in by_input(domain, sums["categories"])
    )
    return tuple(own or plain for own, plain in zip(found, plain_levels(domain), strict=True))
