"""The coordinator's half: levels, knots, growth, size, scores - all from sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassfleet.aggregate import Sums, ask, taken_up
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.category_sums import levels_of
from glassfleet.fuzzy.hinges import candidates, choose
from glassfleet.fuzzy.levels import has_categories, plain_levels, with_levels
from glassfleet.scheme import Contribution, Done, Next, State, Task
from glassfleet.schemes.fmt.fit import Variant, fit_nodes, rank_regressors
from glassfleet.schemes.fmt.grow import UNIT
from glassfleet.schemes.fmt.growth import best_first, planted, split, taken_in
from glassfleet.schemes.fmt.inputs import Inputs
from glassfleet.schemes.fmt.linear import moments
from glassfleet.schemes.fmt.params import ERROR_BITS, MAX_ROWS
from glassfleet.schemes.fmt.partition import find_knots
from glassfleet.schemes.fmt.progress import progress_of
from glassfleet.schemes.fmt_classes.checks import check_sums
from glassfleet.schemes.fmt_classes.messages import NAME, Question, check_domain, read_task
from glassfleet.schemes.fmt_classes.model import FuzzyClassTree
from glassfleet.schemes.fmt_classes.newton import Pull, first_pull, stepped
from glassfleet.schemes.fmt_classes.params import SIZE_RIDGE, STEPS, STILL, Parameters
from glassfleet.schemes.fmt_classes.rules import ScoreRules
from glassfleet.untrusted import check_head, usage_errors
from schemas.codec import Value
from schemas.errors import RunFailedError


class FmtClassesServer:
    """Turns summed answers into the next question, or into the model."""

    def start(self, parameters: Parameters, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - nothing is random
        """Ask for the sums of the categories; where there are none, for histograms and the root's sums."""
        with usage_errors():
            check_domain(domain)
        if has_categories(domain):
            return ask(Question("levels", parameters, domain), {"sums_digest": ""})
        return ask(Question("scan", parameters, domain, levels=plain_levels(domain)), {"sums_digest": ""})

    def max_rows(self, parameters: Parameters) -> int:  # noqa: ARG002 - the same for all
        """Return the largest total number of rows that the sums are good for."""
        return MAX_ROWS

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        question = read_task(task)
        check_head(task, contribution, MAX_ROWS, sums_only=True)
        check_sums(question, contribution)

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task into the next task or the model."""
        question = read_task(Task(NAME, state["kind"], state["body"]))
        rows, sums, memory = taken_up(state, contributions, MAX_ROWS)
        if question.kind == "levels":
            return ask(replace(question, kind="scan", levels=levels_of(question.domain, sums)), memory)
        if question.kind == "scan":
            return _scanned(question, memory, sums)
        if question.kind == "hinges":
            return _bent(question, memory, sums)
        if question.kind == "grow":
            return _grown(question, memory, sums)
        if question.kind == "sizes":
            return _sized(question, memory, sums)
        return _stepped(question, memory, rows, sums)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Return stage, rules so far, leaves that are asked about, depth, and the tree drawn in lines."""
        return progress_of(read_task(Task(NAME, state["kind"], state["body"])))


def _scanned(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
    """Place the knots, choose the regressors, and ask for all hinges; where there can be none, for the root's cuts."""
    parameters, f = question.parameters, question.n_features
    training = int(sums["training"][0])
    if training == 0 or int(sums["gram"][0]) == 0:
        raise RunFailedError("no agent has enough rows to train on; lower holdout, or wait for more rows")
    knots = with_levels(find_knots(sums["histogram"], parameters.n_sets, "mixed"), question.levels)
    # The class nearest to half of the rows speaks for all: of it there is most to learn.
    targets = question.triangles(sums["gram"])
    half = min(targets, key=lambda own: abs(2 * int(own[f + 1]) - int(own[0])))
    regressors = tuple(rank_regressors(half, f, parameters.max_regressors))
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
    return ask(asked, memory) if hinges else _planted(asked, memory)


def _bent(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
    """Choose the hinges, and ask for the root's cuts."""
    f, k = question.n_features, len(question.regressors) + 2
    lines = len(question.regressors) - len(question.hinges)
    matrices = [moments(own[None], k)[:, :, 0] for own in question.triangles(sums["gram"])]
    chosen = choose(matrices, lines, question.parameters.max_hinges)
    hinges = tuple(question.hinges[number] for number in chosen)
    regressors = (*question.regressors[:lines], *range(f, f + len(hinges)))
    return _planted(replace(question, regressors=regressors, hinges=hinges), memory)


def _planted(question: Question, memory: dict[str, Any]) -> Next:
    """Ask for the root's cuts."""
    return ask(replace(question, kind="grow", nodes=(0,)), planted(memory))


def _grown(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
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


def _sized(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
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


def _stepped(question: Question, memory: dict[str, Any], rows: int, sums: Sums) -> Next | Done:
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
    wide = np.zeros((len(leaves), question.n_scores, question.n_features + len(question.hinges) + 1))
    wide[:, :, [0, *(feature + 1 for feature in question.regressors)]] = question.coefficients[leaves]
    rules = ScoreRules(wide, shares[leaves], np.minimum(weight[leaves] / (float(rows) * UNIT), 1.0))
    inputs = Inputs(question.domain, question.levels, question.knots, question.hinges)
    model = FuzzyClassTree(question.parameters, inputs, question.tree, rules)
    return model, dict(zip(question.domain.classes, shares[0].tolist(), strict=True))
