"""The coordinator's half: levels, knots, growth, size, scores - all from sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glassfleet.aggregate import Sums, ask
from glassfleet.fuzzy.hinges import candidates, choose
from glassfleet.fuzzy.levels import with_levels
from glassfleet.fuzzy.linear_rules import widened
from glassfleet.numerics.sparse import ranked
from glassfleet.scheme import Done, Next
from glassfleet.schemes.fmt.grow import UNIT, Variant, fit_nodes, moments
from glassfleet.schemes.fmt.growth import best_first, split, started, taken_in
from glassfleet.schemes.fmt.params import ERROR_BITS
from glassfleet.schemes.fmt.partition import find_knots
from glassfleet.schemes.fmt.tree import Inputs
from glassfleet.schemes.fmt_classes.checks import check_sums
from glassfleet.schemes.fmt_classes.messages import Question, read_task
from glassfleet.schemes.fmt_classes.model import FuzzyClassTree
from glassfleet.schemes.fmt_classes.newton import Pull, first_pull, stepped
from glassfleet.schemes.fmt_classes.params import SIZE_RIDGE, STEPS, STILL
from glassfleet.schemes.fmt_classes.rules import ScoreRules
from glassfleet.training import Memory, TrainingServer, check_trained
from schemas.codec import Value


def _step(question: Question, memory: Memory, rows: int, sums: Sums) -> Next | Done:
    if question.kind == "scan":
        return _scanned(question, memory, sums)
    if question.kind == "hinges":
        return _bent(question, memory, sums)
    if question.kind == "grow":
        return _grown(question, memory, sums)
    if question.kind == "sizes":
        return _sized(question, memory, sums)
    return _stepped(question, memory, rows, sums)


def _scanned(question: Question, memory: Memory, sums: Sums) -> Next:
    """Place the knots, choose the regressors, and ask for all hinges; where there can be none, for the root's cuts."""
    parameters, f = question.parameters, question.n_inputs
    training = int(sums["training"][0])
    check_trained(training, int(sums["gram"][0]))
    knots = with_levels(find_knots(sums["histogram"], parameters.n_sets, "mixed"), question.levels)
    # The class nearest to half of the rows speaks for all: of it there is most to learn.
    targets = question.triangles(sums["gram"])
    half = min(targets, key=lambda own: abs(2 * int(own[f + 1]) - int(own[0])))
    regressors = tuple(ranked(moments(half[None], f + 2)[:, :, 0], parameters.max_regressors))
    hinges = candidates(question.domain, regressors, knots) if parameters.max_hinges else ()
    asked = replace(
        question,
        kind="hinges",
        knots=knots,
        regressors=(*regressors, *range(f, f + len(hinges))),
        split_features=tuple(range(f)),
        hinges=hinges,
    )
    memory = {**memory, "training": training}
    return ask(asked, memory) if hinges else _start_tree(asked, memory)


def _bent(question: Question, memory: Memory, sums: Sums) -> Next:
    """Choose the hinges, and ask for the root's cuts."""
    f, k = question.n_inputs, len(question.regressors) + 2
    lines = len(question.regressors) - len(question.hinges)
    matrices = [moments(own[None], k)[:, :, 0] for own in question.triangles(sums["gram"])]
    chosen = choose(matrices, lines, question.parameters.max_hinges)
    hinges = tuple(question.hinges[number] for number in chosen)
    regressors = (*question.regressors[:lines], *range(f, f + len(hinges)))
    return _start_tree(replace(question, regressors=regressors, hinges=hinges), memory)


def _start_tree(question: Question, memory: Memory) -> Next:
    """Ask for the root's cuts."""
    return ask(replace(question, kind="grow", nodes=(0,)), started(memory))


