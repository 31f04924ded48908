"""The vehicle's half: answers a task from its rows with exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution
from glassfleet.contract.rows import select_numbers
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.data.sampling import is_first, row_hashes
from glassfleet.fuzzy.partition import Memberships, fuzzify
from glassfleet.numerics.statistics import blocks, carry, gram_sums, pack_symmetric, sum_by_cell, to_grid
from glassfleet.private.columns import CELLS, count_values, layers_of
from glassfleet.schemes.frt.messages import CELL_SUMS, NAME, NODE_SUMS, FrtQuestion
from glassfleet.schemes.frt.params import CELL_ROWS, LEAST_STRENGTH
from glassfleet.schemes.frt.tree import Reached, reach_leaves

ROW_BLOCK = 1 << 12
"""Rows handled together: few enough for the processor's cache, and for exact products."""

_CHUNK = 1 << 14
"""Entries times features handled together: a dozen arrays of 128 kB, and no slower than larger ones."""

_STRONG = float(1 << 26)  # counts and strong counts share one float: each is below 2^26 in a block


def answer(question: FrtQuestion, data: Dataset) -> Contribution:
    """Return the sums of a question over one vehicle's rows."""
    rows = _prepare(question, data)
    answers = {COLUMNS: _columns, "level": _level, "leaves": _leaves, "weights": _weights, SUPPORT: _support}
    return answers[question.kind](question, rows)


@dataclass
class _FrtRows:
    """A vehicle's rows for one domain, in their own units."""

    data: Dataset
    domain: Domain

    @property
    def count(self) -> int:
        return self.data.rows

    def blocks(self) -> Iterator[NDArray[np.float64]]:
        """Yield scaled inputs, ones and scaled target of some rows, shape (F + 2, n).

        Made anew for each answer, as are memberships and the nodes that rows reach: some ms, where keeping them takes
        the rows twice more.
        """
        for block in blocks(self.count, ROW_BLOCK):
            target = self.domain.scale_target(self.data.y[block])
            yield np.vstack([self.domain.scale_inputs(self.data.X[block]).T, np.ones(len(target)), target])

    @cached_property
    def different(self) -> list[NDArray[np.bool_]]:
        """Return which rows of each block are no repetition of another one."""
        hashes = [row_hashes(columns[:-2], columns[-1]) for columns in self.blocks()]
        first = is_first(np.concatenate([np.empty(0, dtype=np.uint64), *hashes]))
        return [first[block] for block in blocks(self.count, ROW_BLOCK)]


def _prepare(question: FrtQuestion, data: Dataset) -> _FrtRows:
    """Condense the rows once per domain; kept in the dataset's memo."""
    key = (question.domain, question.parameters.group_rows)
    return remembered(data.memo, NAME, key, lambda: _prepared(data, *key))


def _prepared(data: Dataset, domain: Domain, group_rows: int) -> _FrtRows:
    return _FrtRows(condensed(select_numbers(data, domain), domain, group_rows), domain)


def _members(question: FrtQuestion, columns: NDArray[np.float64]) -> Memberships:
    return fuzzify(columns[:-2].T, question.parameters.n_sets)


def _reach_frontier(question: FrtQuestion, members: Memberships) -> Reached:
    """Return the entries of the nodes asked about, which are of one level."""
    reached = Reached.root(members.rows)
    for _ in range(int(question.tree.depth[question.nodes[0]])):
        reached = reached.descend(question.tree, members)
    return reached.only_at(question.position)


def _reach_leaves(question: FrtQuestion, columns: NDArray[np.float64]) -> Reached:
    """Return the entries of the leaves asked about, in the order of leaves."""
    reached = reach_leaves(question.tree, _members(question, columns)).only_at(question.position)
    order = np.argsort(reached.node, kind="stable")
    return Reached(reached.row[order], reached.node[order], reached.strength[order])


# --- the answers ----------------------------------------------------------------------------------------------


