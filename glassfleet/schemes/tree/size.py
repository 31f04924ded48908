"""How many rules and slopes, for every step of the growth: from the joint sums over training rows and those held out.

With `support` no rows are held out, and the sums over all rows decide, by a penalised error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Done, Next
from glassfleet.model.intervals import rule_forecasts
from glassfleet.private.layout import DRAWN
from glassfleet.schemes.tree.joint import SCALE, Fit, dense, fit_of, pull_of, root_of, sparse
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.model import FuzzyTree, discriminants, rules_of, why_few
from glassfleet.schemes.tree.newton import begin, score_model
from glassfleet.schemes.tree.start import of_support
from schemas.codec import Value
from schemas.errors import RunFailedError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

KAPPAS = (1.0, 5.0, 20.0, 80.0)
"""Pulls towards the node above that the held-out rows choose from, in rows of the node."""

WORTHS = (2.0, 4.0)
"""A slope must lower the squared error by so many times the noise's variance: the held-out rows choose."""

RULE_COST = 2
"""A rule is worth so many coefficients when the simplest of the models that are accurate enough is chosen."""

NEAR = 1.15
"""Trees whose held-out squared error, with all slopes, is further above the least are not tried with fewer slopes."""


def sums_of(memory: Mapping[str, Any], part: int) -> tuple[dict[tuple[int, int], Ints], dict[int, Ints]]:
    """Return the joint fit's sums by pair and by leaf: of training rows (0), or of those held out (1)."""
    pairs = {(i, j): line for (i, j), line in zip(memory["pairs"].tolist(), memory["gram"][part], strict=True)}
    return pairs, dict(zip(memory["leaves"], memory["target"][part], strict=True))


def choose(question: TreeQuestion, memory: Mapping[str, Any]) -> Next | Done:
    """Return the simplest model that is accurate enough, fitted over all rows; of classes ask for its scores."""
    if question.domain.classes:
        return begin(question, _promising(question, memory), memory)
    parameters, tree = question.parameters, question.tree.first(memory["sizes"][-1])
    sums = [sums_of(memory, part) for part in (0, 1)]
    root = root_of(memory, question.columns)
    size, kappa, worth = len(tree.splits), question.kappa, WORTHS[0]
    least = dict(zip(memory["sizes"], memory["errors"], strict=True))
    if memory["held_out"]:
        tried = []
        highest = NEAR * min(memory["errors"])
        for splits, error in zip(memory["sizes"], memory["errors"], strict=True):
            if error > highest:
                continue
            fit, held = (fit_of(tree, splits, *part) for part in sums)
            pull = pull_of(fit, root)
            kappa, _ = _best_pull(fit, held, pull)
            results = _sparse(question, fit, fit.with_pull(kappa, pull), WORTHS)
            for worth, b in zip(WORTHS, results, strict=True):
                tried.append((_cost(b), held.error(b), splits, kappa, worth))
            least[splits] = min(one[1] for one in tried if one[2] == splits)
        limit = min(one[1] for one in tried) * (1.0 + parameters.size_tolerance)
        _, _, size, kappa, worth = min(one for one in tried if one[1] <= limit)
    everything = {key: part + sums[1][0][key] for key, part in sums[0][0].items()}
    target = {key: part + sums[1][1][key] for key, part in sums[0][1].items()}
    fit = fit_of(tree, size, everything, target)
    coefficients = _sparse(question, fit, fit.with_pull(kappa, pull_of(fit, root)), (worth,))[0]
    rows, held_out = int(memory["training"]), int(memory["held_out"])
    summary: dict[str, Value] = {"rows": rows + held_out, "held_out": held_out, "pull": kappa}
    if held_out:
        summary["dear"] = question.ways[question.way]
        variable = question.domain.target
        assert variable is not None
        scale = variable.high - variable.low
        summary["held_out_rmse"] = [float(np.sqrt(e / held_out)) * scale for e in memory["errors"]]
        by_rules = {splits + 1: float(np.sqrt(error / held_out)) * scale for splits, error in least.items()}
        summary |= {"held_out_line": by_rules[1], "why_few": why_few(question, size + 1, by_rules)}
    return _done(question, memory, fit, coefficients, summary)


def _promising(question: TreeQuestion, memory: Mapping[str, Any]) -> list[int]:
    """Return by how many splits the trees are made whose scores are worth learning, increasing.

    Squared errors of indicators (Brier) speak for more rules than scores need, which are no straight lines over
    chances. So beside the smallest tree near the least held-out error there is a smaller one, and one rule.
    """
    if not memory["held_out"]:
        return [memory["sizes"][-1]]
    sums, root, errors = [sums_of(memory, part) for part in (0, 1)], root_of(memory, question.columns), {}
    for splits, error in zip(memory["sizes"], memory["errors"], strict=True):
        if error <= NEAR * min(memory["errors"]):
            fit, held = (fit_of(question.tree, splits, *part) for part in sums)
            errors[splits] = _best_pull(fit, held, pull_of(fit, root))[1]
    limit = min(errors.values()) * (1.0 + question.parameters.size_tolerance)
    return sorted({0, min(errors), min(splits for splits, error in errors.items() if error <= limit)})


