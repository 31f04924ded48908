"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import remembered
from glassfleet.fuzzy.linear_rules import outputs_of
from glassfleet.numerics.edges import histogram
from glassfleet.numerics.statistics import blocks, pair_products
from glassfleet.scheme import SUPPORT
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.params import BLOCK_ROWS, GRID_BITS
from glassfleet.schemes.fmt.partition import BINS, Knots, positions, up_to
from glassfleet.schemes.fmt.support import count_rows, weights
from glassfleet.schemes.fmt.tree import Cut, blends, crisp, degrees, squared_error
from glassfleet.training import TrainingClient, TrainingRows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Chosen = NDArray[np.intp]
Products = Callable[[Chosen], Array]

GRID = float(1 << GRID_BITS)

_PRODUCTS = 1 << 20
"""Most products of columns in memory at once (8 MiB)."""


def positions_of(rows: TrainingRows, knots: Knots) -> Array:
    """Return where the inputs lie between knots, shape (F, n); those between the latest knots are kept."""
    return remembered(rows.memo, "positions", knots, lambda: positions(rows.inputs, knots))


# --- sums of products -----------------------------------------------------------------------------------------------


def _products(rows: TrainingRows, columns: Sequence[int], chosen: NDArray[np.intp] | slice) -> Array:
    """Return the products of all pairs of ``[1, x, y]``, on the grid, shape (pairs, n)."""
    k = len(columns) + 2
    target = rows.y[chosen]
    line = np.empty((k, len(target)))
    line[0] = 1.0
    for place, feature in enumerate(columns):
        line[place + 1] = rows.inputs[feature][chosen]
    line[-1] = target
    return pair_products(line, GRID_BITS)


def _add_products(total: Ints, weights: Array, products: Array) -> None:
    """Add ``weights @ products.T`` to `total`, exactly: all are integers, and a block's sums are below 2^53."""
    total += (weights @ products.T).astype(np.int64)


