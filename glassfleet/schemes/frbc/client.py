"""The vehicle's half: finds rules in its rows, and says with exact sums what its rows say about given rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution
from glassfleet.contract.rows import class_numbers, known_class_numbers, select_columns
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.partition import Memberships, fuzzify
from glassfleet.private.union import fill
from glassfleet.schemes.frbc.matching import AntecedentTree, limb_block, pack, sort_rules, split, strongest_sets
from glassfleet.schemes.frbc.messages import NAME, Candidates, FrbcQuestion, key_of
from glassfleet.schemes.frbc.params import MAX_CELLS, MAX_RULES

Sums = dict[str, NDArray[np.int64]]

ROW_BLOCK = 1 << 12
"""Rows matched together: few enough for exact float64 sums at any grid, and for the cache."""


def answer(question: FrbcQuestion, data: Dataset) -> Contribution:
    """Return what one vehicle's rows say to a question."""
    rows = _prepare(question, data)
    answers = {"rules": _rules, "union": _union, "strengths": _strengths, "prefixes": _prefixes, SUPPORT: _support}
    return answers[question.kind](question, rows)


@dataclass(frozen=True)
class _FrbcRows:
    """The rows whose label is one of the run's classes, for one domain and partition."""

    members: Memberships
    classes: NDArray[np.intp]
    unknown: int

    @property
    def count(self) -> int:
        """Rows, those of unknown classes included."""
        return len(self.classes) + self.unknown


def _prepare(question: FrbcQuestion, data: Dataset) -> _FrbcRows:
    """Condense, scale, fuzzify and number the classes once per domain and partition; kept in the dataset's memo."""
    key = (question.domain, question.parameters.n_sets, question.parameters.group_rows)
    return remembered(data.memo, NAME, key, lambda: _prepared(data, *key))


def _prepared(data: Dataset, domain: Domain, n_sets: int, group_rows: int) -> _FrbcRows:
    known_class_numbers(data, domain)
    own = condensed(select_columns(data, domain), domain, group_rows)
    numbers = class_numbers(own, domain)
    here = numbers >= 0
    members = fuzzify(domain.scale_inputs(own.X[here]), n_sets)
    unknown = int(here.size - np.count_nonzero(here))
    return _FrbcRows(members, numbers[here].astype(np.intp), unknown)


# --- the first answer: rules ----------------------------------------------------------------------------------------


def _rules(question: FrbcQuestion, rows: _FrbcRows) -> Contribution:
    """Found one rule per row (Chi), without duplicates; conflicts stay."""
    parameters = question.parameters
    antecedents = strongest_sets(rows.members)
    words, classes = pack(antecedents, parameters.n_sets), rows.classes.astype(np.int16)
    order, new = sort_rules(words, classes)
    chosen = order[new]
    if chosen.size > MAX_RULES:
        raise TaskError(f"{chosen.size} rules here, at most {MAX_RULES} travel; use fewer sets")
    rules = Candidates(words[chosen], classes[chosen], antecedents[chosen])
    values = rules.to_value()
    if parameters.weights == "owners":
        values |= _weigh(question, rules, rows)
    return Contribution("rules", rows.count, _by_class(question, rows), values)


def _union(question: FrbcQuestion, rows: _FrbcRows) -> Contribution:
    """Tell the same rules, and how many rows found each, as a table that adds up over agents."""
    n_sets = question.parameters.n_sets
    words, classes = pack(strongest_sets(rows.members), n_sets), rows.classes.astype(np.int16)
    order, new = sort_rules(words, classes)
    times = np.diff(np.append(np.flatnonzero(new), len(order)))
    chosen = order[new]
    table = fill(key_of(words[chosen], classes[chosen]), times.astype(np.int64), question.cells)
    return Contribution("union", rows.count, {**_by_class(question, rows), "table": table})


def _prefixes(question: FrbcQuestion, rows: _FrbcRows) -> Contribution:
    """Count the rows that could have found a rule that begins in these ways."""
    count = _count_prefixes(question, strongest_sets(rows.members), rows.classes)
    return Contribution("prefixes", rows.count, {**_by_class(question, rows), "rows": count})


def _by_class(question: FrbcQuestion, rows: _FrbcRows) -> Sums:
    per_class = np.bincount(rows.classes, minlength=question.n_classes).astype(np.int64)
    return {"class_rows": per_class, "unknown_rows": np.array([rows.unknown], dtype=np.int64)}


# --- the second answer: sums over given rules -----------------------------------------------------------------------


def _strengths(question: FrbcQuestion, rows: _FrbcRows) -> Contribution:
    assert question.rules is not None
    return Contribution("strengths", rows.count, _weigh(question, question.rules, rows))


