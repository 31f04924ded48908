"""The vehicle's half: finds rules in its rows, and says with exact sums what its rows say about given ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution
from glassfleet.contract.rows import select_numbers
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.data.sampling import is_first, row_hashes
from glassfleet.errors import TaskError
from glassfleet.fuzzy.matching import WEIGHTS
from glassfleet.fuzzy.partition import Memberships, fuzzify
from glassfleet.numerics.statistics import blocks, carry, gram_sums, pack_symmetric, to_grid, weigh
from glassfleet.private.columns import CELLS, count_values, layers_of
from glassfleet.private.layout import draws
from glassfleet.schemes.tsk.clusters import ClusterRows, change, fuzzy_c_means, moments
from glassfleet.schemes.tsk.messages import NAME, POWERS, TskQuestion, powers_of
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.rules import DUST, TskRuleBase, antecedents_of, has_otherwise, outputs, strengths
from schemas.codec import Value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROW_BLOCK = 1 << 13
"""Most rows handled together: sums of strengths are exact in float64 for so many, at 40 fraction bits."""

_ENTRIES = 1 << 21
"""Most (rule, row) pairs held at a time."""


def answer(question: TskQuestion, data: Dataset) -> Contribution:
    """Return what one vehicle's rows say to a question."""
    rows = _prepare(question, data)
    answers = {
        "rules": _rules,
        COLUMNS: _columns,
        "clusters": _clusters,
        "strengths": _strengths,
        SUPPORT: _support,
        "sums": _sums,
        "weights": _weights,
    }
    return answers[question.kind](question, rows)


@dataclass
class _TskRows:
    """A vehicle's rows, scaled and fuzzified, for one domain and partition; and what is remembered about them."""

    members: Memberships
    columns: Floats  # (F + 2, n): scaled inputs, ones, scaled target
    centres: dict[Any, Floats] = field(default_factory=dict)  # centres by the parameters of the clustering
    table: ClusterRows | None = None
    latest: tuple[bytes, list[Floats]] | None = None  # centres and memberships of the last iteration

    @property
    def count(self) -> int:
        return int(self.columns.shape[1])

    @property
    def inputs(self) -> Floats:
        return self.columns[:-2]

    @property
    def target(self) -> Floats:
        target: Floats = self.columns[-1]
        return target

    @cached_property
    def different(self) -> NDArray[np.bool_]:
        """Which rows are no repetition of another one, shape (n,)."""
        return is_first(self.hashes)

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """A hash of each row, shape (n,)."""
        return row_hashes(self.inputs, self.target)

    def strengths(self, antecedents: NDArray[np.int8]) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of rows and the strengths of rules for them, shape (r, n); dust is swept."""
        size = min(ROW_BLOCK, max(64, _ENTRIES // max(1, len(antecedents))))
        for block in blocks(self.count, size):
            part = Memberships(self.members.n_sets, self.members.lower[:, block], self.members.upper[:, block])
            strength = strengths(antecedents, part)
            strength[strength < DUST] = 0.0
            yield block, strength


def _prepare(question: TskQuestion, data: Dataset) -> _TskRows:
    """Condense, scale and fuzzify the rows once per domain and partition; kept in the dataset's memo."""
    key = (question.domain, question.parameters.n_sets, question.parameters.group_rows)
    return remembered(data.memo, NAME, key, lambda: _prepared(data, *key))


def _prepared(data: Dataset, domain: Domain, n_sets: int, group_rows: int) -> _TskRows:
    own = condensed(select_numbers(data, domain), domain, group_rows)
    scaled = domain.scale_inputs(own.X)
    columns = np.ones((scaled.shape[1] + 2, scaled.shape[0]))
    columns[:-2] = scaled.T
    columns[-1] = domain.scale_target(own.y)
    return _TskRows(fuzzify(scaled, n_sets), columns)


def _product(rows: _TskRows) -> list[Floats]:
    """Return the columns of the product space X x Y."""
    return [*rows.inputs, rows.target]


# --- rules of one's own ---------------------------------------------------------------------------------------------


def _own_antecedents(parameters: TskParameters, rows: _TskRows) -> NDArray[np.int8]:
    """Return the antecedents of the clusters of these rows."""
    key = (parameters.n_clusters, parameters.cluster_seed, parameters.tolerance, parameters.max_iterations)
    centres = rows.centres.get(key)
    if centres is None:
        centres = fuzzy_c_means(
            _product(rows),
            parameters.n_clusters,
            seed=parameters.cluster_seed,
            tolerance=parameters.tolerance,
            max_iterations=parameters.max_iterations,
        )
        rows.centres.clear()
        rows.centres[key] = centres
    return antecedents_of(centres[:, :-1], parameters.n_sets)


