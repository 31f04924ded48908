"""The coordinator's half: edges, growth, size, rules - all from sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Done, Next
from glassfleet.contract.sums import Memory, Sums, ask, taken_up
from glassfleet.fuzzy.category_sums import levels_of
from glassfleet.fuzzy.levels import has_categories
from glassfleet.model.baseline import sums_of_cells, typical_row
from glassfleet.numerics.sparse import ranked, sweep
from glassfleet.numerics.statistics import pack_symmetric, unpack_symmetric
from glassfleet.numerics.symmetric import dot
from glassfleet.numerics.symmetric import product as product_of
from glassfleet.private.columns import common_of, most_columns
from glassfleet.schemes.tree.banded import banded, begin, levelled, supported
from glassfleet.schemes.tree.bins import find_edges
from glassfleet.schemes.tree.gains import SCORE_SCALE, BinSums, exact_gains, shortlist, spread
from glassfleet.schemes.tree.joint import SCALE, dense, fit_of, pull_of, ridge_of, root_of
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.newton import goes_on
from glassfleet.schemes.tree.params import LEAST_GAIN, MAX_REGRESSORS, MAX_ROWS, TOGETHER, TRIAL
from glassfleet.schemes.tree.size import choose, least_penalised, sums_of
from glassfleet.schemes.tree.start import check_trained, decided
from glassfleet.schemes.tree.tree import Ramp, Split, Tree
from schemas.codec import Value

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

EXCESS_WORTH = 20.0
"""What is beyond a limit must cut the squared error by so many times the noise's variance."""

EXCESS_SHARE = 1e-3
"""It must cut it by this share, too: of many rows every little counts, and each column makes messages longer."""

PATIENCE = 5
"""Growth ends when the held-out error has not fallen in so many steps."""

_OWN = ("pairs", "gram", "target", "leaves", "errors", "sizes", "coefficients", "noise", "open")
"""What is kept of one way to grow."""


