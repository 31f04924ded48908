"""Linear algebra on sums of products: ways to compute whole rows, for the schemes that sum products of their columns.

Each attack takes a `View` and returns candidate rows, scaled, shape (m, F + 1), inputs and target; NaN where it tells
nothing of a column. It does not know which candidates are right.

- cells (frt): a cell that says that it holds one row tells its target.
- remainders (frt): what a node holds less its cells of one input is the cell that was not told.
- spans: the products of fewer rows than there are columns span just these rows. Two groups that share one row have
  spans that meet in one line, which is that row.
- columns: where all rows of a group but one have one value of a column, the products of the column less this value are
  that row's. The values 0 and 1 are tried, at which many rows may be: zeros, and what is clipped.
- covariances: where the product sums of two groups differ by a matrix of rank one, that is a row. After Huth et al.,
  "Accessibility of covariance information creates vulnerability in Federated Learning frameworks" (Bioinformatics
  2023), who have the owner add known vectors to the rows; nobody can do that here, so differences are taken of what is
  sent anyway.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.schemes.frt.messages import read_task as read_frt
from glassfleet.schemes.tree.params import GRID_BITS
from glassfleet.schemes.tsk.messages import read_task as read_tsk
from lab.audit.transcript import View

Rows = NDArray[np.float64]
"""Shape (m, F + 1): inputs and target, scaled to [0, 1]."""

MOST_GROUPS = 400
"""Groups of a view that are compared with each other: pairs grow with the square."""

BLOCK = 64
"""Spans that are compared with all others at once."""

NEAR = 1e-4
"""Values of scaled columns that agree to this are equal, for what the rounding of a row's products may come to."""

_READ: dict[str, Callable[[Any], Any]] = {"frt": read_frt, "tsk": read_tsk}


# --- groups of rows and their products ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """Sums of the products of the columns of n groups of rows, in float64.

    Attributes
    ----------
    inputs : tuple of int
        Which inputs the columns are; then come the constant 1 and the target.
    width : int
        Inputs of the domain, F.
    grams : ndarray of float64, shape (n, k, k)
        Over [x, 1, y].
    noise : float
        What the rounding of the products may come to.
    is_whole : ndarray of bool, shape (n,)
        A node, leaf or rule; False: a band between two cuts.
    """

    inputs: tuple[int, ...]
    width: int
    grams: NDArray[np.float64]
    noise: float
    is_whole: NDArray[np.bool_]

    def rows_on(self, lines: NDArray[np.float64]) -> Rows:
        """Return the rows that lie on lines through the origin of the columns' space, shape (m, k), if any do."""
        lines = lines[np.abs(lines[:, -2]) > 1e-6]
        values = np.delete(lines / lines[:, -2:-1], -2, axis=1)
        values = values[((values > -1e-4) & (values < 1 + 1e-4)).all(axis=1)]
        rows = np.full((len(values), self.width + 1), np.nan)
        rows[:, [*self.inputs, self.width]] = values
        return rows


def from_grams(
    inputs: tuple[int, ...],
    width: int,
    grams: NDArray[np.float64],
    is_whole: NDArray[np.bool_],
) -> Groups:
    """Return groups of products on the trees' grid, `grams` over [1, x, y], as :class:`Groups` has the rest."""
    k = grams.shape[1]
    order = np.array([*range(1, k - 1), 0, k - 1])
    return Groups(inputs, width, grams[:, order[:, None], order], k * 2.0**-GRID_BITS, is_whole)


def groups(view: View) -> Iterator[Groups]:
    """Yield the product sums of all groups of rows that a view tells apart, question by question."""
    for task, sums in view:
        if "gram_high" not in sums or task.scheme not in _READ:
            continue
        question = _READ[task.scheme](task)
        bits, f = question.parameters.gram_bits, len(question.domain.features)
        if question.gram_columns == f + 2:
            value = gram_value(sums["gram_high"], sums["gram_low"], bits=bits)
            grams = unpack_symmetric(value, f + 2) / 2.0 ** (2 * bits)
            yield from _by_columns(grams, question.columns)


def _by_columns(grams: NDArray[np.float64], has: NDArray[np.bool_] | None) -> Iterator[Groups]:
    """Yield groups of equal columns: with support a leaf or a rule may lack some, or all of its sums."""
    f = grams.shape[1] - 2
    every = np.ones((len(grams), f + 1), dtype=np.bool_) if has is None else has
    for line in np.unique(every[every[:, -1]], axis=0):
        some, inputs = (every == line).all(axis=1), np.flatnonzero(line[:-1])
        places = np.append(inputs, [f, f + 1])
        own = grams[some][:, places[:, None], places]
        yield Groups(tuple(inputs.tolist()), f, own, 1e-11, np.ones(len(own), dtype=np.bool_))


