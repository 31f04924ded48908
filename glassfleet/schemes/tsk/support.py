"""Runs with `support`: on how many rows the sums of each rule rest, and of what weight.

A rule's sums are of products of all columns. Where all its rows but one have one value of a column, the products less
this value are that one row's. So the rows of a rule are counted, and again without those of each common value
(`glassfleet.private.columns`): there must be none or enough, or the input is no column of the rule. Nobody hides behind
rows that weigh nothing beside another one: enough must be heavy, in the power of 8 of the rule's strongest row or in
the next one. So first the fleet is asked for these powers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.private.columns import decide_slopes
from glassfleet.private.support import ALL, Place, decided
from glassfleet.schemes.tsk.messages import TskQuestion, read_task
from glassfleet.schemes.tsk.rules import has_otherwise

Bools = NDArray[np.bool_]


def cuts_of(present: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the last power of 8 whose rows are heavy in each rule, shape (r,): the one after that of the strongest.

    Parameters
    ----------
    present : ndarray of int64, shape (r, POWERS)
        In how many vehicles a rule has rows of each power.
    """
    cuts: NDArray[np.int8] = (np.argmax(present > 0, axis=1) + 1).astype(np.int8)
    return cuts


def decide_rules(question: TskQuestion, contributions: Sequence[Contribution]) -> Bools:
    """Return which rules may be asked about, and by layer whether their columns may, shape (r, 1 + layers)."""
    cuts = _cuts(question)
    former = [_cuts(read_task(task)) for given in contributions for task, _ in given.former if task.kind == SUPPORT]
    # Where an earlier edition took other rows for heavy, nobody counted those who left as they are counted now.
    same = [all(before.get(rule, cut) == cut for before in former) for rule, cut in cuts.items()]

    def from_rows(parts: list[NDArray[np.int64]]) -> Bools:
        enough = decide_slopes(parts, question.least_of, question.parameters.support)
        enough[~np.array(same)] = False
        return enough

    return decided(contributions, _places, question.to_task(), from_rows)


def _cuts(question: TskQuestion) -> dict[Any, int]:
    """Return which rows are heavy in each rule, given by its sets; OTHERWISE by those of all other rules."""
    assert question.antecedents is not None
    assert question.cuts is not None
    rules: list[Any] = [tuple(line) for line in question.antecedents.tolist()]
    if has_otherwise(question.antecedents, question.parameters.n_sets):
        rules[-1] = tuple(rules[:-1])
    return dict(zip(rules, question.cuts.tolist(), strict=True))


def _places(task: Task) -> list[Any]:
    """Return what each line of counts is about: a rule and a layer."""
    question = read_task(task)
    return [Place(rule, layer) for rule in _cuts(question) for layer in (ALL, *question.common)]
