"""Categories as numbers: a category's level in [0, 1] follows what it adds to what is learned, from sums.

At most :data:`MOST` levels are told apart, and ramps lie between them. So every category is on one side alone, a split
is crisp ("city is one of Campinas, Santos"), and a polynomial takes the level as its input. A line of levels has one
for categories that the run does not know, then one for each category of the variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Indicator, Variable
from glassfleet.model.rules import Condition
from glassfleet.numerics.statistics import Number

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Levels = tuple[tuple[float, ...], ...]
"""Of each input; empty for numbers."""

MOST = 7
"""Groups of categories of an input that rules tell apart: as many as a person reads at a glance."""

PRIOR = 10.0
"""Rows with the overall mean that are added to each category's: rare ones stay near it."""

LEAST_STEP = 1.0 / 256.0
"""Levels closer than this are one."""

_ROUNDS = 50
"""Of the power iteration that finds along which line categories differ most."""


def find_levels(counts: Ints, sums: Ints, unit: float) -> tuple[float, ...]:
    """Return the levels of an input's categories, the one for unknown ones first.

    Parameters
    ----------
    counts : ndarray of int64, shape (c,)
        Rows of each category.
    sums : ndarray of int64, shape (c, T)
        Of the T targets over the rows of each category, in multiples of `unit`.
    unit : float
        What 1 in `sums` stands for.

    Notes
    -----
    Means are smoothed, ``(sum + 10 mean) / (n + 10)``.
    """
    rows = counts.astype(np.float64)
    total = max(float(rows.sum()), 1.0)
    mean = sums.sum(axis=0).astype(np.float64) * unit / total
    apart = (sums.astype(np.float64) * unit + PRIOR * mean) / (rows + PRIOR)[:, None] - mean
    return levels_by(counts, apart)


