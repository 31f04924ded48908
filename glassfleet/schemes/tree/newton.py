"""Newton's method for the scores of all leaves together, from summed products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Done, Next
from glassfleet.contract.sums import Memory, Sums, ask
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.numerics.symmetric import invert, product
from glassfleet.schemes.tree.joint import SCALE
from glassfleet.schemes.tree.messages import MAX_COEFFICIENT, TreeQuestion
from glassfleet.schemes.tree.model import FuzzyClassTree
from glassfleet.schemes.tree.params import SCORE_BITS, UNIT
from glassfleet.schemes.tree.rules import ScoreRules, why_few, widened
from glassfleet.schemes.tree.tree import Tree
from schemas.codec import Value

FIRST_PULL = 0.03
"""The pull of slopes until the rows tell a better one, in rows, for columns with a variance of one."""

LEAST_PULL = 0.001
MOST_PULL = 1000.0
"""Between these is the pull that the rows tell."""

LEAST_SPREAD = 1e-6
"""Least variance of a column that a pull is scaled by."""

INTERCEPT_PULL = 0.03
"""The pull of intercepts, in rows. Scores of ten are usual, and a stronger pull punishes them."""

STEPS = 8
"""Newton rounds at most; fewer where no coefficient moves any more."""

TRIAL_STEPS = 6
"""So many of them, at most, are of training rows, where trees are compared."""

LARGEST_STEP = 8.0
"""No coefficient of a node moves farther in one round; else the round is shortened for the node."""

STILL = 0.01
"""Scores whose coefficients moved less than this are found: it changes a probability by a quarter of it at most."""

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pull:
    """How strongly the slopes of a node are pulled towards those of the node above.

    Attributes
    ----------
    rows : float
        > 0: the pull of a slope is worth so many rows of a column with a variance of one.
    spread : sequence of float, length R + 1
        Of each column of ``[1, x]`` its variance over all rows; that of the intercept is not used.
    """

    rows: float
    spread: Sequence[float]


def first_pull(squares: Ints, columns: int) -> Pull:
    """Return the pull of the first round, where scores are zero and all rows count the same."""
    products = np.add.accumulate(unpack_symmetric(squares[:, 0].astype(np.float64), columns))[-1]
    rows = max(float(products[0, 0]), 1.0)
    mean = products[0] / rows
    return Pull(FIRST_PULL, tuple(np.maximum(np.diagonal(products) / rows - mean * mean, LEAST_SPREAD).tolist()))


def stepped(question: TreeQuestion, sums: Sums, pull: Pull, *, first: bool) -> tuple[Array, float, Pull]:
    """Return the scores after a step in every leaf, by how much a coefficient moved, and the pull of the next round.

    Parameters
    ----------
    question : Question
        ``"newton"``, with the scores b before the step, shape (leaves, S, R + 1).
    sums : Mapping of str to ndarray of int64
        The answers' sums.
    pull : Pull
    first : bool
        Whether it is the first step, which is too coarse to tell anything about the pull.

    Notes
    -----
    With the rows' probabilities p by the blend of all leaves, a leaf's sums are ``H_ab = sum w p_a ([a = b] - p_b) z
    z'`` and ``g_a = sum w z (y_a - p_a)``. The step minimises, over leaves and inner nodes together, ``sum of (b -
    before)' (H (b - before) / 2 - g)`` over leaves plus ``(b - b above)' P (b - b above) / 2`` over nodes. Degrees add
    up to one, so by convexity the leaves' H, without those of pairs of leaves, are above the curvature of the
    likelihood: no step makes it less. P is diagonal: the pull times the spread for slopes. Inner nodes have no data:
    they are eliminated from the leaves up. The next pull is what the rows themselves speak for: the slopes that they
    determine, ``sum of 1 - P_jj var(b - b above)_jj``, over the sum of ``spread (b - b above)^2``. Bishop, *Pattern
    Recognition and Machine Learning*, 2006, Eq. 3.91 and 3.92, after MacKay, *Bayesian interpolation*, 1992.
    """
    assert question.coefficients is not None
    tree, k, scores = question.tree, question.columns, question.targets
    before = question.coefficients.reshape(len(tree.leaves), -1)
    blocks = unpack_symmetric(sums["squares"].astype(np.float64) * SCALE, k)
    gradient = ((sums["observed"] - sums["expected"]).astype(np.float64) * SCALE).reshape(before.shape)
    is_slope = np.tile(np.arange(k) > 0, scores)
    spread = np.tile(np.array(pull.spread), scores)
    strength = np.where(is_slope, pull.rows * spread, INTERCEPT_PULL)
    nodes = {}
    for at, leaf in enumerate(tree.leaves):
        matrix = _curvature(blocks[at], scores)
        nodes[leaf] = matrix, product(matrix, before[at]) + gradient[at]
    found, determined, lengths = _solved(tree, nodes, strength)
    after, moved = before.copy(), 0.0
    for at, leaf in enumerate(tree.leaves):
        step = found[leaf] - before[at]
        largest = float(np.abs(step).max())
        moved = max(moved, largest)
        after[at] += step * (LARGEST_STEP / largest) if largest > LARGEST_STEP else step
    limited: Array = np.clip(after, -MAX_COEFFICIENT, MAX_COEFFICIENT).reshape(question.coefficients.shape)
    length = fsum((spread * lengths)[:, is_slope].ravel().tolist())
    if first or not length > 0.0:
        return limited, moved, pull
    rows = fsum(determined[:, is_slope].ravel().tolist()) / length
    return limited, moved, replace(pull, rows=min(max(rows, LEAST_PULL), MOST_PULL))


def _solved(
    tree: Tree, nodes: dict[int, tuple[Array, Array]], strength: Array
) -> tuple[dict[int, Array], Array, Array]:
    """Solve for the coefficients of all nodes, each pulled to those of the node above, the root to zero.

    Parameters
    ----------
    tree : Tree
    nodes : dict of int to (ndarray of float64, shape (n, n), ndarray of float64, shape (n,))
        Normal matrix and right-hand side of each leaf.
    strength : ndarray of float64, shape (n,)
        P.

    Returns
    -------
    coefficients : dict of int to ndarray of float64, shape (n,)
    determined, lengths : ndarray of float64, shape (nodes, n)
        Of the difference to the node above: ``1 - P var``, and its square.
    """
    inverse, right = {}, {}
    nothing = np.zeros((len(strength), len(strength))), np.zeros(len(strength))
    for node in range(tree.size - 1, -1, -1):
        matrix, right[node] = nodes.pop(node, nothing)
        inverse[node] = invert(matrix + np.diag(strength))
        if node:  # what is left of it in the node above
            above, pulled = tree.parent(node), strength[:, None] * inverse[node]
            matrix, side = nodes.get(above, nothing)
            matrix = matrix + np.diag(strength) - pulled * strength
            nodes[above] = matrix, side + strength * product(inverse[node], right[node])
    found, spread = {}, {}
    determined, lengths = np.zeros((2, tree.size, len(strength)))
    for node in range(tree.size):
        own = inverse[node]
        if not node:
            found[0], spread[0] = product(own, right[0]), own
            determined[0], lengths[0] = 1.0 - strength * np.diagonal(own), found[0] * found[0]
            continue
        above = tree.parent(node)
        found[node] = product(own, right[node] + strength * found[above])
        pulled = strength[:, None] * spread[above]
        half = product(own, pulled)
        through = product(own, (half * strength).T)
        spread[node] = through + own
        variance = np.diagonal(spread[node]) - 2.0 * np.diagonal(half) + np.diagonal(spread[above])
        apart = found[node] - found[above]
        determined[node], lengths[node] = 1.0 - strength * variance, apart * apart
    return found, determined, lengths


def _curvature(blocks: Array, scores: int) -> Array:
    """Return the matrix of second derivatives of all scores of a node, shape (S k, S k)."""
    k = blocks.shape[-1]
    matrix = np.zeros((scores, k, scores, k))
    for score in range(scores):
        matrix[score, :, score] = blocks[score]
    place = scores
    for one in range(scores):
        for other in range(one + 1, scores):
            matrix[one, :, other] = matrix[other, :, one] = -blocks[place]
            place += 1
    return matrix.reshape(scores * k, scores * k)


# --- the course -----------------------------------------------------------------------------------------------------


def begin(question: TreeQuestion, sizes: Sequence[int], memory: Mapping[str, Any]) -> Next:
    """Ask for the first Newton round of the leaves of trees of so many splits, all scores of which are zero.

    Where rows are held out they choose among the trees, whose scores are those of the training rows; then a few rounds
    more take all rows in.
    """
    kept = {name: memory[name] for name in ("sums_digest", "reference", "held_out")}
    kept |= {"grown": [splits + 1 for splits in memory["sizes"]], "errors": memory["errors"], "steps": 0, "pulls": []}
    asked = replace(question, kind="newton", tree=question.tree.first(sizes[-1]), sizes=tuple(sizes))
    scores = np.zeros((asked.scored, question.targets, question.columns))
    return ask(replace(asked, coefficients=scores, of_all=not memory["held_out"]), kept)


def goes_on(question: TreeQuestion, memory: Memory, rows: int, sums: Sums) -> Next | Done:
    """Take a Newton step in every leaf of each tree; go on, choose a tree, or build the model."""
    steps, start = int(memory["steps"]) + 1, 0
    after, moved, pulls, following = [], 0.0, [], []
    for number, one in enumerate(question.each_size):
        own = {name: sums[name][start : start + one.scored] for name in ("squares", "expected", "observed")}
        start += one.scored
        pull = first_pull(own["squares"], question.columns) if steps == 1 else Pull(*memory["pulls"][number])
        coefficients, far, then = stepped(one, own, pull, first=steps == 1)
        after.append(coefficients)
        moved = max(moved, far)
        pulls.append(pull)
        following.append([then.rows, then.spread])
    memory = {**memory, "steps": steps, "pulls": following}
    if not question.of_all and (moved < STILL or steps == TRIAL_STEPS):
        errors, apart = (sums["errors"].astype(np.float64) / float(1 << SCORE_BITS)).tolist()
        limit = min(errors) * (1.0 + question.parameters.size_tolerance)
        chosen = next(number for number, error in enumerate(errors) if error <= limit)
        if errors[0] - errors[chosen] <= float(np.sqrt(apart[chosen])):  # no more than a standard error
            chosen = 0
        splits = question.sizes[chosen]
        asked = replace(question, tree=question.tree.first(splits), sizes=(splits,), of_all=True)
        both = (2.0 if question.targets == 1 else 1.0) / memory["held_out"]  # two classes have the same error
        by_rules = {splits + 1: both * error for splits, error in zip(question.sizes, errors, strict=True)}
        memory |= {"pulls": [following[chosen]], "brier": by_rules[splits + 1]}
        memory["why_few"] = why_few(question, splits + 1, by_rules)
        return ask(replace(asked, coefficients=after[chosen]), memory)
    question = replace(question, coefficients=np.concatenate(after))
    if not question.of_all or (moved >= STILL and steps < STEPS):
        return ask(question, memory)
    weight, known = sums["weight"].astype(np.float64) / UNIT, sums["observed"][:, :, 0].astype(np.float64) / UNIT
    assert question.coefficients is not None
    model, class_shares = score_model(question, question.coefficients, weight, known, float(rows))
    held, kept = int(memory["held_out"]), {name: memory[name] for name in ("sums_digest", "reference")}
    summary: dict[str, Value] = {**kept, "sizes": memory["grown"], "rows": rows, "held_out": held}
    summary |= {"newton_rounds": steps, "pull": pulls[0].rows, "class_shares": class_shares}
    if held:
        both = (2.0 if question.targets == 1 else 1.0) / held
        summary |= {"held_out_brier": [both * error for error in memory["errors"]]}
        summary |= {name: memory[name] for name in ("brier", "why_few")}
    return Done(model, {**summary, **model.complexity()})


def score_model(
    question: TreeQuestion, coefficients: Array, weight: Array, known: Array, rows: float
) -> tuple[FuzzyClassTree, dict[str, Value]]:
    """Return the model of a question's tree, and each class's share of the rows.

    Parameters
    ----------
    question : Question
    coefficients : ndarray of float64, shape (leaves, S, R + 1)
        Of the scores.
    weight : ndarray of float64, shape (leaves,)
        Of the rows in each leaf.
    known : ndarray of float64, shape (leaves, S)
        Of those of each class that has a score.
    rows : float
    """
    each = np.column_stack([weight - known[:, 0], known[:, 0]]) if question.targets == 1 else known
    shares = np.minimum(each / np.where(weight > 0.0, weight, 1.0)[:, None], 1.0)
    wide = widened(coefficients, question.regressors, question.n_inputs)
    rules = ScoreRules(wide, shares, np.minimum(weight / rows, 1.0))
    model = FuzzyClassTree(question.parameters, question.domain, question.tree, rules, question.levels)
    among_all = [fsum(line) / max(fsum(weight), 1.0) for line in each.T]
    return model, dict(zip(question.domain.classes, among_all, strict=True))