def weighted(products: Products, width: int, there: Chosen, lines: Products, n: int) -> Ints:
    """Return the sums of products over the rows `there`, by each of `n` weights, shape (n, width).

    Parameters
    ----------
    products : callable
        Returns products of columns of the chosen rows, on the grid, shape (width, chosen).
    width : int
        How many products there are.
    there : ndarray of int
    lines : callable
        Returns the weights of the chosen rows, whole numbers in units of the grid, shape (n, chosen).
    n : int
    """
    total = np.zeros((n, width), dtype=np.int64)
    size = min(BLOCK_ROWS, max(_PRODUCTS // width, 16))
    for block in blocks(len(there), size):
        chosen = there[block]
        _add_products(total, lines(chosen), products(chosen))
    return total


def rounded_weights(degree: Array, cuts: Sequence[Cut], position: Array) -> Products:
    """Return what gives the weights of rows in a node, and on the lower side of each cut: degrees, each rounded.

    Parameters
    ----------
    degree : ndarray of float64, shape (n,)
        To which rows reach the node.
    cuts : sequence of Cut
    position : ndarray of float64, shape (F, n)
        Where the rows lie between knots.
    """
    by_input: dict[int, list[int]] = {}
    for place, (feature, _) in enumerate(cuts):
        by_input.setdefault(feature, []).append(place)
    at = np.array([cut for _, cut in cuts], dtype=np.float64)[:, None]

    def lines(chosen: Chosen) -> Array:
        w = degree[chosen]
        weights = np.empty((1 + len(cuts), len(chosen)))
        np.rint(w * GRID, out=weights[0])
        for feature, places in by_input.items():
            part = up_to(at[places], position[feature][chosen])
            part *= w
            part *= GRID
            weights[[1 + place for place in places]] = np.rint(part, out=part)
        return weights

    return lines


def _node_sums(question: Question, rows: TrainingRows, node: int, position: Array, degree: Array | None) -> Ints:
    """Return the sums of a node, and of the lower side of each cut that is asked about, shape (1 + cuts, width).

    `degree`, shape (n,): to which rows reach the node; None in a run with support, whose sums must add up exactly.
    """
    cuts = [question.cuts[place] for place in question.cuts_of.get(node, ())]
    products = partial(_products, rows, question.columns)
    if degree is not None:
        lines = rounded_weights(degree, cuts, position)
        return weighted(products, question.width, np.flatnonzero(degree), lines, 1 + len(cuts))
    features = np.array([feature for feature, _ in cuts], dtype=np.intp)
    at = np.array([cut for _, cut in cuts], dtype=np.float64)[:, None]
    whole = weights(question.tree, node, position, features[:0], at[:0])[0]

    def exactly(chosen: Chosen) -> Array:
        return weights(question.tree, node, position[:, chosen], features, at)

    return weighted(products, question.width, np.flatnonzero(whole), exactly, 1 + len(cuts))


# --- the answers -----------------------------------------------------------------------------------------------


def _scan(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Count all rows in histograms; sum the products of all inputs, or of those that vary, over the training rows."""
    gram = _node_sums(question, rows, 0, rows.inputs, np.ones(rows.training))[0]
    training = np.array([rows.training], dtype=np.int64)
    return {"histogram": histogram(rows.inputs, BINS), "gram": gram, "training": training}


def _grow(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum over the training rows: the nodes asked about and the lower side of each of their cuts."""
    position = positions_of(rows, question.knots)[:, : rows.training]
    reached = {} if question.parameters.support else degrees(question.tree, position, question.nodes)
    whole, lower = [], []
    for node in question.nodes:
        sums = _node_sums(question, rows, node, position, reached.get(node))
        whole.append(sums[0])
        lower.append(sums[1:])
    return {"whole": np.stack(whole), "lower": np.concatenate(lower)}


def _leaves(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum all rows of the final leaves."""
    position, leaves = positions_of(rows, question.knots), question.asked_leaves
    reached = {} if question.parameters.support else degrees(question.tree, position, leaves)
    return {"gram": np.stack([_node_sums(question, rows, leaf, position, reached.get(leaf))[0] for leaf in leaves])}


def _support(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Count the rows on which the sums of some nodes and of their siblings would rest."""
    return {"rows": count_rows(question, rows, positions_of(rows, question.knots))}


def _sizes(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum squared errors over the held-out rows: for each variant, way of inference and number of rules."""
    assert question.coefficients is not None
    tree = question.tree
    errors = np.zeros((len(question.coefficients), 2, len(tree.splits) + 1), dtype=np.int64)
    held = rows.count - rows.training
    for block in blocks(held, BLOCK_ROWS):
        part = slice(rows.training + block.start, rows.training + block.stop)
        position = positions_of(rows, question.knots)[:, part]
        target = rows.y[part]
        reached = degrees(tree, position, range(tree.size))
        decided = [crisp(tree, position, node) for node in range(tree.size)]
        inputs = rows.inputs[list(question.regressors), part]
        for variant, lines in enumerate(question.coefficients):
            outputs = [outputs_of(line, inputs) for line in lines]
            for size, answer in enumerate(blends(tree, reached, outputs)):
                errors[variant, 0, size] += squared_error(answer, target)
            if question.parameters.support:  # the other way's errors, which nobody needs, are not told
                continue
            answer = outputs[0].copy()
            for node, output in enumerate(outputs):
                answer[decided[node]] = output[decided[node]]
                if node % 2 == 0:  # both sides of a split are there
                    errors[variant, 1, node // 2] += squared_error(answer, target)
    return {"errors": errors, "held_out": np.array([held], dtype=np.int64)}


CLIENT = TrainingClient(
    read_task, {"scan": _scan, "grow": _grow, "sizes": _sizes, "leaves": _leaves, SUPPORT: _support}
)
"""Computes the sums of a question over one vehicle's rows."""