# --- frt ------------------------------------------------------------------------------------------------------------


def remainders(view: View) -> Rows:
    """Return the targets of the cells of one row that a node's other cells leave (frt); of inputs nothing is told."""
    result = []
    for task, sums in view:
        question = read_frt(task)
        if question.kind != "level":
            continue
        for line in range(len(question.nodes)):
            noise = int(sums["node_count"][line]) * (question.parameters.n_sets + 1)
            for feature in np.flatnonzero(question.free[line]):
                ws, wls, wss = (
                    int(sums[f"node_{name}"][line]) - int(sums[f"cell_{name}"][line, feature].sum())
                    for name in ("ws", "wls", "wss")
                )
                if ws > max(64 * noise, 1 << 12) and abs(wss - wls / ws * wls) <= 8 * noise + 1e-9 * ws:
                    result.append(np.append(np.full(question.n_features, np.nan), wls / ws)[None])
    return stacked(result)


def cells(view: View) -> Rows:
    """Return the target of each row that is alone in a cell or a node (frt); of inputs nothing is told to the digit."""
    result = []
    for task, sums in view:
        question = read_frt(task)
        if question.kind != "level":
            continue
        for what in ("node", "cell"):
            is_one = (sums[f"{what}_count"] == 1) & (sums[f"{what}_ws"] > 1 << (question.parameters.fraction_bits - 8))
            targets = sums[f"{what}_wls"][is_one] / sums[f"{what}_ws"][is_one]
            targets = targets[(targets > 0.0) & (targets < 1.0)]  # a limit of the domain is known
            result.append(np.column_stack([np.full((len(targets), question.n_features), np.nan), targets]))
    return stacked(result)


# --- spans ----------------------------------------------------------------------------------------------------------


def spans(*seen: View) -> Rows:
    """Return the row of each group of one row, and of each two groups of few rows whose spans meet in one line.

    The groups are those of all views: two sums over different vehicles may share a row, too.
    """
    result = []
    few: dict[tuple[int, ...], tuple[Groups, dict[bytes, NDArray[np.float64]]]] = {}
    for some in itertools.chain.from_iterable(map(groups, seen)):
        values, vectors = np.linalg.eigh(some.grams)
        kept = values > np.maximum(some.noise, 1e-9 * values[:, -1:])
        ranks = kept.sum(axis=1)
        is_few = (ranks > 0) & (ranks < len(values.T) - 1)
        result.append(some.rows_on(vectors[is_few & (ranks == 1), :, -1]))
        known = few.setdefault(some.inputs, (some, {}))[1]
        for place in np.flatnonzero(is_few & (ranks > 1))[: MOST_GROUPS * 4]:
            basis = vectors[place][:, kept[place]]
            if len(known) < MOST_GROUPS * len(seen):  # the same rows come in many bands
                known.setdefault((np.rint(basis @ basis.T * 1e4) + 0.0).tobytes(), basis)
    for some, known in few.values():
        result.append(some.rows_on(meeting(list(known.values()))))
    return stacked(result)


COMMON = (0.0, 1.0)
"""Values of a scaled column that many rows may have."""


def columns(view: View) -> Rows:
    """Return the row that a group's products tell if all its other rows have one value of a column."""
    return stacked([off_value(some, value) for some in groups(view) for value in COMMON])


def off_value(some: Groups, value: float) -> Rows:
    """Return the rows that the products of each group tell if all its other rows have one value of a column."""
    left = some.grams - value * some.grams[:, -2:-1]  # [x, 1, y], by column
    lines = np.delete(left, -2, axis=1).reshape(-1, left.shape[2])
    return some.rows_on(lines[np.abs(lines[:, -2]) > NEAR])


@dataclass(frozen=True)
class ProductSums:
    """Sums of the products of [1, x] of some rows, where those with the target are known apart, or not at all.

    Attributes
    ----------
    gram : ndarray of float64, shape (k, k)
    noise : float
        What the rounding of the products may come to.
    complete : callable, optional
        Rows [1, x] that are among them, shape (m, k), and of each the direction that is 1 on it and 0 on the others ->
        their columns and targets, shape (at most m, F + 1). Without it nothing tells the target.
    """

    gram: NDArray[np.float64]
    noise: float
    complete: Callable[[NDArray[np.float64], NDArray[np.float64]], Rows] | None = None


