"""Runs with `support`: rules that enough rows found, and of which no sum rests on few rows.

A table of all rules would tell the ones that a single row found. So rules are found input by input: vehicles count
their rows by class and by the sets of the first inputs; what fewer than `support` rows of the fleet share is not
followed further. Then vehicles say for how many rows each rule fires: a row has a strength in each cell next to its
own, so that in a group few rows may fire where none found the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.private.support import decided, holds
from glassfleet.schemes.frbc.matching import pack, sort_rules
from glassfleet.schemes.frbc.messages import Candidates, FrbcQuestion
from glassfleet.schemes.frbc.params import MAX_CELLS
from schemas.errors import RunFailedError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FEW_COUNTS = 1 << 13
"""Several inputs are asked about at once while no more counts are asked for."""


def ask_prefixes(question: FrbcQuestion, prefixes: NDArray[np.int16]) -> FrbcQuestion:
    """Return the question how many rows share each of `prefixes`, shape (s, 1 + i), and the sets of the next inputs."""
    n_sets, left = question.parameters.n_sets, question.n_features - (prefixes.shape[1] - 1)
    if len(prefixes) * n_sets > MAX_CELLS:
        raise RunFailedError(f"{len(prefixes)} beginnings of rules are too many; use fewer sets (n_sets) or inputs")
    more = 1
    while more < left and len(prefixes) * n_sets ** (more + 1) <= _FEW_COUNTS:
        more += 1
    return FrbcQuestion("prefixes", question.parameters, question.domain, prefixes=prefixes, more=more)


def count_prefixes(question: FrbcQuestion, sets: NDArray[np.int8], classes: NDArray[np.intp]) -> Ints:
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


def follow_prefixes(question: FrbcQuestion, rows: Ints) -> NDArray[np.int16]:
    """Return the longer prefixes that enough rows share, shape (s, 1 + i + more); `rows` from all vehicles."""
    assert question.prefixes is not None
    n_sets, more = question.parameters.n_sets, question.more
    kept = np.flatnonzero(rows >= question.parameters.support)
    digits = kept[:, None] // n_sets ** np.arange(more)[::-1] % n_sets
    return np.column_stack([question.prefixes[kept // n_sets**more], digits]).astype(np.int16)


def rules_found(question: FrbcQuestion, prefixes: NDArray[np.int16]) -> Candidates:
    """Return the rules that prefixes of all inputs, shape (r, 1 + F), are."""
    antecedents, classes = prefixes[:, 1:].astype(np.int8), prefixes[:, 0].copy()
    words = pack(antecedents, question.parameters.n_sets)
    order, _ = sort_rules(words, classes)
    return Candidates(words[order], classes[order], antecedents[order])


def count_fired(question: FrbcQuestion, fired: Ints) -> Ints:
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
    counts: Ints = np.minimum(np.append(fired[at, classes], others.sum(axis=1)), question.parameters.support)
    return counts


def decide(question: FrbcQuestion, contributions: Sequence[Contribution]) -> Bools:
    """Return which rules may be asked about, shape (r,): of an antecedent all or none."""
    rules = question.rules
    assert rules is not None

    def from_rows(parts: list[Ints]) -> Bools:
        enough = holds(parts, question.parameters.support)
        fires = enough[rules.size :]
        np.logical_and.at(fires, rules.antecedent_of, enough[: rules.size])
        return fires[rules.antecedent_of]

    return decided(contributions, _places, question.to_task(), from_rows)


def kept(rules: Candidates, which: Bools) -> Candidates:
    """Return some of the rules."""
    return Candidates(rules.words[which], rules.classes[which], rules.antecedents[which])


def _places(task: Task) -> list[Any]:
    """Return what each line of an answer is about; that of the other classes says which classes have rules."""
    rules = FrbcQuestion.from_task(task).rules
    assert rules is not None
    lines, classes = [tuple(line) for line in rules.antecedents.tolist()], rules.classes.tolist()
    with_rules: dict[tuple[int, ...], list[int]] = {}
    for line, one in zip(lines, classes, strict=True):
        with_rules.setdefault(line, []).append(one)
    return [*zip(lines, classes, strict=True), *((line, tuple(some)) for line, some in with_rules.items())]