def least_penalised(question: TreeQuestion, memory: Mapping[str, Any], sums: Mapping[str, Ints]) -> Done:
    """Return the model of least generalised cross-validation, of a run with `support`.

    The squared error over all rows is divided by ``(1 - c / n)^2`` (Craven and Wahba, 1979; Friedman, 1991, equation
    30). As in the latter, the cost c is that of coefficients, and of a choice made for each rule.

    Parameters
    ----------
    question : Question
    memory : mapping
        ``sizes``, ``root``, ``training``, ``withheld``, and for the record ``sums_digest`` and ``reference``.
    sums : mapping of str to ndarray of int64
        The answer to `question`, which is ``"joint"``.
    """
    tree = question.tree
    gram = dict(zip(tree.overlaps, sums["gram"], strict=True))
    lines = sums["target"].reshape(len(tree.leaves), question.targets, -1)
    target = dict(zip(tree.leaves, lines, strict=True))
    root = root_of(memory, question.columns)
    if not sums["gram"][:, 0].any():
        raise RunFailedError(
            f"some group has fewer than {question.least_rows} rows in each rule, and nothing is told of so few: bring "
            "more vehicles or rows, or ask for less support"
        )
    best: tuple[float, Fit, Array] | None = None
    for splits in memory["sizes"]:
        fit = fit_of(tree, splits, gram, target, SCALE / DRAWN)
        matrix = fit.with_pull(question.kappa, pull_of(fit, root))
        several = [dense(fit, matrix)] if question.domain.classes else _sparse(question, fit, matrix, WORTHS)
        for b in several:
            room = 1.0 - _cost(b) / max(fit.rows * question.targets, 1.0)
            error = fit.error(b) / (room * room) if room > 0.0 else np.inf
            if best is None or error < best[0]:
                best = error, fit, b
    assert best is not None  # a tree without splits is among the sizes
    _, fit, b = best
    summary: dict[str, Value] = {"rows": int(memory["training"]), "held_out": 0, "pull": question.kappa}
    summary |= of_support(question, memory)
    if not question.domain.classes:
        return _done(question, memory, fit, b, summary)
    scores, known = discriminants(fit, question.kappa, root), np.ascontiguousarray(fit.right[:, :, 0])
    asked = replace(question, tree=fit.tree)
    model, class_shares = score_model(asked, scores, fit.whole[:, 0, 0], known, fit.rows)
    kept = {name: memory[name] for name in ("sums_digest", "reference")}
    summary |= {"sizes": [splits + 1 for splits in memory["sizes"]], "class_shares": class_shares}
    return Done(model, {**kept, **summary, **model.complexity()})


def _sparse(question: TreeQuestion, fit: Fit, matrix: Array, worths: Sequence[float]) -> list[Array]:
    return sparse(fit, matrix, question.parameters.max_slopes, worths, question.regressors, free=question.free)


def _cost(coefficients: Array) -> int:
    return int(np.count_nonzero(coefficients)) + RULE_COST * len(coefficients)


def _done(
    question: TreeQuestion, memory: Mapping[str, Any], fit: Fit, coefficients: Array, summary: dict[str, Value]
) -> Done:
    """Return the model with these coefficients, and its record."""
    coefficients = coefficients[:, 0]
    rules = rules_of(fit, coefficients, question)
    model = FuzzyTree(question.parameters, question.domain, fit.tree, rules, question.levels)
    forecasts = rule_forecasts(
        question.domain,
        fit.rows,
        fit.whole.transpose(1, 2, 0),
        np.ascontiguousarray(coefficients.T),
        question.regressors,
    )
    kept = {name: memory[name] for name in ("sums_digest", "reference")}
    sizes = [splits + 1 for splits in memory["sizes"]]
    return Done(model, {**kept, "forecasts": forecasts, **summary, "sizes": sizes, **model.complexity()})


def _best_pull(fit: Fit, held: Fit, pull: Array) -> tuple[float, float]:
    """Return the pull of :data:`KAPPAS` with the least held-out error, and that error: upwards while it falls."""
    best, least = KAPPAS[0], np.inf
    for kappa in KAPPAS:
        error = held.error(dense(fit, fit.with_pull(kappa, pull)))
        if error > least:
            break
        best, least = kappa, error
    return best, least
