"""Runs with `support`: which cuts, nodes and leaves rest on enough rows, before their sums are asked.

The sums of a node, of its lower sides and of its sibling tell, by subtraction, those of each band of sets between two
cuts. So cuts are chosen for a node and its sibling together, so that every band between two of them holds no rows or
enough: a small band is joined to the next one. A cut that is left out is left out below, too, or it would follow from
the sums of the children. Sums of products of fewer rows than they have columns span these rows: enough is as many.

Rows that are held out are in no sums of growth. They are in those of a leaf, which are of all its rows, and in the
errors of all sizes, of which two differ in the rows of a node that is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.private.columns import layers_of
from glassfleet.private.support import ALL, Ints, Place, decided, holds, joined
from glassfleet.scheme import Contribution, Task
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.params import GRID_BITS, SUPPORT_BITS
from glassfleet.schemes.fmt.partition import BINS, up_to
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.training import TrainingRows

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_GRID = float(1 << GRID_BITS)
_STEP = float(1 << (GRID_BITS - SUPPORT_BITS))


# --- the vehicle's part ---------------------------------------------------------------------------------------------


def weights(tree: Tree, node: int, position: Array, features: NDArray[np.intp], cuts: Array) -> Array:
    """Return the weights of rows in a node, and in the lower side of each cut, shape (1 + q, n), in units of the grid.

    They and the weights in bands are multiples of 2^-``SUPPORT_BITS``: no row that counts weighs nearly nothing. An
    upper side is exactly the node less its lower side, whatever is rounded. Where the lower child of each split is
    asked about and the upper one derived, nothing follows from two ways to the same sum.

    Parameters
    ----------
    tree : Tree
    node : int
    position : ndarray of float64, shape (F, n)
    features : ndarray of intp, shape (q,)
    cuts : ndarray of float64, shape (q, n) or (q, 1)
        The last set of the lower side, which may differ from row to row.
    """
    if node == 0:
        return np.concatenate(
            [np.full((1, position.shape[1]), _GRID), _stepped(up_to(cuts, position[features]) * _GRID)]
        )
    split, n = tree.splits[(node - 1) // 2], position.shape[1]
    cuts = np.broadcast_to(cuts, (len(features), n))
    own = np.full((1, n), float(split.cut))
    above = weights(tree, split.node, position, np.append(split.feature, features), np.concatenate([own, cuts]))
    whole, low, above = above[0], above[1], above[2:]
    # Between the least and the most that two parts of a node with these weights can have in common.
    part = _stepped(up_to(cuts, position[features]) * low)
    part = np.minimum(np.maximum(part, above - (whole - low)), above)
    same = (features == split.feature)[:, None]
    part = np.where(same, np.where(cuts < split.cut, above, low), part)
    return np.vstack([low, part]) if node % 2 else np.vstack([whole - low, above - part])


def _stepped(weights: Array) -> Array:
    return np.rint(weights / _STEP) * _STEP


def count_rows(question: Question, rows: TrainingRows, position: Array) -> Ints:
    """Return the rows of one vehicle that a support question asks about; see :func:`places` for its lines.

    Each row is in one cell of an input: cell 2 c has the rows in set c alone, cell 2 c + 1 those in c and c + 1. A row
    whose rounded weight is 0 is in no sum, and in no cell: it hides nobody. Nor does a row that is equal to another
    one. Counted are all rows, then those alone that have another value than a common one of an input or the target.
    """
    features = np.array(question.split_features, dtype=np.intp)
    sets = np.array([question.n_sets[feature] for feature in features], dtype=np.float64)[:, None]
    own = np.minimum(np.floor(position[features]), sets - 2.0)
    is_training = np.arange(rows.count) < rows.training
    layers = rows.different & layers_of(rows.inputs, rows.y, question.common, BINS)
    lines = []
    for child in question.children:
        sums = weights(question.tree, child, position, features, own)
        whole, low = sums[0], sums[1:]
        cells = (2.0 * own + (low < whole) + ((low == 0.0) & (low < whole))).astype(np.intp)
        for layer, least in zip(layers, question.least_of, strict=True):
            there, out = (layer & (whole > 0.0) & part for part in (is_training, ~is_training))
            counts = [np.bincount(cell[there], minlength=question.n_cells) for cell in cells]
            counts.append(np.bincount(np.zeros(np.count_nonzero(out), dtype=np.intp), minlength=question.n_cells))
            lines.append(np.minimum(counts, least))
    return np.concatenate(lines)


def places(task: Task) -> list[Any]:
    """Return what each line of an answer is about: a node, a common value or all, and a partition or the held-out rows.

    Knots say what a path and a set are: another edition finds others.
    """
    question = read_task(task)
    result: list[Any] = []
    for child in question.children:
        path = tuple(
            (split.feature, *question.knots[split.feature][split.cut : split.cut + 2], upper)
            for split, upper in question.tree.path(child)
        )
        for layer in (ALL, *question.common):
            inputs = [(path, feature, question.knots[feature]) for feature in question.split_features]
            result += [Place(about, layer) for about in (*inputs, (path, "held out"))]
    return result


# --- the coordinator's part -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enough:
    """What was decided about nodes and their siblings.

    Attributes
    ----------
    cuts : ndarray of bool, shape (families, cuts)
        Which cuts may be asked about, of a node and its sibling.
    splits : ndarray of bool, shape (children,)
        Which nodes may be split: by how much their errors fall rests on enough rows that are held out.
    leaves : ndarray of bool, shape (children,)
        Of which nodes all rows may be summed, those held out too.
    """

    cuts: Bools
    splits: Bools
    leaves: Bools

    @classmethod
    def read(cls, question: Question, flat: Bools) -> Enough:
        """Undo :meth:`flat`."""
        shape, children = (len(question.nodes), len(question.cuts)), len(question.children)
        end = shape[0] * shape[1]
        return cls(flat[:end].reshape(shape), flat[end : end + children], flat[end + children :])

    def flat(self) -> Bools:
        """Return all decisions in one line."""
        return np.concatenate([self.cuts.ravel(), self.splits, self.leaves])


def decide(question: Question, known: Bools, contributions: Sequence[Contribution]) -> Enough:
    """Return what rests on enough rows; `known`, of shape (families, cuts), are the cuts that their parents had."""

    def from_rows(parts: list[Ints]) -> Bools:
        least = question.least_of
        shape = len(question.children), len(least), len(question.split_features) + 1, -1
        shaped = [part.reshape(shape) for part in parts]
        each = len(question.children) // len(question.nodes)
        families = [
            np.stack([part[each * family + child] for part in shaped for child in range(each)])
            for family in range(len(question.nodes))
        ]
        cuts = np.array([_joined(question, rows, allowed) for rows, allowed in zip(families, known, strict=True)])
        held = [part[:, :, -1, 0] for part in shaped]
        splits = holds([part[:, 0] for part in held], question.parameters.support)
        return Enough(cuts, splits, np.logical_and.reduce(holds(held, least), axis=1)).flat()

    return Enough.read(question, decided(contributions, places, question.to_task(), from_rows))


def _joined(question: Question, rows: Ints, allowed: Bools) -> Bools:
    """Return which of the allowed cuts leave no small band between them.

    `rows` is of the shape (nodes, layers, inputs + 1, cells).
    """
    kept = np.zeros(len(question.cuts), dtype=bool)
    numbered = list(enumerate(question.cuts))
    for line, (_, own) in enumerate(groupby(numbered, key=lambda cut: cut[1][0])):
        # up_to[c]: rows in cells before c
        before = np.pad(np.cumsum(rows[:, :, line], axis=2), ((0, 0), (0, 0), (1, 0)))

        def is_enough(first: int, end: int, before: Ints = before) -> bool:
            return bool(holds([before[:, :, end] - before[:, :, first]], question.least_of).all())

        places, cuts = zip(*((place, (2 * cut + 2, 2 * cut + 1)) for place, (_, cut) in own), strict=True)
        mine = joined(cuts, question.n_cells, allowed[list(places)], is_enough)
        kept[[places[place] for place in mine]] = True
    return kept
