"""The coordinator's half: grows the tree from sums (Algorithm 1), fits the leaves (Algorithm 2), weighs the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Done, Next, Task
from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.contract.sums import Memory, Sums, add_up, ask, count_rows, with_digest
from glassfleet.data.domain import Domain
from glassfleet.fuzzy import linguistic_terms
from glassfleet.model.baseline import filled, typical_row
from glassfleet.model.intervals import rule_forecasts
from glassfleet.numerics.linear import consequents, moments
from glassfleet.numerics.statistics import carry, weigh
from glassfleet.private.columns import common_of, decide_columns, decide_slopes, slopes_of
from glassfleet.private.support import ALL, Place, decided, holds, noted
from glassfleet.schemes.frt.messages import FrtQuestion, read_task
from glassfleet.schemes.frt.model import FrtModel
from glassfleet.schemes.frt.params import MAX_LINEAR_FEATURES, FrtParameters
from glassfleet.schemes.frt.tree import FrtTree, Rules
from schemas.codec import Value
from schemas.errors import UsageError


def first(parameters: FrtParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG001 - nothing is random
    """Ask for the root's statistics."""
    if parameters.order and len(domain.features) > MAX_LINEAR_FEATURES:
        raise UsageError(f"first-order leaves take at most {MAX_LINEAR_FEATURES} inputs; use order=0 or fewer inputs")
    question = FrtQuestion("level", parameters, domain, FrtTree.root(parameters.n_sets), np.zeros(1, dtype=np.intp))
    memory: Memory = {"leaves": [], "sums_digest": ""}
    return ask(replace(question, kind=COLUMNS), memory) if question.has_columns else _ask_root(question, memory)


