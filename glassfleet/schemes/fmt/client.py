"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset, remembered
from glassfleet.errors import TaskError
from glassfleet.fuzzy.category_sums import category_sums
from glassfleet.fuzzy.linear_rules import outputs_of
from glassfleet.numerics.statistics import blocks, pair_products, to_grid
from glassfleet.scheme import SUPPORT, Contribution, Task
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.params import BLOCK_ROWS, ERROR_BITS, GRID_BITS, MAX_ROWS
from glassfleet.schemes.fmt.partition import Knots, histogram, positions, up_to
from glassfleet.schemes.fmt.support import count_rows, weights
from glassfleet.schemes.fmt.tree import Cut, crisp, degrees
from glassfleet.training import TrainingRows, training_rows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Chosen = NDArray[np.intp]
Products = Callable[[Chosen], Array]

GRID = float(1 << GRID_BITS)

_PRODUCTS = 1 << 20
"""Most products of columns in memory at once (8 MiB)."""


class FmtClient:
    """Computes the sums of a question over one vehicle's rows."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:  # noqa: ARG002
        """Answer `task`; see :class:`glassfleet.scheme.Client`. No randomness is used."""
        question = read_task(task)
        parameters = question.parameters
        rows = training_rows(data, question.domain, parameters.group_rows, parameters.holdout, question.levels)
        if rows.count > MAX_ROWS:
            raise TaskError(f"{rows.count} rows, the run's grid is good for {MAX_ROWS}")
        answers = {
            "levels": _levels,
            "scan": _scan,
            "grow": _grow,
            "sizes": _sizes,
            "leaves": _leaves,
            SUPPORT: _support,
        }
        return Contribution(question.kind, rows.count, answers[question.kind](question, rows))


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
        found = np.empty((1 + len(cuts), len(chosen)))
        np.rint(w * GRID, out=found[0])
        for feature, places in by_input.items():
            part = up_to(at[places], position[feature][chosen])
            part *= w
            part *= GRID
            found[[1 + place for place in places]] = np.rint(part, out=part)
        return found

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


def _levels(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum the target and the other inputs of all rows by category."""
    return category_sums(question.domain, rows.X, rows.y)


def _scan(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Count all rows in histograms; sum the products of all inputs over the training rows."""
    gram = _node_sums(question, rows, 0, rows.inputs, np.ones(rows.training))[0]
    training = np.array([rows.training], dtype=np.int64)
    return {"histogram": histogram(rows.inputs), "gram": gram, "training": training}


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
    return {"rows": count_rows(question, positions_of(rows, question.knots), rows.training)}


def _sizes(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum squared errors over the held-out rows: for each variant, way of inference and number of rules."""
    assert question.coefficients is not None
    variants, tree = question.coefficients.shape[0], question.tree
    errors = np.zeros((variants, 2, len(tree.splits) + 1), dtype=np.int64)
    held = rows.count - rows.training
    for block in blocks(held, BLOCK_ROWS):
        part = slice(rows.training + block.start, rows.training + block.stop)
        position = positions_of(rows, question.knots)[:, part]
        target = rows.y[part]
        reached = degrees(tree, position, range(tree.size))
        decided = [crisp(tree, position, node) for node in range(tree.size)]
        inputs = rows.inputs[list(question.regressors), part]
        for variant in range(variants):
            outputs = [outputs_of(line, inputs) for line in question.coefficients[variant]]
            answers = [outputs[0].copy(), outputs[0].copy()]
            for size in range(len(tree.splits) + 1):
                if size:
                    node, (low, high) = tree.splits[size - 1].node, (2 * size - 1, 2 * size)
                    answers[0] -= reached[node] * outputs[node]
                    answers[0] += reached[low] * outputs[low]
                    answers[0] += reached[high] * outputs[high]
                    answers[1][decided[low]] = outputs[low][decided[low]]
                    answers[1][decided[high]] = outputs[high][decided[high]]
                # With support the errors of the other way of inference, which nobody needs, are not told.
                for way, answer in enumerate(answers[:1] if question.parameters.support else answers):
                    error = np.minimum(np.maximum(answer, 0.0), 1.0) - target
                    errors[variant, way, size] += int(to_grid(error * error, ERROR_BITS).sum())
    return {"errors": errors, "held_out": np.array([held], dtype=np.int64)}
