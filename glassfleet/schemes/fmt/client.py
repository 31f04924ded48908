"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.data import Dataset
from glassfleet.domain import Domain
from glassfleet.grids import join_small
from glassfleet.scheme import Contribution, Task, TaskError
from glassfleet.schemes.fmt.holdout import is_held_out
from glassfleet.schemes.fmt.messages import NAME, Cut, Question, read_task
from glassfleet.schemes.fmt.params import BLOCK_ROWS, ERROR_BITS, GRID_BITS, MAX_ROWS
from glassfleet.schemes.fmt.partition import Knots, histogram, positions, up_to
from glassfleet.schemes.fmt.tree import Tree, crisp, degrees
from glassfleet.statistics import blocks, to_grid
from glassfleet.untrusted import select_numbers

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_GRID = float(1 << GRID_BITS)

_PRODUCTS = 1 << 20
"""Most products of columns in memory at once (8 MiB)."""


class FmtClient:
    """Computes the sums of a question over one vehicle's rows."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:  # noqa: ARG002
        """Answer `task`; see :class:`glassfleet.scheme.Client`. No randomness is used."""
        question = read_task(task)
        rows = _prepare(question, data)
        if rows.count > MAX_ROWS:
            raise TaskError(f"{rows.count} rows, the run's grid is good for {MAX_ROWS}")
        answers = {"scan": _scan, "grow": _grow, "sizes": _sizes, "leaves": _leaves}
        sums, nullified = answers[question.kind](question, rows)
        return Contribution(question.kind, rows.count, sums, nullified=nullified)


@dataclass
class _Rows:
    """A vehicle's rows for one domain, scaled, those held out last; and their positions in the latest partitions."""

    domain: Domain
    holdout: float
    count: int
    training: int
    inputs: Array  # (F, n)
    target: Array  # (n,)
    knots: Knots | None = None
    position: Array | None = None

    def trained(self, least: int) -> int:
        """How many rows train: all, where those held out are too few to hide in their sums."""
        return self.training if self.count - self.training >= least else self.count

    def positions(self, knots: Knots) -> Array:
        if self.position is None or self.knots != knots:
            self.knots, self.position = knots, positions(self.inputs, knots)
        return self.position


def _prepare(question: Question, data: Dataset) -> _Rows:
    """Scale and sort the rows once per domain; kept in the dataset's memo."""
    domain, holdout = question.domain, question.parameters.holdout
    known = data.memo.get(NAME)
    if isinstance(known, _Rows) and known.holdout == holdout and known.domain == domain:
        return known
    chosen = select_numbers(data, domain)
    scaled = np.ascontiguousarray(domain.scale_inputs(chosen.X).T)
    target = domain.scale_target(chosen.y)
    held = is_held_out(scaled, target, holdout)
    order = np.concatenate([np.flatnonzero(~held), np.flatnonzero(held)])
    rows = _Rows(domain, holdout, data.rows, int((~held).sum()), scaled[:, order], target[order])
    data.memo[NAME] = rows
    return rows


# --- sums of products -----------------------------------------------------------------------------------------------


