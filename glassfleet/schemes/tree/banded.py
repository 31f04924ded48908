"""The coordinator's course of a run with `support`: growth by bands alone, and one question about the joint fit.

A step asks how many rows of the latest leaves are in each band, and then for sums by band: neighbouring ones, joined
until they hold enough. (Of the first leaf each bin is counted, of later ones each band of the leaf above.) Splits are
chosen by these sums, and coefficients follow them. When the tree has grown, pairs of leaves that share too few rows are
closed, and all that the joint fit needs is asked for once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Next
from glassfleet.contract.sums import Memory, Sums, ask
from glassfleet.fuzzy.levels import PRIOR, by_input, levels_by, plain_levels
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.private.layout import DRAWN
from glassfleet.private.support import noted
from glassfleet.schemes.tree.bins import level_edges
from glassfleet.schemes.tree.gains import SCORE_SCALE, Best, BinSums, best_of_bands
from glassfleet.schemes.tree.joint import SCALE, root_of
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.params import LEAST_GAIN, MAX_BANDED_STEPS, TOGETHER
from glassfleet.schemes.tree.support import decide_bands, decide_categories, decide_pairs, limits_of, slices_of
from glassfleet.schemes.tree.tree import Split, Tree
from schemas.codec import Value
from schemas.errors import RunFailedError

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def begin(question: TreeQuestion, memory: Memory) -> Next:
    """Ask how many rows are in each of the root's bins.

    Parameters
    ----------
    question : Question
        With the regressors.
    memory : dict
        What the scan told: ``root``, ``coefficients``, ``features``, ``edges``, ``training``; and what is ``withheld``.
    """
    # Leaves that could still be split: gain, ramp, both sides' changes of coefficients and weights, edges of bands.
    # Of proposed splits the last three.
    memory |= {"open": {}, "proposed": [], "sizes": [0], "steps": 0}
    shape = (1, len(memory["features"]), question.parameters.bins - 1)
    return _ask_counts(question, memory, Tree(), (0,), np.ones(shape, dtype=np.bool_))


def levelled(question: TreeQuestion, memory: Memory, sums: Sums) -> Next:
    """Give each category a level by its rows' residuals, and begin; one that is not told adds nothing."""
    weight, residual = np.split(sums["scores"] / (SCORE_SCALE * DRAWN), [1], axis=1)
    counts, apart = np.rint(weight[:, 0]).astype(np.int64), residual / (weight + PRIOR)
    domain, of_plain = question.domain, plain_levels(question.domain)
    lines = zip(by_input(domain, counts), by_input(domain, apart), of_plain, strict=True)
    levels = tuple(levels_by(own, adds) if len(own) else plain for (_, own), (_, adds), plain in lines)
    edges = [
        level_edges(line, question.parameters.bins) if line else own
        for line, own in zip(levels, memory["edges"], strict=True)
    ]
    common = tuple((column, cell) for column, cell in memory.pop("common"))
    return begin(replace(question, levels=levels, common=common), memory | {"edges": np.array(edges)})


def _ask_counts(question: TreeQuestion, memory: Memory, tree: Tree, leaves: Sequence[int], counted: Bools) -> Next:
    asked = replace(
        question,
        kind=SUPPORT,
        tree=tree,
        leaves=tuple(leaves),
        features=tuple(memory["features"]),
        edges=memory["edges"],
        counted=counted,
    )
    return ask(asked, memory)