def _support(question: FrbcQuestion, rows: _FrbcRows) -> Contribution:
    """Count for how many rows given rules fire, with strengths that do not round to 0."""
    rules, c, bits = question.rules, question.n_classes, question.parameters.limb_bits
    assert rules is not None
    fired = np.zeros(rules.first.size * c, dtype=np.int64)
    tree = AntecedentTree(rules.antecedents[rules.first], question.parameters.n_sets)
    for part in tree.match(rows.members, ROW_BLOCK):
        upper, lower = split(part.strength, bits)
        counted = (upper > 0) | (lower > 0)
        fired += np.bincount((part.antecedent * c + rows.classes[part.row])[counted], minlength=fired.size)
    return Contribution(SUPPORT, rows.count, {"rows": _count_fired(question, fired.reshape(-1, c))})


def _weigh(question: FrbcQuestion, rules: Candidates, rows: _FrbcRows) -> Sums:
    """Return the sums of RULE_SUMS and ANTECEDENT_SUMS. Cells are (antecedent, class)."""
    c, first = question.n_classes, rules.first
    if first.size * c > MAX_CELLS:
        raise TaskError(f"{first.size} antecedents of {c} classes are more than {MAX_CELLS} sums; use fewer sets")
    high, low, rows_of = _cell_sums(question, rules, rows)
    own = rules.antecedent_of * c + rules.classes
    return {
        "rows": rows_of[own],
        "num_high": high[own],
        "num_low": low[own],
        "den_high": high.reshape(first.size, c).sum(axis=1),
        "den_low": low.reshape(first.size, c).sum(axis=1),
    }


def _cell_sums(
    question: FrbcQuestion, rules: Candidates, rows: _FrbcRows
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return both limbs of the summed strength, and how many rows found the cell, each of shape (a C,)."""
    bits, c = question.parameters.limb_bits, question.n_classes
    size = rules.first.size * c
    high, low = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    members = rows.members
    tree = AntecedentTree(rules.antecedents[rules.first], question.parameters.n_sets)
    # A row is in a cell once at most, so the rows of a block bound the terms of each cell.
    for part in tree.match(members, min(ROW_BLOCK, limb_block(bits))):
        cell = part.antecedent * c + rows.classes[part.row]
        upper, lower = split(part.strength, bits)
        high += np.bincount(cell, weights=upper, minlength=size).astype(np.int64)
        low += np.bincount(cell, weights=lower, minlength=size).astype(np.int64)
    at = tree.find(strongest_sets(members))
    known = np.flatnonzero(at >= 0)
    counts = np.bincount(at[known] * c + rows.classes[known], minlength=size).astype(np.int64)
    return high, low, counts


# --- runs with `support`: see the server ------------------------------------------------------------------------------


def _count_prefixes(question: FrbcQuestion, sets: NDArray[np.int8], classes: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the rows of one vehicle by prefix and next sets, shape (s T^more,); what is enough is not told exactly.

    Parameters
    ----------
    question : Question
        Of kind ``"prefixes"``.
    sets : ndarray of int8, shape (n, F)
        Each row's strongest sets.
    classes : ndarray of intp, shape (n,)
    """
    assert question.prefixes is not None
    known, n_sets = question.prefixes, question.parameters.n_sets
    depth = known.shape[1] - 1
    own = np.column_stack([classes, sets[:, :depth]]).astype(np.int16)
    _, line = np.unique(np.concatenate([known, own]), axis=0, return_inverse=True)
    line = line.ravel()
    place_of = np.full(len(known) + len(own), -1)
    place_of[line[: len(known)]] = np.arange(len(known))
    cell = place_of[line[len(known) :]]
    is_known = cell >= 0
    for feature in range(depth, depth + question.more):
        cell = cell * n_sets + sets[:, feature]
    count = np.bincount(cell[is_known], minlength=len(known) * n_sets**question.more)
    return np.minimum(count, question.parameters.support)


def _count_fired(question: FrbcQuestion, fired: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for how many rows of one vehicle the rules fire, shape (r + a,); what is enough is not told exactly.

    Parameters
    ----------
    question : Question
        Of kind ``"support"``.
    fired : ndarray of int64, shape (a, C)
        Rows of each class with a strength that does not round to 0, by antecedent.

    Notes
    -----
    Of each rule the rows of its class, and of each antecedent those of the classes that have no rule with it.
    """
    assert question.rules is not None
    at, classes = question.rules.antecedent_of, question.rules.classes.astype(np.intp)
    others = fired.copy()
    others[at, classes] = 0
    counts: NDArray[np.int64] = np.append(fired[at, classes], others.sum(axis=1))
    return np.minimum(counts, question.parameters.support)
