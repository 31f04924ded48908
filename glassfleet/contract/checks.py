"""Checks of what vehicles send that every scheme would write again: names, shapes, signs, and bounds of sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.errors import ContributionError
from glassfleet.numerics.statistics import are_semidefinite, gram_value, limb_bits, triangle, unpack_symmetric

Ints = NDArray[np.int64]


def check_head(task: Task, contribution: Contribution, max_rows: int | None = None, *, sums_only: bool = False) -> None:
    """Raise :class:`ContributionError` unless an answer is of the task's kind, and from at most `max_rows` rows.

    `sums_only`: it must hold nothing else than sums.
    """
    if contribution.kind != task.kind:
        raise ContributionError(f"the answer is about {contribution.kind!r}, the question was {task.kind!r}")
    if max_rows is not None and contribution.rows > max_rows:
        raise ContributionError(f"{contribution.rows} rows, the grid is good for {max_rows}")
    if sums_only and contribution.values:
        raise ContributionError("this scheme sends sums only")


def check_names(what: str, given: Mapping[str, Any], expected: Collection[str]) -> None:
    """Raise :class:`ContributionError` unless `given` has the members `expected`; `what` they are, for the message."""
    if set(given) != set(expected):
        raise ContributionError(f"expected the {what} {sorted(expected)}, got {sorted(map(str, given))[:12]}")


def check_shapes(
    sums: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]], signed: Collection[str] = ()
) -> None:
    """Raise :class:`ContributionError` unless `sums` are those of `shapes`, by name, and none but `signed` negative."""
    check_names("sums", sums, shapes)
    for name, shape in shapes.items():
        if sums[name].shape != shape:
            raise ContributionError(f"{name} has shape {sums[name].shape}, expected {shape}")
    positive = [name for name in shapes if name not in signed]
    # All at once: of a coordinator's time for a small answer most is spent on calls, not on numbers.
    if positive and np.count_nonzero(np.concatenate([sums[name].ravel() for name in positive]) < 0):
        negative = next(name for name in positive if (sums[name] < 0).any())
        place = np.argwhere(sums[negative] < 0)[0].tolist()
        raise ContributionError(f"{negative} is negative at {place}: {sums[negative][tuple(place)]}")


def at_most(
    left: NDArray[Any] | float,
    right: NDArray[Any] | float,
    what: str,
    where: Callable[[Sequence[int]], object] = list,
) -> None:
    """Raise :class:`ContributionError` where `left` is above `right`: `what`, both numbers, and the first place.

    `where` names a place; the sender then knows which cell it has to look at.
    """
    above = np.greater(left, right)
    if np.count_nonzero(above):  # `any` takes some times as long for a small answer
        place = tuple(np.argwhere(above)[0].tolist())
        found, most = (np.broadcast_to(each, above.shape)[place] for each in (left, right))
        raise ContributionError(f"{what}: {found} is above {most}" + (f" at {where(place)}" if place else ""))


def check_told(contribution: Contribution, least: int, name: str = "rows") -> None:
    """Raise :class:`ContributionError` unless the counts `name` end at `least` in each vehicle: more is not told."""
    vehicles = 1 if contribution.vehicles is None else contribution.vehicles
    most = min(contribution.rows, least * max(1, vehicles))
    at_most(contribution.sums[name], most, "more rows than can be told")


def check_histogram(histogram: Ints, rows: int) -> None:
    """Raise :class:`ContributionError` unless the histogram of each input, shape (F, bins), counts each row once."""
    at_most(histogram, rows, "a histogram counts more rows than there are")
    of_each = histogram.sum(axis=1)
    if (of_each != rows).any():
        column = int(np.flatnonzero(of_each != rows)[0])
        raise ContributionError(f"the histogram of input {column} counts {of_each[column]} rows, expected {rows}")


def check_products(sums: Ints, k: int, rows: int, bits: int) -> None:
    """Raise :class:`ContributionError` unless sums of products, none negative, can be those of so many rows.

    Parameters
    ----------
    sums : ndarray of int64, shape (m, k (k + 1) / 2)
        Of weights in [0, 1], times the products of all pairs of k columns in [0, 1], of which the first is 1.
    k, rows : int
    bits : int
        Weights and products are rounded to multiples of 2^-bits each.

    Notes
    -----
    Rounding is monotone: a smaller term never becomes a larger integer. So the bounds are exact.
    """
    first, second = triangle(k)
    at_most(sums[:, 0], rows << (2 * bits), "a node's weight exceeds the agent's rows")
    # The first k entries are the sums of the columns; no product in [0, 1] exceeds either of its factors.
    at_most(sums, sums[:, first], "a sum of products exceeds the sum of one of its factors")
    at_most(sums, sums[:, second], "a sum of products exceeds the sum of one of its factors")
    full = unpack_symmetric(sums.astype(np.float64) * 2.0 ** (-2 * bits), k)
    # Weights and products are rounded by at most half a unit each.
    slack = rows * 2.0 ** (1 - bits) * k + 1e-9 * np.trace(full, axis1=1, axis2=2)
    check_semidefinite(full, slack, "sums of products are not positive semi-definite")


def check_regressions(what: str, contribution: Contribution, columns: int, bits: int, gram_bits: int) -> None:
    """Raise :class:`ContributionError` unless weighted regressions of rows in [0, 1] can have these sums.

    Bounds are exact where rounding is monotone, and have a small tolerance elsewhere.

    Parameters
    ----------
    what : str
        What has a regression, for the message: a leaf, or a rule.
    contribution : Contribution
        Of an agent, or the sum of a group. Its sums are, for each of r: ``count`` of rows and ``ws``, the sum of
        weights w, shape (r,); ``gram_high`` and ``gram_low``, limbs of the upper triangle of the Gram sums of
        sqrt(w) [x, 1, y].
    columns : int
        Of a regression, the target included.
    bits, gram_bits : int
        Fraction bits of weights, and of the entries of regressions.
    """
    sums = contribution.sums
    count, ws = sums["count"], sums["ws"]
    at_most(count, contribution.rows, f"a {what}'s count exceeds the agent's rows")
    at_most(ws, count << bits, f"a {what}'s WS exceeds its count")
    # Each vehicle carries its own limbs; those of a group's sum are not carried yet.
    if (sums["gram_low"] >> limb_bits(gram_bits) >= max(1, contribution.vehicles or 1)).any():
        raise ContributionError("a low limb of a Gram matrix is too large")
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=gram_bits), columns)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    ones = diagonal[:, -2]  # the intercept's column: sqrt(w), the largest entry of each row
    if (gram > ones[:, None, None]).any():
        raise ContributionError("a Gram entry exceeds the intercept's")
    # The sum of rounded sqrt(w) squared is WS up to (sqrt(w) + 1 / 4) grid units per row, and WS up to half a unit.
    expected = ws.astype(np.float64) * 2.0 ** (2 * gram_bits - bits)
    tolerance = count.astype(np.float64) * (2.0**gram_bits + 1.0 + 2.0 ** (2 * gram_bits - bits)) + 1e-9 * expected
    if (np.abs(ones - expected) > tolerance).any():
        raise ContributionError(f"a {what}'s Gram matrix contradicts its WS")
    check_semidefinite(gram, 1e-9 * diagonal.sum(axis=1), f"a {what}'s Gram matrix is not positive semi-definite")


def check_semidefinite(matrices: NDArray[np.float64], room: NDArray[np.float64], what: str) -> None:
    """Raise :class:`ContributionError` with the text `what` unless symmetric matrices are positive semi-definite.

    Parameters
    ----------
    matrices : ndarray, shape (m, k, k)
    room : ndarray, shape (m,)
        How far below 0 an eigenvalue of each may be, for rounding; >= 0.
    """
    if not are_semidefinite(matrices, room):
        raise ContributionError(what)


def check_qualities(what: str, contribution: Contribution, bits: int) -> None:
    """Raise :class:`ContributionError` unless ``ws`` and ``wq`` can be sums of weights, and of their qualities."""
    sums = contribution.sums
    at_most(sums["ws"], contribution.rows << bits, f"a {what}'s WS exceeds the agent's rows")
    at_most(sums["wq"], sums["ws"], f"a {what}'s quality sum exceeds its WS")
