"""Runs with `support`: which inputs and children rest on enough rows, before their sums are asked.

What could be had by subtraction counts as asked. A cell that is held back in a node follows from its parent's cell and
those of the node's siblings. So an input that is held back in one child of a node is held back in all of them, and
below. Children that are leaves or that nobody keeps follow in the same way: the question is about every child that a
parent could have.

Products of a leaf (`Question.columns`) are counted before they are asked, too. An input is no column of a leaf of which
some rows, but too few, have another value of it than many rows have: the products of the column less that value would
be theirs. Where it is the target, no input is one. Nobody hides behind rows that weigh next to nothing in the leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.private.columns import decide_slopes, slopes_of
from glassfleet.private.support import ALL, Place, decided, holds
from glassfleet.schemes.frt.messages import FrtQuestion, read_task
from glassfleet.schemes.frt.tree import FrtTree
from schemas.codec import Value

Bools = NDArray[np.bool_]


def ask_support(
    question: FrtQuestion, tree: FrtTree, frontier: NDArray[np.intp]
) -> tuple[FrtQuestion, dict[str, Value]]:
    """Return the question before the next level, and what the server keeps until it is answered.

    Parameters
    ----------
    question : Question
        The level that grew `tree`; for the root itself, the level that asks about it.
    tree : Tree
        As it has grown.
    frontier : ndarray of intp, shape (m,)
        The nodes that the next level is to ask about.
    """
    kept: dict[str, Value] = {"tree": tree.to_value(), "frontier": frontier.astype(np.int32)}
    if tree.size == 1:
        asked = FrtQuestion(SUPPORT, question.parameters, question.domain, tree, frontier)
        held = np.zeros((1, question.n_features), dtype=bool)
        return asked, {**kept, "line": np.zeros(1, dtype=np.int32), "held": held}
    parents = np.unique(tree.parent[frontier].astype(np.intp))
    t = tree.n_sets
    split, size = tree.split[parents], question.tree.size
    whole = question.tree.grown(np.repeat(parents, t), np.repeat(split, t), np.tile(np.arange(t), len(parents)))
    asked = FrtQuestion(SUPPORT, question.parameters, question.domain, whole, np.arange(size, whole.size))
    line = np.searchsorted(parents, tree.parent[frontier]) * t + tree.fuzzy_set[frontier]
    held = np.zeros((len(parents), question.n_features), bool) if question.held is None else question.held
    at = question.position[parents]
    return asked, {**kept, "line": line.astype(np.int32), "held": held[at]}


def answer_support(
    question: FrtQuestion, kept: Mapping[str, Any], contributions: Sequence[Contribution]
) -> tuple[FrtQuestion, Bools, Bools]:
    """Return the level's question, which of its cells may become children, and what was decided, for the record.

    Parameters
    ----------
    question : Question
        Of kind ``"support"``.
    kept : mapping
        From :func:`ask_support`.
    contributions : sequence of Contribution

    Returns
    -------
    Question
        Of kind ``"level"``.
    ndarray of bool, shape (m, F, T)
        Cells that rest on no rows or enough for a node of their own.
    ndarray of bool, shape (2, nodes of `question`, F, T)
        Cells that may be asked about, and those that may be nodes.
    """

    def decide(parts: list[NDArray[np.int64]]) -> Bools:
        return np.stack([holds(parts, question.parameters.support), holds(parts, question.least_rows)])

    decision = decided(contributions, _paths, question.to_task(), decide)
    asked, node = decision
    held = np.asarray(kept["held"])
    children = len(question.nodes) // len(held)
    family = asked.all(axis=2).reshape(len(held), children, -1).all(axis=1)
    held = np.repeat(held | ~family, children, axis=0)
    line, frontier = kept["line"].astype(np.intp), kept["frontier"].astype(np.intp)
    tree = FrtTree.from_value(kept["tree"], question.parameters.n_sets, question.n_features)
    level = FrtQuestion("level", question.parameters, question.domain, tree, frontier, held=held[line])
    return level, node[line], decision


def answer_leaves(question: FrtQuestion, contributions: Sequence[Contribution]) -> tuple[FrtQuestion, Bools]:
    """Return the question about the leaves' Gram sums, and what was decided, for the record.

    That has the shape (m, 1 + layers): whether a leaf may have sums, and by layer whether it may have columns.
    """
    assert question.common is not None

    def decide(parts: list[NDArray[np.int64]]) -> Bools:
        enough = decide_slopes(parts, question.least_of, question.parameters.support)
        enough[_split_elsewhere(question, contributions), 2:] = False
        return enough

    decision = decided(contributions, _layers, question.to_task(), decide)
    columns = slopes_of(decision, question.common, question.n_features)
    return replace(question, kind="leaves", common=None, columns=columns), decision


def _split_elsewhere(question: FrtQuestion, contributions: Sequence[Contribution]) -> list[int]:
    """Return the leaves that an earlier edition of a group had split, or had not: their difference is not counted."""
    before = {
        path
        for contribution in contributions
        for task, _ in contribution.former
        if task.kind == SUPPORT and read_task(task).common is not None
        for path in _leaves(read_task(task))
    }

    def is_one_above(leaf: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        depth = min(len(leaf), len(other))
        return len(leaf) != len(other) and leaf[:depth] == other[:depth]

    return [line for line, leaf in enumerate(_leaves(question)) if any(is_one_above(leaf, other) for other in before)]


def _layers(task: Task) -> list[Any]:
    question = read_task(task)
    if question.common is None:
        return []
    return [Place(path, layer) for path in _leaves(question) for layer in (ALL, *question.common)]


def _leaves(question: FrtQuestion) -> list[tuple[Any, ...]]:
    return [tuple(question.tree.path(int(node))) for node in question.nodes]


def _paths(task: Task) -> list[tuple[tuple[int, int], ...]]:
    question = read_task(task)
    if question.common is not None:
        return []
    return [tuple(question.tree.path(int(node))) for node in question.nodes]
