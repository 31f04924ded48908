"""The coordinator's half: grows the tree from sums (Algorithm 1), fits the leaves (Algorithm 2), weighs the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Done, Next
from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.contract.sums import Memory, Sums, add_up, ask, count_rows, with_digest
from glassfleet.data.domain import Domain
from glassfleet.fuzzy import linguistic_terms
from glassfleet.model.baseline import filled, typical_row
from glassfleet.model.intervals import rule_forecasts
from glassfleet.numerics.simplify import consequents, moments
from glassfleet.numerics.statistics import carry, weigh
from glassfleet.private.columns import common_of, decide_columns
from glassfleet.private.support import noted
from glassfleet.schemes.frt.messages import FrtQuestion
from glassfleet.schemes.frt.model import FrtModel
from glassfleet.schemes.frt.params import MAX_LINEAR_FEATURES, FrtParameters
from glassfleet.schemes.frt.simplify import pruned
from glassfleet.schemes.frt.support import answer_leaves, answer_support, ask_support
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
    """Fit each leaf's polynomial by weighted least squares; ask how good the rules are.

    With `prune` the smaller tree's leaves are asked about first.
    """
    if question.parameters.prune and "pruned" not in memory:
        tree = pruned(question, sums)
        if tree.size < question.tree.size:
            leaves = np.flatnonzero(tree.split < 0)
            asked = FrtQuestion("leaves", question.parameters, question.domain, tree, leaves)
            return ask(asked, {**memory, "pruned": True})
    k, f, bits = question.gram_columns, question.n_features, question.parameters.gram_bits
    solved, matrix = consequents(sums, k, bits, question.parameters.max_slopes), moments(sums, k, bits)
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
