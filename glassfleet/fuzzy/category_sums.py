"""The question about categories that comes first where inputs are text.

A category's level follows its coefficient in a linear model of all inputs, numbers and texts together, and not the mean
of its rows: the finest diamonds are the smallest ones, and cheaper in the mean. From summed products the model is that
of the pooled rows. Where there are more than :data:`MOST_TOGETHER` categories, levels follow the means.

What is learned is the target, or, of classes, the indicator of each but the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Indicator
from glassfleet.errors import ContributionError
from glassfleet.fuzzy.levels import PRIOR, Levels, by_input, find_levels, levels_by, plain_levels, sums_by_category
from glassfleet.numerics.statistics import are_semidefinite, blocks, pair_sums, to_grid, unpack_symmetric
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

_BLOCK_TERMS: Final = 1 << 19
"""Terms that are in memory at once: a row has one for each pair of numbers, and for each category."""


def category_shapes(domain: Domain) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums.

    ``categories``: of each category of each input of text its rows and their targets; where all are fitted together
    also their inputs that are numbers, and their rows of each category. ``numbers``, where they are: the products of
    all pairs of ``[1, numbers, targets]``, packed.
    """
    categories = sum(len(variable.categories) for variable in domain.features)
    numbers, targets = len(_numbers(domain)), _targets(domain)
    if categories > MOST_TOGETHER:
        return {"categories": (categories, 1 + targets)}
    return {
        "categories": (categories, 1 + targets + numbers + categories),
        "numbers": ((numbers + targets + 1) * (numbers + targets + 2) // 2,),
    }


def category_sums(domain: Domain, X: Array, y: Array) -> dict[str, Ints]:
    """Return the sums, see :func:`category_shapes`.

    Parameters
    ----------
    domain : Domain
    X : ndarray of float64, shape (n, inputs)
        Completed rows in their own units; positions among the domain's categories for text.
    y : ndarray of float64, shape (n,)
        Scaled targets, or positions among the domain's classes.
    """
    shapes = category_shapes(domain)
    total = {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}
    terms_of_row = sum(shape[-1] for shape in shapes.values())
    for block in blocks(len(y), max(64, _BLOCK_TERMS // terms_of_row)):
        rows, one = X[block], np.ones((1, len(y[block])))
        numbered = np.arange(1, len(domain.classes))[:, None]
        targets = y[block][None] if domain.target else (y[block] == numbered).astype(np.float64)
        terms = [one.T, to_grid(targets, _GRID_BITS).T]
        if "numbers" not in total:
            total["categories"] += sums_by_category(domain, rows, np.concatenate(terms, axis=1).astype(np.int64))
            continue
        numbers = np.minimum(domain.scale_inputs(rows)[:, _numbers(domain)], 1.0)  # excess may be more
        texts = [rows[:, [i]] == np.arange(len(own.categories)) for i, own in enumerate(domain.features)]
        of_text = np.concatenate(texts, axis=1).astype(np.float64)
        total["numbers"] += pair_sums(one, np.concatenate([one, numbers.T, targets]), _GRID_BITS)[0]
        terms += [to_grid(numbers, _GRID_BITS), of_text]
        total["categories"] += (of_text.T @ np.concatenate(terms, axis=1)).astype(np.int64)
    return total


def check_category_sums(domain: Domain, sums: Mapping[str, Ints], rows: int) -> None:
    """Raise :class:`ContributionError` unless `sums`, of the right shapes, can be those of so many rows."""
    categories, whole = sums["categories"], 1 << _GRID_BITS
    if categories.size and int(categories.min()) < 0:
        raise ContributionError("a category has a negative sum")
    for variable, part in by_input(domain, categories):
        if int(part[:, 0].astype(object).sum()) > rows:
            raise ContributionError(f"more rows have a category of {variable.name!r} than there are")
    targets = categories[:, 1 : 1 + _targets(domain)]
    if (targets.astype(object).sum(axis=1) > categories[:, 0] * whole).any():
        raise ContributionError("a category's target is too high")
    if not domain.target and (targets % whole).any():
        raise ContributionError("a category's class has a part of a row")
    if "numbers" in sums:
        _check_products(domain, sums, rows)


def _check_products(domain: Domain, sums: Mapping[str, Ints], rows: int) -> None:
    k, targets, whole = 1 + len(_numbers(domain)), _targets(domain), 1 << _GRID_BITS
    categories, products = sums["categories"], unpack_symmetric(sums["numbers"], k + targets)
    counts, inputs, together = categories[:, :1], categories[:, 1 + targets : k + targets], categories[:, k + targets :]
    if (inputs > counts * whole).any():
        raise ContributionError("a category's inputs are too high")
    if (together > counts).any() or (together != together.T).any() or (np.diagonal(together) != counts[:, 0]).any():
        raise ContributionError("rows of two categories do not fit those of one")
    if int(products[0, 0]) != rows * whole or (products < 0).any() or (products > products[0]).any():
        raise ContributionError("products of inputs do not fit their sums")
    # A row has at most one category of each input, and one class.
    limits = np.concatenate([products[0, k:], products[0, 1:k], counts[:, 0]])
    if any((part[:, 1:].sum(axis=0) > limits).any() for _, part in by_input(domain, categories)):
        raise ContributionError("the categories of an input have more than all rows together")
    of_class, both = products[:k, k:], products[k:, k:]
    if not domain.target and ((of_class.sum(axis=1) > products[0, :k]).any() or (both != np.diag(of_class[0])).any()):
        raise ContributionError("the classes have more than all rows together")
    matrix = _products(domain, sums)
    if not are_semidefinite(matrix[None], np.array([len(matrix) * rows * _UNIT])):
        raise ContributionError("no rows have these products of inputs")


def levels_of(domain: Domain, sums: Mapping[str, Any]) -> Levels:
    """Return the levels of each input's categories from the fleet's sums."""
    categories = sums["categories"]
    together = "numbers" in sums
    adds = _effects(domain, sums) if together else categories[:, 1 : 1 + _targets(domain)]
    if len(domain.classes) > 2:
        first = np.zeros(len(adds)) if together else categories[:, 0] << _GRID_BITS
        for target in adds.T:  # one by one: NumPy adds many together in another order
            first = first - target
        adds = np.column_stack([first, adds])
    lines = zip(by_input(domain, categories[:, 0]), by_input(domain, adds), plain_levels(domain), strict=True)
    levels = []
    for (_, counts), (_, own), plain in lines:
        if not len(counts):
            levels.append(plain)
        elif together:
            rows = counts.astype(np.float64)
            mean = np.array([dot(target, rows) for target in own.T]) / max(float(rows.sum()), 1.0)
            levels.append(levels_by(counts, own - mean))
        else:
            levels.append(find_levels(counts, own, _UNIT))
    return tuple(levels)


def _targets(domain: Domain) -> int:
    return 1 if domain.target else len(domain.classes) - 1


def _numbers(domain: Domain) -> list[int]:
    """Return the positions of the inputs that are numbers, and of the indicators of empty cells."""
    return [i for i, own in enumerate(domain.inputs) if isinstance(own, Indicator) or not own.categories]


def _products(domain: Domain, sums: Mapping[str, Ints]) -> Array:
    """Return the products of all pairs of ``[1, numbers, categories]``, in rows."""
    k, targets = 1 + len(_numbers(domain)), _targets(domain)
    numbers = unpack_symmetric(sums["numbers"], k + targets)[:k, :k].astype(np.float64) * _UNIT
    counts, _, inputs, both = np.split(sums["categories"].astype(np.float64), [1, 1 + targets, k + targets], axis=1)
    beside = np.concatenate([counts, inputs * _UNIT], axis=1)
    return np.block([[numbers, beside.T], [beside, both]])


def _effects(domain: Domain, sums: Mapping[str, Ints]) -> Array:
    """Return the coefficients of each category in linear models of all inputs, in scaled targets, shape (.., T)."""
    matrix, k, targets = _products(domain, sums), 1 + len(_numbers(domain)), _targets(domain)
    matrix[np.diag_indices(len(matrix))] += np.repeat([0.0, PULL, PRIOR], [1, k - 1, len(matrix) - k])
    beside = unpack_symmetric(sums["numbers"], k + targets)[:k, k:]
    right = np.concatenate([beside, sums["categories"][:, 1 : 1 + targets]]).astype(np.float64) * _UNIT
    return solve(matrix, right)[k:]