def _level(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    cells = np.zeros((len(CELL_SUMS), f, m * t), dtype=np.int64)
    nodes = np.zeros((len(NODE_SUMS), m), dtype=np.int64)
    for columns in rows.blocks():
        members = _members(question, columns)
        reached = _reach_frontier(question, members)
        _add_level(question, columns[-1], members, reached, cells=cells, nodes=nodes)
    parts = np.ascontiguousarray(cells.reshape(len(CELL_SUMS), f, m, t).transpose(0, 2, 1, 3))
    parts *= question.free[:, :, None]
    nullified = 0
    if question.parameters.nullify and question.parameters.group_rows == 1:
        few = (nodes[0] >= 1) & (nodes[0] < CELL_ROWS)
        nodes *= ~few
        nullified = int(few.sum()) + _check_and_nullify(question, parts)
    sums = {f"cell_{name}": part for name, part in zip(CELL_SUMS, parts, strict=True)}
    sums |= {f"node_{name}": part for name, part in zip(NODE_SUMS, nodes, strict=True)}
    return Contribution("level", rows.count, sums, nullified=nullified)


def _support(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    """Count the rows that would be in each cell, equal ones once; what is enough is not told exactly."""
    if question.common is not None:
        return _support_of_leaves(question, rows)
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    grid = float(1 << question.parameters.fraction_bits)
    count = np.zeros((f, m * t), dtype=np.int64)
    for columns, different in zip(rows.blocks(), rows.different, strict=True):
        members = _members(question, columns)
        reached = _reach_frontier(question, members)
        first = question.position[reached.node] * t
        for feature in range(f):
            upper = members.upper[feature].take(reached.row)
            at = members.lower[feature].take(reached.row) + first
            for cell, degree in ((at, 1.0 - upper), (at + 1, upper)):
                # A row whose rounded strength is 0 is in no sum: it hides nobody, nor does one like another.
                counted = (np.rint(reached.strength * grid * degree) > 0.0) & different[reached.row]
                count[feature] += np.bincount(cell[counted], minlength=m * t)
    cells = count.reshape(f, m, t).transpose(1, 0, 2) * question.free[:, :, None]
    enough = np.minimum(cells, question.least_rows).astype(np.int64)
    return Contribution(SUPPORT, rows.count, {"rows": enough})


def _columns(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    """Count the values of different rows."""
    counts = np.zeros((question.n_features + 1, CELLS), dtype=np.int64)
    for columns, different in zip(rows.blocks(), rows.different, strict=True):
        counts += count_values(columns[:-2, different], columns[-1, different], CELLS)
    return Contribution(COLUMNS, rows.count, {"rows": counts})


def _support_of_leaves(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    """Count the different rows in each leaf, and those of other values: heavy ones, and light ones."""
    assert question.common is not None
    counts = np.zeros((2, len(question.least_of), len(question.nodes)), dtype=np.int64)
    for columns, different in zip(rows.blocks(), rows.different, strict=True):
        reached = _reach_leaves(question, columns)
        layers = different & layers_of(columns[:-2], columns[-1], question.common, CELLS)
        at = question.position[reached.node]
        is_heavy = reached.strength >= LEAST_STRENGTH
        for part, weighs in enumerate((is_heavy, ~is_heavy)):
            for number, layer in enumerate(layers):
                counts[part, number] += np.bincount(at[weighs & layer[reached.row]], minlength=len(question.nodes))
    enough = np.minimum(counts.transpose(2, 1, 0), question.least_of[:, None])
    return Contribution(SUPPORT, rows.count, {"rows": enough.reshape(-1, 2)})


def _add_level(
    question: FrtQuestion,
    scaled_target: NDArray[np.float64],
    members: Memberships,
    reached: Reached,
    *,
    cells: NDArray[np.int64],
    nodes: NDArray[np.int64],
) -> None:
    """Add one block's sums to `cells`, shape (5, F, m T), and `nodes`, shape (4, m)."""
    bits, t = question.parameters.fraction_bits, question.parameters.n_sets
    m, f = len(question.nodes), question.n_features
    grid = float(1 << bits)
    # Half the strength per level; 2^bits is a power of two, so scaling first rounds no differently from scaling last.
    strong = 0.5 ** (int(question.tree.depth[question.nodes[0]]) + 1) * grid
    position = question.position[reached.node]
    strength = reached.strength * grid
    y = scaled_target[reached.row]
    nodes[0] += np.bincount(position, minlength=m)
    for k, terms in enumerate(_powers(strength, y)):
        nodes[k + 1] += sum_by_cell(position, np.rint(terms), m, bits=bits)
    base = position * t
    for start in range(0, reached.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, reached.size))
        row, w, target, first = reached.row[part], strength[part], y[part], base[part]
        together = max(1, _CHUNK // len(row))  # features at once: few calls for few rows, small temporaries for many
        for features in blocks(f, together):
            upper = members.upper[features].take(row, axis=1)
            at = members.lower[features].take(row, axis=1) + first
            at += np.arange(len(at))[:, None] * (m * t)
            total = cells[:, features].reshape(len(CELL_SUMS), -1)
            size = total.shape[1]
            for cell, degree in ((at.ravel(), 1.0 - upper), (at.ravel() + 1, upper)):
                child = w * degree
                counted = (child > 0.0) + (child >= strong) * _STRONG
                counts = np.bincount(cell, weights=counted.ravel(), minlength=size).astype(np.int64)
                total[0] += counts & (int(_STRONG) - 1)
                total[1] += counts >> 26
                for k, terms in enumerate(_powers(child, target)):
                    total[k + 2] += sum_by_cell(cell, np.rint(terms).ravel(), size, bits=bits)
            cells[:, features] = total.reshape(len(CELL_SUMS), -1, m * t)


def _powers(
    strength: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return w, w y and w y^2, multiplied in this order (so that the second is never above the first)."""
    linear = strength * y
    return strength, linear, linear * y


def _check_and_nullify(question: FrtQuestion, parts: NDArray[np.int64]) -> int:
    """Zero, in the order of sets, the cells that could give a row away; return how many held something.

    `parts` has shape (5, m, F, T), changed in place. A cell is zeroed when it rests on 1 or 2 rows; when its node is
    the root and every row in it is in it fully; when it has strength and neither neighbour has. A set beyond the
    partition has none, and a neighbour that was zeroed before counts as zero.
    """
    count, _, ws, _, _ = parts
    bits, t = question.parameters.fraction_bits, question.parameters.n_sets
    root = (question.nodes == 0)[:, None]
    nothing = np.zeros(count.shape[:2], dtype=bool)
    nullified = 0
    for j in range(t):
        few = (count[..., j] >= 1) & (count[..., j] < CELL_ROWS)
        crisp = root & (count[..., j] > 0) & (ws[..., j] == count[..., j] << bits)
        left = ws[..., j - 1] > 0 if j > 0 else nothing
        right = ws[..., j + 1] > 0 if j + 1 < t else nothing
        alone = (ws[..., j] > 0) & ~left & ~right
        zeroed = few | crisp | alone
        nullified += int(zeroed.sum())
        parts[..., j] *= ~zeroed
    return nullified


def _leaves(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    m, k, bits = len(question.nodes), question.gram_columns, question.parameters.gram_bits
    high, low = (np.zeros((m, k, k), dtype=np.int64) for _ in range(2))
    ws = np.zeros(m, dtype=np.int64)
    count = np.zeros(m, dtype=np.int64)
    for columns in rows.blocks():
        reached = _reach_leaves(question, columns)
        if question.columns is not None:
            reached = reached.only(question.columns[question.position[reached.node], -1])
        position = question.position[reached.node]
        here = np.bincount(position, minlength=m)
        count += here
        ws += _strengths(question, reached, position)
        root = np.sqrt(reached.strength)
        ends = np.cumsum(here)
        for leaf in np.flatnonzero(here):
            part = slice(ends[leaf] - here[leaf], ends[leaf])
            scaled = to_grid(columns[-k:, reached.row[part]] * root[part], bits)
            if question.columns is not None:
                scaled[:-2][~question.columns[leaf, :-1]] = 0.0
            limbs = gram_sums(scaled, bits=bits)
            high[leaf] += limbs[0]
            low[leaf] += limbs[1]
    # Carry, so that the low limb is as small as one agent's can be, however the rows were blocked.
    high, low = carry(high, low, bits=bits)
    sums = {"gram_high": pack_symmetric(high), "gram_low": pack_symmetric(low), "ws": ws, "count": count}
    return Contribution("leaves", rows.count, sums)


def _weights(question: FrtQuestion, rows: _FrtRows) -> Contribution:
    m, bits = len(question.nodes), question.parameters.fraction_bits
    assert question.coefficients is not None
    ws, wq = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    for columns in rows.blocks():
        reached = _reach_leaves(question, columns)
        position = question.position[reached.node]
        ws += _strengths(question, reached, position)
        output = question.coefficients[position, -1]
        for feature in range(question.n_features):
            output = output + question.coefficients[position, feature] * columns[feature, reached.row]
        quality = 1.0 - np.minimum(np.abs(output - columns[-1, reached.row]), 1.0)
        wq += sum_by_cell(position, to_grid(reached.strength * quality, bits), m, bits=bits)
    return Contribution("weights", rows.count, {"ws": ws, "wq": wq})


def _strengths(question: FrtQuestion, reached: Reached, position: NDArray[np.intp]) -> NDArray[np.int64]:
    bits = question.parameters.fraction_bits
    return sum_by_cell(position, to_grid(reached.strength, bits), len(question.nodes), bits=bits)