def step(question: TreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
    """Return the next question, or the model."""
    if question.kind == COLUMNS:
        return decided(question, memory, contributions)
    if question.kind == SUPPORT:
        return supported(question, memory, contributions)
    rows, sums, memory = taken_up(memory, contributions, MAX_ROWS)
    if question.kind == "levels":
        return ask(replace(question, kind="scan", levels=levels_of(question.domain, sums)), memory)
    if question.kind == "scan":
        return _scanned(question, memory, sums)
    if question.kind == "bins":
        return _binned(question, memory, sums)
    if question.kind == "categories":
        return levelled(question, memory, sums)
    if question.kind == "bands":
        return banded(question, memory, sums)
    if question.kind == "joint":
        return least_penalised(question, memory, sums)
    if question.kind == "newton":
        return goes_on(question, memory, rows, sums)
    return _compared(question, memory, sums)


def _scanned(question: TreeQuestion, memory: Memory, sums: Sums) -> Next:
    """Place the edges, choose the regressors, fit the root, and ask for its bins."""
    parameters = question.parameters
    training, held = (int(count) for count in sums["rows"])
    check_trained(training, int(sums["gram"][0, 0]))
    scanned, most = question.scanned, parameters.max_regressors
    full = unpack_symmetric(sums["gram"], question.scan_columns)
    most = most_columns(most, training) if parameters.support else most
    plain = sum(f < question.n_plain for f in scanned)
    moments = full.astype(np.float64) * SCALE
    places = _regressors(moments, plain, most, question.targets, beyond=not question.domain.classes)
    columns, regressors = [0, *(place + 1 for place in places)], tuple(scanned[place] for place in places)
    means = sums_of_cells(sums["histogram"]) if parameters.support else full[:, 0, : -question.targets].T
    memory = {
        **memory,
        "reference": typical_row(question.domain, means),
        "training": training,
        "held_out": held,
        "edges": find_edges(sums["histogram"], parameters.bins, question.levels),
        "features": list(range(question.n_plain)),
        **root_sums(full, columns, question.targets),
        "errors": [],
        "sizes": [],
        # Leaves that could still be split: gain, ramp, both sides' changes of coefficients and weights.
        "open": {},
        "others": [],  # ways that are still to be tried
        "tried": [],
    }
    memory["root"] = memory["gram"][0, 0]
    coefficients, error, noise = _refit(Tree(), memory, question.kappa)
    if parameters.support:
        names = ("sums_digest", "reference", "withheld", "training", "edges", "features", "root")
        kept = {name: memory[name] for name in names} | {"coefficients": coefficients}
        common = common_of(memory["values"], regressors)
        if question.domain.classes:  # each is a layer
            common = tuple(one for one in common if one[0] < question.n_inputs)
        asked = replace(question, regressors=regressors)
        if has_categories(question.domain):
            return ask(replace(asked, kind=SUPPORT), kept | {"common": [list(one) for one in common]})
        return begin(replace(asked, common=common), kept)
    memory |= {"errors": [error], "sizes": [0], "coefficients": coefficients, "noise": noise}
    asked = replace(
        question,
        kind="bins",
        regressors=regressors,
        coefficients=coefficients,
        leaves=(0,),
        features=tuple(range(question.n_plain)),
        edges=memory["edges"],
    )
    return ask(asked, memory)


def _regressors(full: Array, plain: int, most: int, targets: int, *, beyond: bool) -> list[int]:
    """Return which scanned inputs rules have lines over, increasing.

    Of the `plain` ones, which come first, at most `most`, by a forward selection. Then excess that is worth it: one
    after the other, the most telling first, where the line of all rows has less error on held-out rows with it.

    Parameters
    ----------
    full : ndarray of float64, shape (2, f + 1 + T, f + 1 + T)
        Moment matrices over ``[1, x, y]`` of training and held-out rows, in rows.
    plain, most, targets : int
    beyond : bool
        Whether lines go on beyond limits.
    """
    n = full.shape[1] - 1 - targets
    y = n + 1
    kept = [*range(plain + 1), *range(y, y + targets)]
    chosen = ranked(np.ascontiguousarray(full[0][np.ix_(kept, kept)]), most, targets)
    if plain == n or not beyond:
        return chosen
    table, held = full[0].copy(), full[1]
    inner = np.arange(1, y)
    table[inner, inner] += ridge_of(float(full[0, 0, 0]))
    for column in (0, *(place + 1 for place in chosen)):
        sweep(table, column)
    open_ = list(range(plain + 1, y))

    def error(taken: Sequence[int]) -> float:
        columns = [0, *(place + 1 for place in taken)]
        line = table[columns, y]
        own = held[np.ix_(columns, columns)]
        return float(held[y, y]) - dot(line, 2.0 * held[columns, y] - product_of(own, line))

    before = error(chosen)
    while open_ and len(chosen) < MAX_REGRESSORS:
        gains = {j: float(table[j, y]) * float(table[j, y]) / max(float(table[j, j]), 1e-300) for j in open_}
        best = max(open_, key=lambda j: (gains[j], -j))
        share = max(EXCESS_WORTH / max(float(full[0, 0, 0]), 1.0), EXCESS_SHARE)
        if gains[best] <= share * float(table[y, y]):
            break
        open_.remove(best)
        sweep(table, best)
        after = error([*chosen, best - 1])
        if held[best, best] > 0.0 and after >= before:
            sweep(table, best, back=True)
        else:
            chosen, before = [*chosen, best - 1], after
    return sorted(chosen)


def root_sums(full: Ints, columns: Sequence[int], targets: int = 1) -> dict[str, Any]:
    """Return the sums of the joint fit of a tree without splits: pairs of leaves, and leaves.

    Parameters
    ----------
    full : ndarray of int64, shape (2, f + 1 + T, f + 1 + T)
        A scan's sums over the products of ``[1, x, y]``, of training rows first, held-out ones second.
    columns : sequence of int
        Which columns the rules have, the 1 among them.
    targets : int
        T.
    """
    every = range(full.shape[1] - targets, full.shape[1])
    return {
        "pairs": np.zeros((1, 2), dtype=np.int64),
        "gram": pack_symmetric(full[:, columns][:, :, columns])[:, None],
        "target": np.stack([full[:, [*columns, y], y] for y in every], axis=1)[:, None],
        "leaves": [0],
    }


def _refit(tree: Tree, memory: Mapping[str, Any], kappa: float) -> tuple[Array, float, float]:
    """Fit all leaves together; return the coefficients, (L, T, k), the held-out squared error, and the mean one."""
    fit = fit_of(tree, len(tree.splits), *sums_of(memory, 0))
    pull = pull_of(fit, root_of(memory, fit.columns))
    coefficients = dense(fit, fit.with_pull(kappa, pull))
    held = fit_of(tree, len(tree.splits), *sums_of(memory, 1))
    return coefficients, held.error(coefficients), fit.error(coefficients) / max(fit.rows, 1.0)


# --- growing --------------------------------------------------------------------------------------------------------


def _binned(question: TreeQuestion, memory: Memory, sums: Sums) -> Next | Done:
    """Take in the joint sums of the latest splits, refit, and ask for the exact sums of the most promising ramps."""
    if question.latest:
        memory = taken_in(question, memory, sums)
        coefficients, error, noise = _refit(question.tree, memory, question.kappa)
        memory |= {"coefficients": coefficients, "errors": [*memory["errors"], error], "noise": noise}
        memory["sizes"] = [*memory["sizes"], len(question.tree.splits)]
    errors = memory["errors"]
    if memory["held_out"] and len(errors) > PATIENCE and min(errors[-PATIENCE:]) >= errors[-PATIENCE - 1]:
        return choose(question, memory)
    candidates: list[tuple[int, Ramp]] = []
    prices: list[float] = []
    own, _ = sums_of(memory, 0)
    least, root = question.parameters.least_weight(memory["training"]), root_of(memory, question.columns)
    for at, leaf in enumerate(question.leaves):
        bins = BinSums(
            unpack_symmetric(own[leaf, leaf].astype(np.float64) * SCALE, question.columns),
            spread(*(sums[name][at] / SCORE_SCALE for name in ("scores", "slopes", "means"))),
            sums["means"][at] / SCORE_SCALE,
            root,
            question.kappa,
        )
        edges = {feature: memory["edges"][feature] for feature in question.features}
        path = frozenset(split.ramp for split, _ in question.tree.path(leaf))
        best: dict[Ramp, float] = {}
        for way in _ways(question, memory):
            listed = shortlist(bins, edges, question.levels, path, least=least, dear=way * memory["noise"])
            best |= {one.ramp: one.price for one in listed[: question.parameters.exact_ramps]}
        if leaf == 0 and listed:
            inputs = list(dict.fromkeys(one.ramp[0] for one in listed))
            memory["features"] = sorted(inputs[: question.parameters.max_split_features])
        candidates += [(leaf, ramp) for ramp in best]
        prices += best.values()
    if not candidates:
        return _split(question, memory)
    coefficients = memory["coefficients"]
    asked = replace(question, kind="ramps", coefficients=coefficients, candidates=tuple(candidates))
    return ask(asked, {**memory, "prices": prices})


def _ways(question: TreeQuestion, memory: Mapping[str, Any]) -> tuple[float, ...]:
    """Return how dear ramps are to be when they are compared: at the root in every way that will be tried."""
    return question.ways if memory["held_out"] and not question.tree.splits else (question.ways[question.way],)


def taken_in(question: TreeQuestion, memory: Memory, sums: Sums) -> dict[str, Any]:
    """Return the memory with the latest splits' sums in place of their parents'."""
    tree, leaves, shape = question.tree, set(question.tree.leaves), memory["target"].shape[2:]
    stay = [at for at, leaf in enumerate(memory["leaves"]) if leaf in leaves]
    known = {tuple(pair): memory["gram"][:, at] for at, pair in enumerate(memory["pairs"].tolist())}
    known |= {pair: sums["gram"][:, at] for at, pair in enumerate(question.pairs)}

    def sides(leaf: int) -> tuple[int, tuple[int, ...]]:
        return (tree.parent(leaf), (leaf - 1, leaf)) if leaf in question.new else (leaf, (leaf,))

    # Pairs of upper sides, and of upper sides with leaves that were there before, come last: what the pair of the
    # nodes above has beyond its other pairs.
    for i, j in tree.overlaps:
        if (i, j) not in known:
            (above, left), (other, right) = sides(i), sides(j)
            rest = known[min(above, other), max(above, other)].copy()
            for pair in product(left, right):
                if pair != (i, j):
                    rest -= known.get((min(pair), max(pair)), 0)
            known[i, j] = rest
    return {
        **memory,
        "pairs": np.array(tree.overlaps, dtype=np.int64),
        "gram": np.stack([known[pair] for pair in tree.overlaps], axis=1),
        "leaves": [*(memory["leaves"][at] for at in stay), *question.new],
        "target": np.concatenate([memory["target"][:, stay], sums["target"].reshape(2, -1, *shape)], axis=1),
    }


def _compared(question: TreeQuestion, memory: Memory, sums: Sums) -> Next | Done:
    """Note each leaf's best ramp, and split."""
    k = question.columns
    fit = fit_of(question.tree, len(question.tree.splits), *sums_of(memory, 0))
    leaves, root, ways = question.tree.leaves, root_of(memory, k), _ways(question, memory)
    by_way: list[dict[str, Any]] = [dict(memory["open"]) for _ in ways]
    assert question.coefficients is not None
    for leaf in dict.fromkeys(leaf for leaf, _ in question.candidates):
        places = [place for place, (other, _) in enumerate(question.candidates) if other == leaf]
        at = leaves.index(leaf)
        whole = fit.right[at].copy()
        for other, line in enumerate(question.coefficients):
            for column in range(k):
                whole -= fit.blocks[at, other, :, column] * line[:, column, None]
        scores = sums["scores"][places].astype(np.float64) * SCALE
        gain, changes = exact_gains(
            fit.blocks[at, at],
            unpack_symmetric(sums["squares"][places].astype(np.float64) * SCALE, k),
            scores[:, :-1].reshape(len(places), -1, k),
            whole,
            root,
            question.kappa,
        )
        weight = float(np.add.accumulate(fit.blocks[at, :, 0, 0])[-1])
        price = memory["noise"] * np.array(memory["prices"])[places]
        for way, splits in zip(ways, by_way, strict=True):
            best = int(np.argmax(gain - way * price))
            if gain[best] > LEAST_GAIN * float(memory["training"]):
                ramp, low = question.candidates[places[best]][1], float(scores[best, -1])
                change, sides = np.ascontiguousarray(changes[..., best]), [low, weight - low]
                splits[str(leaf)] = [float(gain[best]), *ramp, change, sides]
    memory = {**memory, "open": by_way[0]}
    if len(ways) > 1:
        start = {key: memory[key] for key in _OWN} | {"tree": question.tree.to_value()}
        memory["others"] = [{**start, "way": way, "open": splits} for way, splits in enumerate(by_way)][1:]
    return _split(question, memory)


def _split(question: TreeQuestion, memory: Memory) -> Next | Done:
    """Split the leaves with the highest gains, and ask what that adds; or stop growing."""
    tree, splits = question.tree, dict(memory["open"])
    room = question.most_rules - 1 - len(tree.splits)
    order = sorted((int(leaf) for leaf in splits), key=lambda leaf: (-splits[str(leaf)][0], leaf))
    is_over = room <= 0 or not order or len(memory["sizes"]) > question.most_steps
    if (memory["others"] or memory["tried"]) and (is_over or len(memory["sizes"]) > TRIAL):
        return _turned(question, memory)
    if is_over:
        return choose(question, memory)
    highest = splits[str(order[0])][0]
    # Of a number at least as many as `max_rules` needs in the end; classes have fewer rules, and those suffice.
    some = 0 if question.domain.classes else -(-room // (question.most_steps + 1 - len(memory["sizes"])))
    chosen = [leaf for at, leaf in enumerate(order) if at < some or splits[str(leaf)][0] >= TOGETHER * highest][:room]
    grown = tree.grown([Split(leaf, *splits[str(leaf)][1:4]) for leaf in chosen])
    by_leaf = dict(zip(tree.leaves, memory["coefficients"], strict=True))
    heavy: list[int] = []
    least = 2.0 * question.parameters.least_weight(memory["training"])  # else no ramp leaves enough on either side
    for number, leaf in enumerate(chosen):
        changes, weights = splits.pop(str(leaf))[4:]
        for child, change, weight in zip((0, 1), changes, weights, strict=True):
            by_leaf[tree.size + 2 * number + child] = by_leaf[leaf] + change
            if weight >= least:
                heavy.append(tree.size + 2 * number + child)
    last = room == len(chosen) or len(memory["sizes"]) == question.most_steps
    asked = replace(
        question,
        kind="bins",
        tree=grown,
        coefficients=np.stack([by_leaf[leaf] for leaf in grown.leaves]),
        latest=len(chosen),
        leaves=() if last else tuple(heavy),
        features=tuple(memory["features"]),
        edges=memory["edges"],
    )
    return ask(asked, {**memory, "open": splits})


def _turned(question: TreeQuestion, memory: Memory) -> Next | Done:
    """Try the next way, from the root on; or go on in the one with the least held-out error so far."""
    own = {key: memory[key] for key in _OWN} | {"tree": question.tree.to_value(), "way": question.way}
    tried, others = [*memory["tried"], own], list(memory["others"])
    if others:
        chosen = others.pop(0)
    else:
        chosen, tried = min(tried, key=lambda one: min(one["errors"])), []
    tree = Tree.from_value(chosen["tree"], question.n_plain)
    return _split(
        replace(question, tree=tree, way=chosen["way"]), {**memory, **chosen, "tried": tried, "others": others}
    )


def progress_of(question: TreeQuestion, memory: Memory) -> Mapping[str, Value]:  # noqa: ARG001 - the question has it all
    """Return stage, rules so far, leaves that are asked about, depth, and the tree drawn in lines."""

    def words_of(node: int) -> tuple[str, str]:
        condition = question.side(node)
        return condition.feature, condition.term

    return {"stage": question.kind, **question.tree.progress(question.asked, words_of)}