def step(question: FrtQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
    """Return the next question, or the model."""
    rows = count_rows(contributions, question.parameters.max_rows)
    if question.kind == COLUMNS:
        decision = decide_columns(contributions, question.to_task(), question.parameters.support)
        memory |= {"withheld": [noted(decision)], "values": decision}
        return _ask_root(replace(question, kind="level"), memory)
    if question.kind == SUPPORT and question.common is not None:
        leaves, decision = answer_leaves(question, contributions)
        return ask(leaves, {**memory, "withheld": [*memory["withheld"], noted(decision)]})
    if question.kind == SUPPORT:
        level, children, decision = answer_support(question, memory.pop("open"), contributions)
        withheld = [*memory.get("withheld", []), noted(decision)]
        return ask(level, {**memory, "children": children, "withheld": withheld})
    sums = add_up(contributions)
    if question.kind == "leaves":  # the limbs of a fleet's sums must be those of the pooled rows
        limbs = carry(sums["gram_high"], sums["gram_low"], bits=question.parameters.gram_bits)
        sums["gram_high"], sums["gram_low"] = limbs
    memory = with_digest(memory, rows, sums)
    if question.kind == "level":
        return _grow(question, memory, rows, sums, memory.pop("children", None))
    if question.kind == "leaves":
        return _fit(question, memory, rows, sums)
    return _finish(question, memory, rows, sums)


def variance(ws: NDArray[np.int64], wls: NDArray[np.int64], wss: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fuzzy variance from sums (Eq. 8, 14, 23, 24): WSS / WS - (WLS / WS)^2; zero where there is no strength."""
    some = ws > 0
    weight = np.where(some, ws, 1).astype(np.float64)
    mean = wls.astype(np.float64) / weight
    return np.where(some, wss.astype(np.float64) / weight - mean * mean, 0.0)


def gains(node: Sums, cell: Sums, free: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Fuzzy variance reduction of each split (Eq. 18, 25), shape (m, F); minus infinity for what is no candidate.

    A feature all of whose sets are empty (Check & nullify can empty them) would explain everything, as the children
    have no variance: it is none.
    """
    total = variance(node["ws"], node["wls"], node["wss"])[:, None]
    within = variance(cell["ws"], cell["wls"], cell["wss"])
    ws = cell["ws"].astype(np.float64)
    whole = ws[..., 0]
    for j in range(1, ws.shape[-1]):
        whole = whole + ws[..., j]
    whole = np.where(whole > 0, whole, 1.0)
    gain = total
    for j in range(ws.shape[-1]):
        gain = gain - ws[..., j] / whole * within[..., j]
    return np.where(free & (gain != total), gain, -np.inf)


def _ask_root(question: FrtQuestion, memory: Memory) -> Next:
    """Ask about the root's cells; of a tree without splits, about its products."""
    if question.parameters.max_depth == 0:
        return _ask_leaves(question, question.tree, question.nodes, memory)
    return _ask_level(question, question.tree, question.nodes, memory)


def _ask_leaves(question: FrtQuestion, tree: FrtTree, nodes: NDArray[np.intp], memory: Memory) -> Next:
    """Ask for the leaves' Gram sums; with `support` first on how many rows they would rest."""
    asked = FrtQuestion("leaves", question.parameters, question.domain, tree, nodes)
    if not question.has_columns:
        return ask(asked, memory)
    return ask(replace(asked, kind=SUPPORT, common=common_of(memory["values"], range(question.n_features))), memory)


def _ask_level(question: FrtQuestion, tree: FrtTree, frontier: NDArray[np.intp], memory: Memory) -> Next:
    """Ask about `frontier`, with `support` first whether enough rows are there; `question` is the level above."""
    if question.parameters.support:
        asked, kept = ask_support(question, tree, frontier)
        return ask(asked, {**memory, "open": kept})
    return ask(FrtQuestion("level", question.parameters, question.domain, tree, frontier), memory)


def _grow(question: FrtQuestion, memory: Memory, rows: int, sums: Sums, supported: NDArray[np.bool_] | None) -> Next:
    """Split the frontier's nodes, or make them leaves; ask for the next level, or for the leaves' sums.

    `supported`, shape (m, F, T): in a run with `support`, the cells that may be nodes.
    """
    parameters, tree, f = question.parameters, question.tree, question.n_features
    cell = {name.removeprefix("cell_"): array for name, array in sums.items() if name.startswith("cell_")}
    node = {name.removeprefix("node_"): array for name, array in sums.items() if name.startswith("node_")}
    gain = gains(node, cell, question.free)
    best = np.argmax(gain, axis=1)  # the first of equals: the lowest feature index
    line = np.arange(len(question.nodes))
    children = cell["count"][line, best] >= f + 1
    children &= (gain[line, best] >= parameters.min_gain)[:, None]
    if supported is not None:
        children &= supported[line, best]
    leaves = [*memory["leaves"], *(int(n) for n in question.nodes[~children.any(axis=1)])]
    at, fuzzy_set = np.nonzero(children)
    new = tree.size + np.arange(at.size)
    tree = tree.grown(question.nodes[at], best[at], fuzzy_set)
    # A child that cannot be split needs no statistics. Its strong rows and all rows come from the same answers.
    depth = int(question.tree.depth[question.nodes[0]]) + 1
    strong = cell["strong"][at, best[at], fuzzy_set] >= math.floor(parameters.min_samples_fraction * rows)
    if depth in (f, parameters.max_depth):
        strong[:] = False
    leaves += [int(n) for n in new[~strong]]
    memory = {**memory, "leaves": leaves}
    frontier = new[strong]
    if frontier.size:
        return _ask_level(question, tree, frontier, memory)
    nodes = np.array(sorted(leaves), dtype=np.intp)
    return _ask_leaves(question, tree, nodes, memory)


# --- leaves and rules -----------------------------------------------------------------------------------------------


def _fit(question: FrtQuestion, memory: Memory, rows: int, sums: Sums) -> Next:
    """Fit each leaf's polynomial by weighted least squares; ask how good the rules are."""
    k, f, bits = question.gram_columns, question.n_features, question.parameters.gram_bits
    solved, matrix = consequents(sums, k, bits), moments(sums, k, bits)
    coefficients = np.zeros((len(question.nodes), f + 1))
    coefficients[:, f + 2 - k :] = solved
    # Eq. 22's mean strength. A leaf that no row of those who answered reaches (an elastic run) keeps 0: no rule.
    count = np.where(sums["count"] > 0, sums["count"], 1).astype(np.float64)
    mean = sums["ws"].astype(np.float64) / count / float(1 << question.parameters.fraction_bits)
    asked = FrtQuestion("weights", question.parameters, question.domain, question.tree, question.nodes, coefficients)
    typical = typical_row(question.domain, filled(matrix[0, : k - 1], question.columns))
    # Columns are [1, x] here, but a polynomial's intercept comes last.
    forecasts = rule_forecasts(
        question.domain,
        rows,
        matrix[: k - 1, : k - 1],
        np.roll(solved, 1, axis=1).T.copy(),
        range(f + 2 - k, f),
    )
    return ask(asked, {**memory, "mean_strength": mean, "reference": typical, "forecasts": forecasts})


def _finish(question: FrtQuestion, memory: Memory, rows: int, sums: Sums) -> Done:
    """Weigh the rules (harmonic mean of confidence and support) and build the model."""
    assert question.coefficients is not None
    shares = weigh(sums["ws"], sums["wq"], rows, question.parameters.fraction_bits)
    rules = Rules(question.nodes, question.coefficients, memory["mean_strength"], *shares)
    model = FrtModel.build(question.parameters, question.domain, question.tree, rules)
    line = {int(node): at for at, node in enumerate(question.nodes) if rules.mean_strength[at] > 0}
    known = {"sums_digest": memory["sums_digest"], "reference": memory["reference"]}
    # In the order of the model's rules.
    forecasts = memory["forecasts"]
    own_lines = [forecasts["rules"][line[node]] for node in question.tree.depth_first() if node in line]
    known["forecasts"] = {**forecasts, "rules": own_lines}
    summary = {**known, "rows": rows, **model.complexity()}
    if "withheld" in memory:
        summary["withheld"] = memory["withheld"]
    return Done(model, summary)


def progress_of(question: FrtQuestion, memory: Memory) -> dict[str, Value]:  # noqa: ARG001 - the question has it all
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, open_nodes = question.tree, set(question.nodes.tolist() if question.kind == "level" else ())
    leaves = int((tree.split < 0).sum()) - len(open_nodes)
    return {
        "stage": question.kind,
        "nodes": tree.size - 1,
        "leaves": leaves,
        "open": len(open_nodes),
        "depth": int(tree.depth.max()),
        **outlined(_nodes(question, open_nodes), tree.size),
    }


def _nodes(question: FrtQuestion, open_nodes: set[int]) -> Iterator[OutlineNode]:
    tree = question.tree
    for node in tree.depth_first():
        depth, name, term = int(tree.depth[node]), "", ""
        if node:
            variable = question.domain.features[tree.feature[node]]
            name, term = variable.name, linguistic_terms(tree.n_sets, variable)[tree.fuzzy_set[node]]
        yield OutlineNode(depth, name, term, node in open_nodes)


# --- runs with `support`: which inputs and children rest on enough rows, before their sums are asked ------------------
#
# What could be had by subtraction counts as asked. A cell that is held back in a node follows from its parent's cell
# and those of the node's siblings. So an input that is held back in one child of a node is held back in all of them,
# and below. Children that are leaves or that nobody keeps follow in the same way: the question is about every child
# that a parent could have.
#
# Products of a leaf (`FrtQuestion.columns`) are counted before they are asked, too. An input is no column of a leaf of
# which some rows, but too few, have another value of it than many rows have: the products of the column less that value
# would be theirs. Where it is the target, no input is one. Nobody hides behind rows that weigh next to nothing there.


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