def _products(rows: _Rows, columns: Sequence[int], chosen: NDArray[np.intp] | slice) -> Array:
    """Return the products of all pairs of ``[1, x, y]``, on the grid, shape (pairs, n)."""
    k = len(columns) + 2
    target = rows.target[chosen]
    line = np.empty((k, len(target)))
    line[0] = 1.0
    for place, feature in enumerate(columns):
        line[place + 1] = rows.inputs[feature][chosen]
    line[-1] = target
    products = np.empty((k * (k + 1) // 2, len(target)))
    line_grid = line * _GRID
    start = 0
    for i in range(k):
        np.multiply(line[i], line_grid[i:], out=products[start : start + k - i])
        start += k - i
    np.rint(products, out=products)
    return products


def _add_products(total: Ints, weights: Array, products: Array) -> None:
    """Add ``weights @ products.T`` to `total`, exactly: all are integers, and a block's sums are below 2^53."""
    total += (weights @ products.T).astype(np.int64)


def _weighted(rows: _Rows, columns: Sequence[int], weight: Array, cuts: Sequence[Cut], position: Array) -> Ints:
    """Return the sums of a node, and of the lower side of each cut, shape (1 + cuts, pairs)."""
    k = len(columns) + 2
    total = np.zeros((1 + len(cuts), k * (k + 1) // 2), dtype=np.int64)
    there = np.flatnonzero(weight)
    by_input: dict[int, list[int]] = {}
    for place, (feature, _) in enumerate(cuts):
        by_input.setdefault(feature, []).append(place)
    size = min(BLOCK_ROWS, max(_PRODUCTS // total.shape[1], 16))
    for block in blocks(len(there), size):
        chosen = there[block]
        w = weight[chosen]
        lines = np.empty((1 + len(cuts), len(chosen)))
        np.rint(w * _GRID, out=lines[0])
        for feature, places in by_input.items():
            at = np.array([cuts[place][1] for place in places], dtype=np.float64)
            part = up_to(at[:, None], position[feature][chosen])
            part *= w
            part *= _GRID
            lines[[1 + place for place in places]] = np.rint(part, out=part)
        _add_products(total, lines, _products(rows, columns, chosen))
    return total


# --- rows stay together ---------------------------------------------------------------------------------------------


def _together(least: int) -> Callable[[Array, Array], bool | None]:
    """Return the rule by which a vehicle's rows follow a split only when neither side would hold too few of them."""

    def keep(lower: Array, upper: Array) -> bool | None:
        below, above = int(np.count_nonzero(lower)), int(np.count_nonzero(upper))
        if 0 < below < least or 0 < above < least:
            return above > below
        return None

    return keep


def _reach(question: Question, tree: Tree, position: Array, nodes: Sequence[int]) -> dict[int, Array]:
    """Return the degrees of `nodes`, rows of small groups staying with the others."""
    least = question.parameters.min_rows
    return degrees(tree, position, nodes, _together(least)) if least > 1 else degrees(tree, position, nodes)


def _hide_small_steps(lower: Ints, whole: Ints, cuts: Sequence[Cut], position: Array, least: int) -> int:
    """Replace sums from which, by differences, those of fewer than `least` rows could be had; return how many.

    Rows between two cuts of one input are what their sums differ by. Going up, a cut that adds too few rows to the
    last that was kept gets the same sums; and the highest cuts that leave too few rows above get the node's.
    """
    hidden = 0
    by_input: dict[int, list[int]] = {}
    for place, (feature, _) in enumerate(cuts):
        by_input.setdefault(feature, []).append(place)
    for feature, places in by_input.items():
        line = np.sort(position[feature])
        n = len(line)
        kept_sums, kept = np.zeros_like(whole), -1
        for place in places:
            cut = cuts[place][1]
            reach = int(np.searchsorted(line, cut + 1.0, side="left"))  # rows below the end of the cut's blend
            passed = 0 if kept < 0 else int(np.searchsorted(line, float(kept), side="right"))
            above = n - int(np.searchsorted(line, float(cut), side="right"))
            if 0 < above < least:
                hidden += int(not np.array_equal(lower[place], whole))
                lower[place] = whole
            elif 0 < reach - passed < least:
                hidden += int(not np.array_equal(lower[place], kept_sums))
                lower[place] = kept_sums
            else:
                kept_sums, kept = lower[place], cut
    return hidden


# --- the four answers -----------------------------------------------------------------------------------------------


def _scan(question: Question, rows: _Rows) -> tuple[dict[str, Ints], int]:
    """Count all rows in histograms; sum the products of all inputs over the training rows."""
    least = question.parameters.min_rows
    counts = histogram(rows.inputs)
    hidden = sum(join_small(line, least) for line in counts) if least > 1 else 0
    training = rows.trained(least)
    weight = np.ones(training)
    if training < least:
        hidden += int(training > 0)
        weight[:] = 0.0
    gram = _weighted(rows, question.columns, weight, [], rows.inputs)[0]
    return {"histogram": counts, "gram": gram, "training": np.array([training], dtype=np.int64)}, hidden


def _grow(question: Question, rows: _Rows) -> tuple[dict[str, Ints], int]:
    """Sum over the training rows: the nodes asked about and the lower side of each of their cuts."""
    least, hidden = question.parameters.min_rows, 0
    position = rows.positions(question.knots)[:, : rows.trained(least)]
    reached = _reach(question, question.tree, position, question.nodes)
    whole, lower = [], []
    for node in question.nodes:
        weight, cuts = reached[node], [question.cuts[place] for place in question.cuts_of[node]]
        there = weight > 0.0
        if 0 < np.count_nonzero(there) < least:  # only at a root with so few rows: elsewhere they stay together
            weight, hidden = np.zeros_like(weight), hidden + 1
        sums = _weighted(rows, question.columns, weight, cuts, position)
        if least > 1 and weight.any():
            hidden += _hide_small_steps(sums[1:], sums[0], cuts, position[:, there], least)
        whole.append(sums[0])
        lower.append(sums[1:])
    return {"whole": np.stack(whole), "lower": np.concatenate(lower)}, hidden


def _leaves(question: Question, rows: _Rows) -> tuple[dict[str, Ints], int]:
    """Sum all rows of the final leaves; the training rows alone where too few others came to a leaf."""
    least, hidden = question.parameters.min_rows, 0
    position = rows.positions(question.knots)
    leaves = question.tree.leaves
    reached = _reach(question, question.tree, position, leaves)
    training = rows.trained(least)
    gram = []
    for leaf in leaves:
        weight = reached[leaf]
        if 0 < np.count_nonzero(weight[training:]) < least:
            weight, hidden = weight.copy(), hidden + 1
            weight[training:] = 0.0
        if 0 < np.count_nonzero(weight) < least:
            weight, hidden = np.zeros_like(weight), hidden + 1
        gram.append(_weighted(rows, question.columns, weight, [], position)[0])
    return {"gram": np.stack(gram)}, hidden


def _sizes(question: Question, rows: _Rows) -> tuple[dict[str, Ints], int]:
    """Sum squared errors over the held-out rows: for each variant, way of inference and number of rules."""
    assert question.coefficients is not None
    variants, tree = question.coefficients.shape[0], question.tree
    errors = np.zeros((variants, 2, len(tree.splits) + 1), dtype=np.int64)
    held = rows.count - rows.trained(question.parameters.min_rows)
    for block in blocks(held, BLOCK_ROWS):
        part = slice(rows.count - held + block.start, rows.count - held + block.stop)
        position = rows.positions(question.knots)[:, part]
        target = rows.target[part]
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
                for way, answer in enumerate(answers):
                    error = np.minimum(np.maximum(answer, 0.0), 1.0) - target
                    errors[variant, way, size] += int(to_grid(error * error, ERROR_BITS).sum())
    return {"errors": errors, "held_out": np.array([held], dtype=np.int64)}, 0


def outputs_of(coefficients: Array, inputs: Array) -> Array:
    """Return a polynomial's value, shape (n,), at scaled inputs, shape (R, n); element-wise, in one order."""
    output = np.full(inputs.shape[1], coefficients[0])
    for place in np.flatnonzero(coefficients[1:]):
        output += coefficients[1 + place] * inputs[place]
    return output