def levels_by(counts: Ints, apart: Array) -> tuple[float, ...]:
    """Return the levels of an input's categories by their values, the one for unknown ones first.

    Parameters
    ----------
    counts : ndarray of int64, shape (c,)
        Rows of each category.
    apart : ndarray of float64, shape (c, T)
        What each category adds to each of T targets; unknown ones add 0.

    Notes
    -----
    Of several targets (classes) the first principal direction, weighted by rows, is taken. More categories than
    :data:`MOST` are put, in the order of their values, into groups of about equal numbers of rows.
    """
    rows = counts.astype(np.float64)
    value = _along(apart, rows)
    order = np.argsort(value, kind="stable")
    group = np.zeros(len(order), dtype=np.intp)
    if len(order) <= MOST:
        group[order] = np.arange(len(order))
    else:
        below = np.cumsum(counts[order]) * 2 - counts[order]  # whole numbers: twice the rows below each one's middle
        group[order] = np.minimum(below * MOST // max(2 * int(counts.sum()), 1), MOST - 1)
    middle = np.zeros(MOST)
    for number in range(MOST):
        inside = [place for place in order.tolist() if group[place] == number]
        weight = sum(float(rows[place]) for place in inside)
        if inside:
            spread = [float(value[place]) * (float(rows[place]) / weight if weight else 1.0) for place in inside]
            middle[number] = sum(spread) / (1.0 if weight else len(inside))
    return _scaled(middle[group])


def _along(apart: Array, rows: Array) -> Array:
    """Return each category's place on the line along which they differ most, shape (c,); in one order of operations."""
    t = apart.shape[1]
    scatter = np.zeros((t, t))
    for line, weight in zip(apart, rows.tolist(), strict=True):
        scatter += weight * (line[:, None] * line)
    direction = np.zeros(t)
    direction[int(np.argmax(np.diagonal(scatter)))] = 1.0
    for _ in range(_ROUNDS if t > 1 else 0):
        following = np.zeros(t)
        for line, part in zip(scatter, direction.tolist(), strict=True):
            following += line * part
        largest = float(np.abs(following).max())
        if largest == 0.0:
            break
        direction = following / largest
    place = np.zeros(len(apart))
    for target in range(t):
        place += apart[:, target] * direction[target]
    return place


def _scaled(value: Array) -> tuple[float, ...]:
    """Return values mapped to [0, 1], close ones joined; first that of the overall mean, which is at zero."""
    low, width = float(value.min()), float(value.max() - value.min())
    if not width > 0.0:
        return (0.0,) * (len(value) + 1)
    scaled = ((value - low) / width).tolist()
    kept = [0.0]
    for level in sorted(set(scaled)):
        if level - kept[-1] >= LEAST_STEP and (level == 1.0 or 1.0 - level >= LEAST_STEP):
            kept.append(level)
    known = [min(kept, key=lambda other: abs(other - level)) for level in scaled]
    unknown = min(kept, key=lambda other: abs(other - (0.0 - low) / width))
    return (unknown, *known)


INDICATOR = (0.0, 0.0, 1.0)
"""The levels of an indicator of empty cells: given (and unknown), missing."""


def has_categories(domain: Domain) -> bool:
    """Whether a feature of the domain is text, whose levels follow from sums."""
    return any(variable.categories for variable in domain.features)


def needs_levels(domain: Domain) -> bool:
    """Whether an input of the domain has levels: one of text, or an indicator of empty cells."""
    return any(variable.categories for variable in domain.inputs)


def first_levels(domain: Domain) -> Levels:
    """Return the levels of a domain without features of text; empty where there are numbers alone."""
    return plain_levels(domain) if domain.gaps else ()


def sums_by_category(domain: Domain, X: Array, terms: Ints) -> Ints:
    """Return the sums of `terms`, shape (n, T), over the rows of each category of each input of text.

    Shape (categories of all inputs, T); `X`, shape (n, F), holds positions among the domain's categories.
    """
    sums = [np.zeros((0, terms.shape[1]), dtype=np.int64)]
    for feature, variable in enumerate(domain.features):
        if variable.categories:
            own, code = np.zeros((len(variable.categories), terms.shape[1]), dtype=np.int64), X[:, feature]
            known = (code >= 0.0) & (code <= len(own) - 1.0) & (code == np.rint(code))
            np.add.at(own, code[known].astype(np.intp), terms[known])
            sums.append(own)
    return np.concatenate(sums)


def by_input(domain: Domain, sums: NDArray[Number]) -> Iterator[tuple[Variable, NDArray[Number]]]:
    """Yield each input and its lines of what there is of all categories: none where it is no feature of text."""
    start = 0
    for variable in domain.inputs:
        end = start + (0 if isinstance(variable, Indicator) else len(variable.categories))
        yield variable, sums[start:end]
        start = end


def level_knots(line: Sequence[float]) -> tuple[float, ...]:
    """Return the levels of an input of text and both ends, ascending, each once."""
    return tuple(sorted({0.0, 1.0, *line}))


def plain_levels(domain: Domain) -> Levels:
    """Return the levels of a domain without features of text, a line for each input."""
    return tuple(INDICATOR if isinstance(variable, Indicator) else () for variable in domain.inputs)


def scaled_inputs(domain: Domain, levels: Levels, X: Array) -> Array:
    """Return rows of inputs in own units, shape (n, F), in [0, 1], shape (F, n): numbers scaled, texts' levels."""
    scaled = np.ascontiguousarray(domain.scale_inputs(X).T)
    for feature, line in enumerate(levels):
        if line:
            code = X[:, feature]
            known = (code >= 0.0) & (code <= len(line) - 2.0) & (code == np.rint(code))
            scaled[feature] = np.array(line)[np.where(known, code + 1.0, 0.0).astype(np.intp)]
    return scaled


def check_levels(levels: Sequence[Sequence[float]], domain: Domain) -> Levels:
    """Return `levels` as tuples; raises ValueError, with the reason, unless they are those of the domain's inputs."""
    if len(levels) != len(domain.inputs):
        raise ValueError(f"levels of {len(levels)} inputs, expected {len(domain.inputs)}")
    for line, variable in zip(levels, domain.inputs, strict=True):
        if isinstance(variable, Indicator) and tuple(line) != INDICATOR:
            raise ValueError(f"the levels of {variable.name!r} are not {INDICATOR}")
        if len(line) != (len(variable.categories) + 1 if variable.categories else 0):
            raise ValueError(f"{variable.name!r} has {len(variable.categories)} categories, and {len(line)} levels")
        if not all(0.0 <= level <= 1.0 for level in line):
            raise ValueError(f"a level of {variable.name!r} is not in [0, 1]")
    return tuple(tuple(line) for line in levels)


def level_condition(variable: Variable, line: Sequence[float], low: float, high: float) -> Condition:
    """Return that an input of text has a category with a level from `low` to `high`, or that a cell is empty or not."""
    if isinstance(variable, Indicator):
        own, term = variable.of, "missing" if low > 0.0 else "given"
        peak = own.low if own.missing is None else own.missing
        return Condition(own.name, term, own.low, own.high, peak, own.unit, crisp=True, about_cell=True)
    codes = [float(code) for code, level in enumerate(line[1:]) if low <= level <= high] or [0.0]
    return Condition(
        feature=variable.name,
        term=group_words(variable, line, low, high),
        low=codes[0],
        high=codes[-1],
        peak=0.5 * (codes[0] + codes[-1]),
        crisp=True,
    )


def group_words(variable: Variable, line: Sequence[float], low: float, high: float) -> str:
    """Return the categories with levels from `low` to `high` in words.

    >>> house = Variable(name="city", low=0, high=2, categories=("Campinas", "Rio", "Santos"))
    >>> group_words(house, (0.5, 0.0, 1.0, 0.0), 0.0, 0.0)
    'one of Campinas, Santos'
    >>> group_words(house, (0.5, 0.0, 1.0, 0.0), 0.5, 1.0)
    'none of Campinas, Santos'
    >>> group_words(Variable(name="gem", low=0, high=1, categories=("fair, green", "red")), (0.0, 1.0, 0.0), 1.0, 1.0)
    '"fair, green"'
    """
    inside = [low <= level <= high for level in line]
    names = [f'"{name}"' if "," in name else name for name in variable.categories]
    listed = [name for name, there in zip(names, inside[1:], strict=True) if there != inside[0]]
    if inside[0]:  # categories that the run does not know are in it: those are told that are not
        return f"{'none of' if listed[1:] else 'not'} {', '.join(listed)}" if listed else "anything"
    return listed[0] if len(listed) == 1 else f"one of {', '.join(listed)}"
