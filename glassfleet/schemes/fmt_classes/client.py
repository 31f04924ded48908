"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.hinges import with_hinges
from glassfleet.fuzzy.linear_rules import outputs_of
from glassfleet.numerics.edges import histogram
from glassfleet.numerics.softmax import probabilities
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.fmt.client import GRID, positions_of, rounded_weights, weighted
from glassfleet.schemes.fmt.params import BLOCK_ROWS
from glassfleet.schemes.fmt.partition import BINS
from glassfleet.schemes.fmt.tree import blends, degrees, squared_error
from glassfleet.schemes.fmt_classes.messages import Question, read_task
from glassfleet.training import TrainingClient, TrainingRows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Chosen = NDArray[np.intp] | slice

LEAST_CURVATURE = 1e-5
"""p (1 - p) counts as this at least, so that nodes of one class alone still have a step."""


# --- sums of products -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Products:
    """Products of columns of a question's rows, on the grid."""

    question: Question
    rows: TrainingRows

    @cached_property
    def inputs(self) -> Array:
        """The question's columns, hinges among them, shape (R, n)."""
        return with_hinges(self.rows.inputs, self.question.hinges)[list(self.question.columns)]

    def line(self, chosen: Chosen) -> Array:
        """Return ``[1, x]``, shape (k, n)."""
        inputs = self.inputs[:, chosen]
        return np.concatenate([np.ones((1, inputs.shape[1])), inputs])

    def squares(self, line: Array) -> Array:
        """Return the products of all pairs, shape (k (k + 1) / 2, n)."""
        on_grid = line * GRID
        products: Array = np.rint(np.concatenate([line[i] * on_grid[i:] for i in range(len(line))]))
        return products

    def all(self, chosen: Chosen) -> Array:
        """Return the products of all pairs, and ``[1, x]`` of each class but the first, shape (width, n)."""
        line, classes = self.line(chosen), self.rows.y[chosen]
        own = [np.rint(line * GRID) * (classes == number) for number in range(1, self.question.n_classes)]
        return np.concatenate([self.squares(line), *own])


# --- the answers ---------------------------------------------------------------------------------------------------


def _scan(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Count all rows in histograms; sum the products of all inputs over the training rows."""
    training = np.array([rows.training], dtype=np.int64)
    return {"histogram": histogram(rows.inputs, BINS), "gram": _gram(question, rows), "training": training}


def _hinges(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum the products of the regressors and of all hinges that there could be, over the training rows."""
    return {"gram": _gram(question, rows)}


def _gram(question: Question, rows: TrainingRows) -> Ints:
    """Sum products over the training rows, shape (width,)."""
    every, lines = np.arange(rows.training), rounded_weights(np.ones(rows.training), [], rows.inputs)
    gram: Ints = weighted(_Products(question, rows).all, question.width, every, lines, 1)[0]
    return gram


def _grow(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum over the training rows: the nodes asked about and the lower side of each of their cuts."""
    position, products = positions_of(rows, question.knots)[:, : rows.training], _Products(question, rows)
    reached = degrees(question.tree, position, question.nodes)
    whole, lower = [], []
    for node in question.nodes:
        cuts = [question.cuts[place] for place in question.cuts_of[node]]
        there, lines = np.flatnonzero(reached[node]), rounded_weights(reached[node], cuts, position)
        sums = weighted(products.all, question.width, there, lines, 1 + len(cuts))
        whole.append(sums[0])
        lower.append(sums[1:])
    return {"whole": np.stack(whole), "lower": np.concatenate(lower)}


def _sizes(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum squared errors of indicators over the held-out rows: for each variant and number of rules."""
    assert question.coefficients is not None
    tree, held, columns = question.tree, rows.count - rows.training, _Products(question, rows).inputs
    errors = np.zeros((len(question.coefficients), len(tree.splits) + 1), dtype=np.int64)
    for block in blocks(held, BLOCK_ROWS):
        part = slice(rows.training + block.start, rows.training + block.stop)
        reached = degrees(tree, positions_of(rows, question.knots)[:, part], range(tree.size))
        inputs = columns[:, part]
        for variant, targets in enumerate(question.coefficients):
            for target, lines in enumerate(targets, start=question.n_scores == 1):
                truth = (rows.y[part] == target).astype(np.float64)
                outputs = [outputs_of(line, inputs) for line in lines]
                for size, answer in enumerate(blends(tree, reached, outputs)):
                    errors[variant, size] += squared_error(answer, truth)
    return {"errors": errors, "held_out": np.array([held], dtype=np.int64)}


def _newton(question: Question, rows: TrainingRows) -> dict[str, Ints]:
    """Sum, over all rows and for each node, what a Newton step of its scores needs.

    ``squares``: w p_a (1 - p_a) z z' of each score, then w p_a p_b z z' of each pair. ``expected``: w p_a z.
    ``observed``: w z of the rows of the class. ``weight``: w.
    """
    assert question.coefficients is not None
    tree, scores = question.tree, question.n_scores
    first = 1 if scores == 1 else 0  # the class of the first score
    pairs = [(a, b) for a in range(scores) for b in range(a + 1, scores)]
    k = len(question.columns) + 1
    squares = np.zeros((tree.size, scores + len(pairs), question.squares), dtype=np.int64)
    observed = np.zeros((tree.size, scores, k), dtype=np.int64)
    expected, weight = observed.copy(), np.zeros(tree.size, dtype=np.int64)
    products = _Products(question, rows)
    for block in blocks(rows.count, BLOCK_ROWS):
        line = products.line(block)
        on_grid, square = np.rint(line * GRID), products.squares(line)
        classes, reached = rows.y[block], degrees(tree, positions_of(rows, question.knots)[:, block], range(tree.size))
        for node in range(tree.size):
            there = np.flatnonzero(reached[node])
            if not len(there):
                continue
            w, z, zz = reached[node][there], on_grid[:, there], square[:, there]
            lines = question.coefficients[node]
            p = probabilities(np.stack([outputs_of(of, line[1:, there]) for of in lines]))[first:]
            terms = [w * np.maximum(p[a] * (1.0 - p[a]), LEAST_CURVATURE) for a in range(scores)]
            terms += [w * (p[a] * p[b]) for a, b in pairs]
            squares[node] += _summed(terms, zz)
            expected[node] += _summed([w * p[a] for a in range(scores)], z)
            observed[node] += _summed([w * (classes[there] == first + a) for a in range(scores)], z)
            weight[node] += int(_summed([w], z[:1])[0, 0])
    return {"squares": squares, "expected": expected, "observed": observed, "weight": weight}


def _summed(terms: list[Array], products: Array) -> Ints:
    """Return the sums of products, each times a term of its row, exactly; shape (terms, products)."""
    return (np.rint(np.stack(terms) * GRID) @ products.T).astype(np.int64)


CLIENT = TrainingClient(
    read_task, {"scan": _scan, "hinges": _hinges, "grow": _grow, "sizes": _sizes, "newton": _newton}
)
"""Computes the sums of a question over one vehicle's rows."""
