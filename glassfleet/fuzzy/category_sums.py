"""The question about categories that comes first where inputs are text and the target is a number.

A category's level follows its coefficient in a linear model of all inputs, numbers and texts together, and not the mean
of its rows: the finest diamonds are the smallest ones, and cheaper in the mean. From summed products the model is that
of the pooled rows. Where there are more than :data:`MOST_TOGETHER` categories, levels follow the means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Indicator
from glassfleet.errors import ContributionError
from glassfleet.fuzzy.levels import PRIOR, Levels, by_input, find_levels, levels_by, plain_levels, sums_by_category
from glassfleet.numerics.statistics import are_semidefinite, blocks, pair_products, to_grid, unpack_symmetric
from glassfleet.numerics.symmetric import dot, solve

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_TOGETHER: Final = 256
"""Most categories, of all inputs of text, that are fitted together: their sums grow with the square."""

PULL: Final = 0.1
"""Pull of the slopes of inputs that are numbers towards zero, in rows: they may be collinear."""

_GRID_BITS: Final = 20
_UNIT: Final = 0.5**_GRID_BITS
"""Inputs and targets, in [0, 1], and their products are rounded to multiples of 2^-20."""

_BLOCK_ROWS: Final = 1 << 12
"""Rows that are summed at once: of each there is a number for every category."""


def category_shapes(domain: Domain) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums.

    ``categories``: of each category of each input of text its rows and their target; where all are fitted together
    also their inputs that are numbers, and their rows of each category. ``numbers``, where they are: the products of
    all pairs of ``[1, numbers, target]``, packed.
    """
    categories, numbers = _categories(domain), len(_numbers(domain))
    if categories > MOST_TOGETHER:
        return {"categories": (categories, 2)}
    return {
        "categories": (categories, 2 + numbers + categories),
        "numbers": ((numbers + 2) * (numbers + 3) // 2,),
    }


def category_sums(domain: Domain, X: Array, y: Array) -> dict[str, Ints]:
    """Return the sums, see :func:`category_shapes`.

    Parameters
    ----------
    domain : Domain
    X : ndarray of float64, shape (n, F)
        Inputs in their own units; positions among the domain's categories for text.
    y : ndarray of float64, shape (n,)
        Scaled targets.
    """
    shapes = category_shapes(domain)
    total = {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}
    for block in blocks(len(y), _BLOCK_ROWS):
        rows, target = X[block], y[block]
        terms = [np.ones(len(target)), to_grid(target, _GRID_BITS)]
        if "numbers" in total:
            numbers = domain.scale_inputs(rows)[:, _numbers(domain)]
            texts = [rows[:, [i]] == np.arange(len(own.categories)) for i, own in enumerate(domain.features)]
            terms += [to_grid(numbers, _GRID_BITS), *texts]
            products = pair_products(np.vstack([np.ones(len(target)), numbers.T, target]), _GRID_BITS)
            # Whole numbers, whose sums are below 2^53: exact in any order.
            total["numbers"] += products.sum(axis=1).astype(np.int64)
        total["categories"] += sums_by_category(domain, rows, np.column_stack(terms).astype(np.int64))
    return total


def check_category_sums(domain: Domain, sums: Mapping[str, Ints], rows: int) -> None:
    """Raise :class:`ContributionError` unless `sums`, of the right shapes, can be those of so many rows."""
    categories = sums["categories"]
    counts, most = categories[:, :1], categories[:, :1] << _GRID_BITS
    if categories.size and int(categories.min()) < 0:
        raise ContributionError("a category has a negative sum")
    for variable, part in by_input(domain, categories):
        if int(part[:, 0].astype(object).sum()) > rows:
            raise ContributionError(f"more rows have a category of {variable.name!r} than there are")
    if (categories[:, 1:2] > most).any():
        raise ContributionError("a category's target is too high")
    if "numbers" not in sums:
        return
    numbers = len(_numbers(domain))
    together = categories[:, 2 + numbers :]
    if (categories[:, 2 : 2 + numbers] > most).any():
        raise ContributionError("a category's inputs are too high")
    if (together > counts).any() or (together != together.T).any() or (np.diagonal(together) != counts[:, 0]).any():
        raise ContributionError("rows of two categories do not fit those of one")
    products = unpack_symmetric(sums["numbers"], numbers + 2)
    if int(products[0, 0]) != rows << _GRID_BITS or (products < 0).any() or (products > products[0]).any():
        raise ContributionError("products of inputs do not fit their sums")
    matrix = _products(domain, sums)
    if not are_semidefinite(matrix[None], np.array([len(matrix) * rows * _UNIT])):
        raise ContributionError("no rows have these products of inputs")


def levels_of(domain: Domain, sums: Mapping[str, Any]) -> Levels:
    """Return the levels of each input's categories from the fleet's sums."""
    categories = sums["categories"]
    effects = _effects(domain, sums) if "numbers" in sums else np.zeros(len(categories))
    lines = zip(by_input(domain, categories), by_input(domain, effects), plain_levels(domain), strict=True)
    found = []
    for (_, part), (_, own), plain in lines:
        counts = part[:, 0]
        if not len(part):
            found.append(plain)
        elif "numbers" in sums:
            weights = counts.astype(np.float64)
            found.append(levels_by(counts, own - dot(own, weights) / max(float(weights.sum()), 1.0)))
        else:
            found.append(find_levels(counts, part[:, 1:], _UNIT))
    return tuple(found)


def _categories(domain: Domain) -> int:
    return sum(len(variable.categories) for variable in domain.features)


def _numbers(domain: Domain) -> list[int]:
    """Return the positions of the inputs that are numbers, and of the indicators of empty cells."""
    return [i for i, own in enumerate(domain.inputs) if isinstance(own, Indicator) or not own.categories]


def _products(domain: Domain, sums: Mapping[str, Ints]) -> Array:
    """Return the products of all pairs of ``[1, numbers, categories]``, in rows."""
    first = 1 + len(_numbers(domain))
    numbers = unpack_symmetric(sums["numbers"], first + 1)[:first, :first].astype(np.float64) * _UNIT
    categories = sums["categories"].astype(np.float64)
    beside = np.column_stack([categories[:, 0], categories[:, 2 : 1 + first] * _UNIT])
    return np.block([[numbers, beside.T], [beside, categories[:, 1 + first :]]])


def _effects(domain: Domain, sums: Mapping[str, Ints]) -> Array:
    """Return the coefficient of each category in a linear model of all inputs, in the scaled target."""
    matrix, first = _products(domain, sums), 1 + len(_numbers(domain))
    matrix[np.diag_indices(len(matrix))] += np.repeat([0.0, PULL, PRIOR], [1, first - 1, len(matrix) - first])
    target = unpack_symmetric(sums["numbers"], first + 1)[:first, first]
    right = np.concatenate([target, sums["categories"][:, 1]]).astype(np.float64) * _UNIT
    return solve(matrix, right[:, None])[first:, 0]