def _rules(question: TskQuestion, rows: _TskRows) -> Contribution:
    """Find rules; with averaged consequents, also fit and weigh them."""
    parameters = question.parameters
    antecedents = _own_antecedents(parameters, rows)
    if parameters.consequents == "pooled":
        values: dict[str, Value] = {"antecedents": antecedents}
    else:
        base = _fit_and_weigh(question, rows, antecedents)
        values = {name: getattr(base, name) for name in ("antecedents", "coefficients", *WEIGHTS)}
    return Contribution("rules", rows.count, values=values)


def _own_consequents(rows: _TskRows, antecedents: NDArray[np.int8]) -> Floats:
    """Return each rule's polynomial, shape (r, F + 1): weighted least squares of least norm on one's own rows.

    From the rows themselves (singular values of sqrt(w) [x, 1]), not from their Gram sums: a rule of an agent rests on
    about as many rows as it has unknowns, and on strengths down to 1e-12. The published averages change in the second
    digit when such a system's condition number is squared.
    """
    coefficients = np.zeros((len(antecedents), len(rows.columns) - 1))
    parts = []
    for block, strength in rows.strengths(antecedents):
        rule, row = np.nonzero(strength)
        parts.append((rule, row + block.start, strength[rule, row]))
    if not parts:
        return coefficients
    rule, row, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rule, kind="stable")
    ends = np.cumsum(np.bincount(rule, minlength=len(antecedents)))
    for line, own in enumerate(np.split(order, ends[:-1])):  # rules, not rows: at most n_clusters
        if not own.size:
            continue
        scaled = rows.columns[:, row[own]] * np.sqrt(weight[own])
        try:
            coefficients[line] = np.linalg.lstsq(scaled[:-1].T, scaled[-1], rcond=None)[0]
        except np.linalg.LinAlgError as fault:
            raise TaskError(f"the consequent of a rule cannot be computed: {fault}") from fault
    return coefficients + 0.0


def _fit_and_weigh(question: TskQuestion, rows: _TskRows, antecedents: NDArray[np.int8]) -> TskRuleBase:
    """Return one's own rules, with quality relative to one's own smallest and largest error, as in the paper."""
    coefficients = _own_consequents(rows, antecedents)
    smallest, largest = np.inf, 0.0
    for block in blocks(rows.count, ROW_BLOCK):
        error = np.abs(outputs(coefficients, rows.inputs[:, block]) - rows.target[block])
        if error.size:
            smallest, largest = min(smallest, float(error.min())), max(largest, float(error.max()))
    bits, width = question.parameters.fraction_bits, largest - smallest
    ws, wq = (np.zeros(len(antecedents), dtype=np.int64) for _ in range(2))
    for block, strength in rows.strengths(antecedents):
        error = np.abs(outputs(coefficients, rows.inputs[:, block]) - rows.target[block])
        quality = 1.0 - (error - smallest) / width if width > 0 else np.zeros_like(error)
        ws += to_grid(strength, bits).sum(axis=1).astype(np.int64)
        wq += to_grid(strength * quality, bits).sum(axis=1).astype(np.int64)
    return TskRuleBase(antecedents, coefficients, *weigh(ws, wq, rows.count, bits))


# --- sums about given centres and rules -----------------------------------------------------------------------------


def _clusters(question: TskQuestion, rows: _TskRows) -> Contribution:
    """Take part in one iteration of the fleet's clustering."""
    assert question.centres is not None
    parameters, centres = question.parameters, question.centres
    if rows.table is None:
        rows.table = ClusterRows.of(_product(rows))
    table, clusters = rows.table, parameters.n_clusters

    def memberships(iteration: int) -> list[Floats]:
        key = centres[iteration].tobytes()
        if rows.latest is not None and rows.latest[0] == key:
            return rows.latest[1]
        return list(table.memberships(centres[iteration]))

    last = len(centres) - 1
    before = memberships(0) if last else []
    u = memberships(last)
    rows.latest = (centres[last].tobytes(), u)
    sums = moments(table, u, clusters)
    moved = change(before, u) if last else 0
    answer = {"moment_high": sums.high, "moment_low": sums.low, "change": np.array([moved], dtype=np.int64)}
    return Contribution("clusters", rows.count, answer)