def _grown(question: Question, memory: Memory, sums: Sums) -> Next:
    """Take in the sums of the nodes asked about and split on; or ask how well each number of rules does."""
    question, memory = taken_in(question, memory, sums)
    asked = split(question, memory)
    if asked is not None:
        return ask(asked, memory)
    tree, whole, kept = best_first(question, memory)
    slopes = [Variant(SIZE_RIDGE, min(question.parameters.max_slopes, len(question.regressors)))]
    targets = [fit_nodes(tree, own, len(question.regressors), slopes) for own in question.triangles(whole)]
    asked = replace(question, kind="sizes", tree=tree, nodes=(), coefficients=np.stack(targets, axis=1))
    return ask(asked, kept)


def _sized(question: Question, memory: Memory, sums: Sums) -> Next:
    """Choose the number of rules, and ask for the first Newton round of the tree's nodes."""
    assert question.coefficients is not None
    held, (errors,) = int(sums["held_out"][0]), sums["errors"].astype(np.float64)
    enough = errors <= errors.min() * (1.0 + question.parameters.size_tolerance)
    tree = question.tree.first(int(enough.argmax()) if held else len(question.tree.splits))
    used = np.swapaxes(question.coefficients[0, :, : tree.size] != 0.0, 0, 1).copy()
    used[:, :, 0] = True
    kept = {"sums_digest": memory["sums_digest"], "held_out": held, "used": used.astype(np.int64), "steps": 0}
    # Two classes have the same error; one is asked about.
    kept["brier"] = errors * (2.0 if question.n_scores == 1 else 1.0) / (float(1 << ERROR_BITS) * max(held, 1))
    scores = np.zeros((tree.size, question.n_scores, len(question.regressors) + 1))
    return ask(replace(question, kind="newton", tree=tree, coefficients=scores), kept)


def _stepped(question: Question, memory: Memory, rows: int, sums: Sums) -> Next | Done:
    """Take a Newton step in every node; go on, or build the model."""
    steps = int(memory["steps"])
    pull = Pull(float(memory["pull"]), tuple(memory["spread"])) if steps else first_pull(question, sums)
    coefficients, moved, following = stepped(question, memory["used"] != 0, sums, pull, first=steps == 0)
    question, steps = replace(question, coefficients=coefficients), steps + 1
    if moved >= STILL and steps < STEPS:
        return ask(question, {**memory, "steps": steps, "pull": following.rows, "spread": list(following.spread)})
    model, class_shares = _model(question, rows, sums)
    held = int(memory["held_out"])
    summary: dict[str, Value] = {"sums_digest": memory["sums_digest"], "rows": rows, "held_out": held}
    summary |= {"newton_rounds": steps, "pull": pull.rows, "class_shares": class_shares}
    if held:
        summary["held_out_brier"] = memory["brier"].tolist()
    return Done(model, {**summary, **model.complexity()})


def _model(question: Question, rows: int, sums: Sums) -> tuple[FuzzyClassTree, dict[str, Value]]:
    """Return the model of a question's scores, and each class's share of the rows."""
    assert question.coefficients is not None
    weight, known = sums["weight"].astype(np.float64), sums["observed"][:, :, 0].astype(np.float64)
    each = np.column_stack([weight - known[:, 0], known[:, 0]]) if question.n_scores == 1 else known
    shares = np.minimum(each / np.where(weight > 0.0, weight, 1.0)[:, None], 1.0)
    leaves = question.tree.leaves
    wide = widened(question.coefficients[leaves], question.regressors, question.n_inputs + len(question.hinges))
    rules = ScoreRules(wide, shares[leaves], np.minimum(weight[leaves] / (float(rows) * UNIT), 1.0))
    inputs = Inputs(question.domain, question.levels, question.knots, question.hinges)
    model = FuzzyClassTree(question.parameters, inputs, question.tree, rules)
    return model, dict(zip(question.domain.classes, shares[0].tolist(), strict=True))


SERVER = TrainingServer(Question, read_task, check_sums, _step)
"""Turns summed answers into the next question, or into the model."""