def supported(question: TreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next:
    """Take in on how many rows something rests, and ask for what rests on enough."""
    if question.is_of_categories:
        disclosed = decide_categories(question, contributions)
        memory |= {"withheld": [*memory["withheld"], noted(disclosed)]}
        return ask(
            replace(question, kind="categories", disclosed=disclosed, coefficients=memory["coefficients"]), memory
        )
    if question.is_of_pairs:
        return _closed(question, memory, contributions)
    enough, kept = decide_bands(question, contributions)
    memory |= {"withheld": [*memory["withheld"], noted(np.concatenate([enough, kept.ravel()]))]}
    tree, line_of = _accepted(question, memory, enough.tolist())
    asked = [leaf for leaf, line in line_of.items() if kept[line].any()]
    lines = [line_of[leaf] for leaf in asked]
    is_last = len(tree.splits) + 1 == question.most_rules or memory["steps"] == MAX_BANDED_STEPS
    if is_last or not asked:
        return _split(question, memory, tree)
    bands = replace(
        question,
        kind="bands",
        tree=tree,
        coefficients=memory["coefficients"],
        leaves=tuple(asked),
        counted=question.counted[lines],
        kept=kept[lines],
    )
    return ask(bands, memory)


def _accepted(question: TreeQuestion, memory: Memory, enough: list[bool]) -> tuple[Tree, dict[int, int]]:
    """Make the proposed splits both of whose sides hold enough; return the tree, and lines of leaves that may split.

    The coefficients in the memory become those of the tree's leaves.
    """
    proposed, memory["proposed"] = memory["proposed"], []
    if not proposed:  # the root
        return question.tree, {0: 0} if enough[0] else {}
    before = question.tree.first(len(question.tree.splits) - len(proposed))
    made = [number for number in range(len(proposed)) if enough[2 * number] and enough[2 * number + 1]]
    splits = question.tree.splits[len(before.splits) :]
    tree = before.grown([splits[number] for number in made])
    lines = dict(zip(before.leaves, memory["coefficients"], strict=True))
    line_of = {}
    for at, number in enumerate(made):
        changes, weights, _ = proposed[number]
        for child, (change, weight) in enumerate(zip(changes, weights, strict=True)):
            leaf = before.size + 2 * at + child
            lines[leaf] = lines[splits[number].node] + change
            if weight >= 2.0 * _least(question, memory):  # else no ramp leaves enough on either side
                line_of[leaf] = 2 * number + child
    memory["coefficients"] = np.stack([lines[leaf] for leaf in tree.leaves])
    if made:
        memory["sizes"] = [*memory["sizes"], len(tree.splits)]
    return tree, line_of


def banded(question: TreeQuestion, memory: Memory, sums: Sums) -> Next:
    """Note the best ramp of each leaf that was asked about, and split."""
    own = unpack_symmetric(sums["own"].astype(np.float64) * (SCALE / DRAWN), question.columns)
    scores, means = (sums[name] / (SCORE_SCALE * DRAWN) for name in ("scores", "means"))
    root = root_of(memory, question.columns)
    spans, least, splits = slices_of(question.kept), _least(question, memory), dict(memory["open"])
    for line, leaf in enumerate(question.leaves):
        path = frozenset(split.ramp for split, _ in question.tree.path(leaf))
        found: dict[int, Best] = {}
        for place, feature in enumerate(question.features):
            span = spans[line, place]
            products = _products(own[line], means[span], question.regressors, feature)
            bins = BinSums(products, scores[None, span], means[None, span], root, question.kappa)
            levels = question.levels[feature] if question.levels else ()
            limits = limits_of(question.kept[line, place])
            best = best_of_bands(bins, feature, memory["edges"][feature], limits, levels, path, least=least)
            if best is not None:
                found[feature] = best
        ranking = sorted(found, key=lambda feature: (-found[feature].gain, feature))
        if leaf == 0:
            memory["features"] = sorted(ranking[: question.parameters.max_split_features])
        inner = question.kept[line, [question.features.index(feature) for feature in memory["features"]]]
        if ranking and found[ranking[0]].gain > LEAST_GAIN * float(memory["training"]):
            most = found[ranking[0]]
            splits[str(leaf)] = [most.gain, *most.ramp, most.changes, list(most.sides), inner]
    return _split(question, {**memory, "open": splits}, question.tree)


def _products(own: Array, means: Array, regressors: Sequence[int], feature: int) -> Array:
    """Return about the sums of products over the rows of some bands, shape (k, k), positive.

    The bands' means are exact. Around them rows scatter as those of the leaf do that have the same value of the input.
    `own` less the means' part would be more exact, but has other draws, and is not positive.

    Parameters
    ----------
    own : ndarray of float64, shape (k, k)
        ``sum w^2 z z'`` of the leaf.
    means : ndarray of float64, shape (bands, k)
        Sums of w^2 z by band of the input.
    regressors : sequence of int
    feature : int
    """
    weight = max(float(own[0, 0]), 1e-9)
    mean = own[0] / weight
    scatter = own / weight - mean[:, None] * mean
    if feature in regressors:
        at = 1 + regressors.index(feature)
        scatter -= scatter[:, at, None] * scatter[at] / max(float(scatter[at, at]), 1e-12)
    count = means[:, 0]
    centre = means / np.where(count > 0.0, count, 1.0)[:, None]
    between = np.add.accumulate(count[:, None, None] * centre[:, :, None] * centre[:, None, :], axis=0)[-1]
    products: Array = between + float(np.add.accumulate(count)[-1]) * scatter
    return products


def _least(question: TreeQuestion, memory: Memory) -> float:
    """Return the least weight on either side of a ramp, in rows."""
    return max(question.parameters.least_weight(memory["training"]), float(question.least_rows))


def _split(question: TreeQuestion, memory: Memory, tree: Tree) -> Next:
    """Propose to split the leaves with the highest gains, and ask how many rows their sides hold; or stop growing."""
    # The same ramp on both sides of a border would have two pairs of leaves with nearly the same products.
    known = {split.ramp for split in tree.splits}
    splits = {leaf: best for leaf, best in memory["open"].items() if tuple(best[1:4]) not in known}
    room = question.most_rules - 1 - len(tree.splits)
    order = sorted((int(leaf) for leaf in splits), key=lambda leaf: (-splits[str(leaf)][0], leaf))
    if room <= 0 or not order or memory["steps"] == MAX_BANDED_STEPS:
        return _ask_pairs(question, memory, tree)
    highest = splits[str(order[0])][0]
    best = {tuple(splits[str(leaf)][1:4]): leaf for leaf in reversed(order)}
    chosen = [leaf for leaf in order if splits[str(leaf)][0] >= TOGETHER * highest and leaf in best.values()][:room]
    grown = tree.grown([Split(leaf, *splits[str(leaf)][1:4]) for leaf in chosen])
    proposed: list[Value] = [splits.pop(str(leaf))[4:] for leaf in chosen]
    memory |= {"open": splits, "proposed": proposed, "steps": memory["steps"] + 1}
    inner = np.repeat(np.stack([each[2] for each in proposed]), 2, axis=0)  # of both sides those of the leaf
    return _ask_counts(question, memory, grown, range(tree.size, grown.size), inner)


# --- the joint fit --------------------------------------------------------------------------------------------------


def _ask_pairs(question: TreeQuestion, memory: Memory, tree: Tree) -> Next:
    """Ask on how many rows the sums over pairs of leaves rest."""
    kept = {name: memory[name] for name in ("sums_digest", "reference", "training", "root", "sizes", "withheld")}
    return ask(replace(question, kind=SUPPORT, tree=tree, leaves=()), kept)


def _closed(question: TreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next:
    """Close the pairs that share too few rows, and ask again; where all others share none or enough, for the sums."""
    enough = decide_pairs(question, contributions)
    memory |= {"withheld": [*memory["withheld"], noted(enough)]}
    few = [
        (*pair, layer)
        for pair, layers in zip(question.tree.overlaps, enough.tolist(), strict=True)
        for layer, is_enough in enumerate(layers if layers[0] else layers[:1])
        if not is_enough
    ]
    if not set(few).isdisjoint(question.closed):
        raise RunFailedError("a pair of rules that no row shares is counted again: counts are wrong, or of another run")
    if few:
        return ask(replace(question, closed=(*question.closed, *few)), memory)
    return ask(replace(question, kind="joint"), memory)