def _drawn(question: TskQuestion, rows: _TskRows) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rows and the strengths of the question's rules for them, shape (r, n).

    OTHERWISE has what all others leave. Of two sets of rules, asked of two editions, nobody counts in which rows their
    OTHERWISE differ, less the rules in which the sets differ. So with support rows have draws in it.
    """
    antecedents, parameters = question.antecedents, question.parameters
    assert antecedents is not None
    is_drawn = parameters.support > 0 and has_otherwise(antecedents, parameters.n_sets)
    drawn = draws(rows.hashes, antecedents.tolist()) if is_drawn else None
    for block, strength in rows.strengths(antecedents):
        if drawn is not None:
            strength[-1] *= drawn[block]
        yield block, strength


def _regressions(question: TskQuestion, rows: _TskRows) -> dict[str, Ints]:
    """Return the sums GRAM_SUMS of the question's rules."""
    assert question.antecedents is not None
    r, k, bits = len(question.antecedents), question.gram_columns, question.parameters.gram_bits
    high, low = (np.zeros((r, k, k), dtype=np.int64) for _ in range(2))
    ws, count = (np.zeros(r, dtype=np.int64) for _ in range(2))
    for block, strength in _drawn(question, rows):
        columns = rows.columns[:, block]
        ws += to_grid(strength, question.parameters.fraction_bits).sum(axis=1).astype(np.int64)
        here = np.count_nonzero(strength, axis=1)
        count += here
        for rule in np.flatnonzero(here):
            at = np.flatnonzero(strength[rule])
            scaled = to_grid(columns[:, at] * np.sqrt(strength[rule, at]), bits)
            if question.columns is not None:
                scaled[:-2][~question.columns[rule, :-1]] = 0.0
            limbs = gram_sums(scaled, bits=bits)
            high[rule] += limbs[0]
            low[rule] += limbs[1]
    # Carry, so that the low limb is as small as one agent's can be, however the rows were blocked.
    high, low = carry(high, low, bits=bits)
    return {"gram_high": pack_symmetric(high), "gram_low": pack_symmetric(low), "ws": ws, "count": count}


def _columns(_: TskQuestion, rows: _TskRows) -> Contribution:
    """Count the values of different rows."""
    own = rows.columns[:, rows.different]
    return Contribution(COLUMNS, rows.count, {"rows": count_values(own[:-2], own[-1], CELLS)})


def _strengths(question: TskQuestion, rows: _TskRows) -> Contribution:
    """Say in which powers of 8 there are strengths of each rule."""
    assert question.antecedents is not None
    present = np.zeros((len(question.antecedents), POWERS), dtype=np.int64)
    for _, strength in _drawn(question, rows):
        rule, row = np.nonzero(strength)
        present[rule, powers_of(strength[rule, row])] = 1
    return Contribution("strengths", rows.count, {"present": present})


def _support(question: TskQuestion, rows: _TskRows) -> Contribution:
    """Count the different rows of each rule by layer, heavy and light ones; what is enough is not told exactly."""
    assert question.antecedents is not None
    assert question.cuts is not None
    layers = rows.different & layers_of(rows.inputs, rows.target, question.common, CELLS)
    counts = np.zeros((len(question.antecedents), len(layers), 2), dtype=np.int64)
    for block, strength in _drawn(question, rows):
        fires, is_heavy = strength > 0.0, powers_of(strength) <= question.cuts[:, None]
        there = layers[:, block].T.astype(np.float64)  # exact, and several times as fast as integers
        for part, which in enumerate((fires & is_heavy, fires & ~is_heavy)):
            counts[:, :, part] += (which.astype(np.float64) @ there).astype(np.int64)
    enough = np.minimum(counts, question.least_of[:, None])
    return Contribution(SUPPORT, rows.count, {"rows": enough.reshape(-1, 2)})


def _sums(question: TskQuestion, rows: _TskRows) -> Contribution:
    assert question.antecedents is not None
    return Contribution("sums", rows.count, _regressions(question, rows))


def _weights(question: TskQuestion, rows: _TskRows) -> Contribution:
    """Sum the quality of given rules: 1 - min(|error|, 1), whose range does not depend on anybody's rows."""
    assert question.antecedents is not None
    assert question.coefficients is not None
    r, bits = len(question.antecedents), question.parameters.fraction_bits
    ws, wq = np.zeros(r, dtype=np.int64), np.zeros(r, dtype=np.int64)
    for block, strength in _drawn(question, rows):
        error = np.abs(outputs(question.coefficients, rows.inputs[:, block]) - rows.target[block])
        quality = 1.0 - np.minimum(error, 1.0)
        ws += to_grid(strength, bits).sum(axis=1).astype(np.int64)
        wq += to_grid(strength * quality, bits).sum(axis=1).astype(np.int64)
    return Contribution("weights", rows.count, {"ws": ws, "wq": wq})