def completed(parts: Iterable[ProductSums], most: int) -> Rows:
    """Return the row of each part of one row, and of each two of the `most` of fewest rows that meet in a line.

    For linearly independent rows z_i with G = sum a_i z_i z_i', the direction d = G^+ z / (z' G^+ z) is 1 on the row z
    and 0 on the others. So a sum of products with the target, h = sum b_i y_i z_i, has d'h = b y.
    """
    few: dict[bytes, tuple[ProductSums, NDArray[np.float64]]] = {}
    lines = []
    for part in parts:
        values, vectors = np.linalg.eigh(part.gram)
        kept = values > max(part.noise, 1e-9 * values[-1])
        if not 0 < kept.sum() < len(values):
            continue
        basis = vectors[:, kept]
        if kept.sum() == 1:
            lines.append(basis.T)
        few.setdefault((np.rint(basis @ basis.T * 1e4) + 0.0).tobytes(), (part, basis))
    smallest = sorted(few.values(), key=lambda each: each[1].shape[1])
    bases = [basis for _, basis in smallest if basis.shape[1] > 1][:most]
    candidates = np.concatenate([*lines, *([meeting(bases)] if bases else [])]) if few else np.empty((0, 1))
    candidates = candidates[np.abs(candidates[:, 0]) > 1e-6]
    candidates /= candidates[:, :1]
    candidates = candidates[((candidates > -NEAR) & (candidates < 1.0 + NEAR)).all(axis=1)]
    rows = []
    for part, basis in (each for each in smallest if each[0].complete is not None):
        is_inside = np.abs(candidates - candidates @ basis @ basis.T).max(axis=1, initial=0.0) < NEAR
        mine, candidates = candidates[is_inside], candidates[~is_inside]
        if len(mine):
            assert part.complete is not None
            directions = mine @ np.linalg.pinv(part.gram, rcond=1e-9, hermitian=True)
            rows.append(part.complete(mine, directions / (mine * directions).sum(axis=1)[:, None]))
    return stacked(rows)


def meeting(bases: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the lines, shape (m, d), in which two of the spans meet; `bases` are orthonormal, of shapes (d, rank)."""
    points = [np.empty((0, len(bases[0]) if bases else 2))]
    by_rank = {
        rank: np.stack([each for each in bases if each.shape[1] == rank]) for rank in {b.shape[1] for b in bases}
    }
    for rank, some in by_rank.items():
        for more, others in by_rank.items():
            if more < rank or rank + more > some.shape[1]:
                continue
            for start in range(0, len(some), BLOCK):
                block, other = some[start : start + BLOCK], others[start:] if more == rank else others
                both = np.tensordot(block, other, axes=(1, 1)).transpose(0, 2, 1, 3)
                # Of spans that meet one cosine is 1, so that this is 0; it costs a tenth of the cosines.
                near = np.linalg.det(np.eye(rank) - both @ both.transpose(0, 1, 3, 2)) < 1e-7
                first, second = np.nonzero(np.triu(near, 1) if more == rank else near)
                left, cosines, _ = np.linalg.svd(both[first, second], full_matrices=False)
                meet = (cosines[:, 0] > 1 - 1e-8) & (cosines[:, 1] < 1 - 1e-5)
                points.append((block[first[meet]] @ left[meet, :, :1])[:, :, 0])
    return np.concatenate(points)


# --- covariances ----------------------------------------------------------------------------------------------------


def covariances(*seen: View) -> Rows:
    """Return the row of each two groups, whole ones, of all views, whose product sums differ by one of rank one."""
    result = []
    some = [each for each in itertools.chain.from_iterable(map(groups, seen)) if each.is_whole.any()]
    for inputs in dict.fromkeys(each.inputs for each in some):
        alike = [each for each in some if each.inputs == inputs]
        grams = np.concatenate([each.grams[each.is_whole] for each in alike])[:MOST_GROUPS]
        grams = np.concatenate([grams, np.zeros_like(grams[:1])])
        noise = 2 * alike[0].noise
        for gram in grams[:-1]:
            left = gram - grams
            own = np.diagonal(left, axis1=1, axis2=2)
            left = left[(own > -noise).all(axis=1) & (own[:, -2] > 1e3 * noise)]
            values, vectors = np.linalg.eigh(left)
            is_one = (np.abs(values[:, :-1]).max(axis=1, initial=0.0) < noise) & (values[:, -1] > 1e3 * noise)
            result.append(alike[0].rows_on(vectors[is_one, :, -1]))
    return stacked(result)


def stacked(parts: list[Rows]) -> Rows:
    """Return different rows, of parts of the same width."""
    return np.unique(np.concatenate(parts), axis=0) if parts else np.empty((0, 0))
