"""The coordinator's half: knots, growth, size, rules - all from sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import Sums, ask, memory_of, taken_up
from glassfleet.data.domain import Domain
from glassfleet.forecasts import rule_forecasts
from glassfleet.fuzzy.category_sums import levels_of
from glassfleet.fuzzy.levels import first_levels, has_categories, needs_levels, with_levels
from glassfleet.private.support import noted
from glassfleet.reference import typical_row
from glassfleet.scheme import SUPPORT, Contribution, Done, Next, State, Task
from glassfleet.schemes.fmt.checks import check_sums
from glassfleet.schemes.fmt.fit import Variant, fit_nodes, rank_regressors
from glassfleet.schemes.fmt.growth import best_first, costs, planted, simplest, split, taken_in
from glassfleet.schemes.fmt.inputs import Inputs
from glassfleet.schemes.fmt.linear import moments
from glassfleet.schemes.fmt.messages import NAME, NO_PRIVATE_TEXTS, Kind, Question, read_task
from glassfleet.schemes.fmt.model import FuzzyModelTree
from glassfleet.schemes.fmt.params import ERROR_BITS, MAX_INPUTS, MAX_ROWS, Parameters
from glassfleet.schemes.fmt.partition import find_knots
from glassfleet.schemes.fmt.progress import progress_of
from glassfleet.schemes.fmt.rules import rules_of
from glassfleet.schemes.fmt.support import decide
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.untrusted import check_head, check_numeric, usage_errors
from schemas.codec import Value
from schemas.errors import RunFailedError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RIDGES = (0.1, 0.01, 0.001, 1.0)
"""Pulls towards the node above that the held-out rows choose from, in rows; the first where there are none."""

SPARSE_RIDGES = RIDGES[:3]
"""Those for sparse rules: a strong pull mostly punishes them for the slopes that they leave out."""

SLOPES = (12, 8, 6, 4, 2)
"""Numbers of slopes of a rule that the held-out rows choose from, beside `max_slopes` and below it."""


class FmtServer:
    """Turns summed answers into the next question, or into the model."""

    def start(self, parameters: Parameters, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - nothing is random
        """Ask for histograms and for the root's sums."""
        with usage_errors():
            check_numeric(domain, NAME, MAX_INPUTS)
            if parameters.support and needs_levels(domain):
                raise ValueError(NO_PRIVATE_TEXTS)
        kind: Kind = "levels" if has_categories(domain) else "scan"
        levels = first_levels(domain) if kind == "scan" else ()
        return ask(Question(kind, parameters, domain, levels=levels), {"sums_digest": ""})

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
        if question.kind == SUPPORT:
            return _supported(question, memory_of(state), contributions)
        rows, sums, memory = taken_up(state, contributions, MAX_ROWS)
        if question.kind == "levels":
            return _leveled(question, memory, sums)
        if question.kind == "scan":
            return _scanned(question, memory, sums)
        if question.kind == "grow":
            return _grown(question, memory, sums)
        if question.kind == "sizes":
            return _sized(question, memory, rows, sums)
        return _finish(question, memory, rows, sums["gram"])

    def progress(self, state: State) -> Mapping[str, Value]:
        """Return stage, rules so far, leaves that are asked about, depth, and the tree drawn in lines."""
        return progress_of(read_task(Task(NAME, state["kind"], state["body"])))


def _leveled(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
    """Give each category its level, and scan the inputs."""
    return ask(replace(question, kind="scan", levels=levels_of(question.domain, sums)), memory)


def _scanned(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
    """Place the knots, choose the regressors, and ask for the root's cuts."""
    training = int(sums["training"][0])
    if training == 0 or int(sums["gram"][0]) == 0:
        raise RunFailedError("no agent has enough rows to train on; lower holdout, or wait for more rows")
    kept = {
        "sums_digest": memory["sums_digest"],
        "training": training,
        "histogram": sums["histogram"],
        "reference": typical_row(question.domain, sums["gram"][: 1 + question.n_features]),
        "regressors": rank_regressors(sums["gram"], question.n_features, question.parameters.max_regressors),
        "tried": [],
    }
    return _plant(question, kept)


def _plant(question: Question, memory: dict[str, Any]) -> Next:
    """Start the tree of the next number of sets: ask for the root's cuts."""
    parameters, f = question.parameters, question.n_features
    n_sets = parameters.tried_sets[len(memory["tried"])]
    asked = Question(
        "grow",
        parameters,
        question.domain,
        with_levels(find_knots(memory["histogram"], n_sets, parameters.partition), question.levels),
        tuple(memory["regressors"]),
        tuple(range(f)),
        Tree(),
        (0,),
        question.levels,
    )
    return _ask_nodes(asked, planted(memory))


# --- support --------------------------------------------------------------------------------------------------------


def _ask_nodes(question: Question, memory: dict[str, Any]) -> Next:
    """Ask about the cuts of some nodes; with `support` first which of them rest on enough rows."""
    if not question.parameters.support:
        return ask(question, memory)
    return ask(replace(question, kind=SUPPORT, held=None), memory)


def _supported(question: Question, memory: dict[str, Any], contributions: Sequence[Contribution]) -> Next:
    """Note what rests on enough rows, and ask about the cuts that do; what follows from the parents is not asked."""
    all_cuts = np.ones(len(question.cuts), dtype=bool)
    cuts: dict[str, Bools] = dict(memory.get("cuts", {}))
    known = np.array([cuts[str(question.tree.parent(node))] if node else all_cuts for node in question.nodes])
    enough = decide(question, known, contributions)
    families = np.repeat(np.arange(len(question.nodes)), len(question.children) // len(question.nodes))
    for child, family, may_split in zip(question.children, families, enough.splits, strict=True):
        cuts[str(child)] = enough.cuts[family] & may_split
    for node in question.nodes:
        cuts.pop(str(question.tree.parent(node)), None)
    memory = {
        **memory,
        "cuts": cuts,
        "full": [*memory.get("full", []), *enough.leaves.tolist()],
        "withheld": [*memory.get("withheld", []), noted(enough.flat())],
    }
    asked = [line for line, family in enumerate(enough.cuts) if family.any() or not question.nodes[line]]
    nodes = tuple(question.nodes[line] for line in asked)
    grow = replace(question, kind="grow", nodes=nodes, held=~enough.cuts[asked])
    return ask(grow, memory) if nodes else _grown(grow, memory, {})


# --- growing --------------------------------------------------------------------------------------------------------


def _grown(question: Question, memory: dict[str, Any], sums: Sums) -> Next:
    """Take in the sums of the nodes asked about and split on, or stop growing."""
    question, memory = taken_in(question, memory, sums)
    asked = split(question, memory)
    return _compare(question, memory) if asked is None else _ask_nodes(asked, memory)


# --- size and rules -------------------------------------------------------------------------------------------------


def _variants(parameters: Parameters, regressors: int) -> list[Variant]:
    """Return the ways to fit the nodes that the held-out rows choose from; the most slopes come first."""
    most = min(parameters.max_slopes, regressors)
    levels = [most, *(slopes for slopes in SLOPES if slopes < most)]
    return [
        Variant(ridge, slopes) for slopes in levels for ridge in (RIDGES if slopes == regressors else SPARSE_RIDGES)
    ]


def _compare(question: Question, memory: dict[str, Any]) -> Next:
    """Put the splits in best-first order and ask how well each number of rules does on held-out rows."""
    tree, whole, kept = best_first(question, memory)
    variants = _variants(question.parameters, len(question.regressors))
    coefficients = fit_nodes(tree, whole, len(question.regressors), variants)
    if question.parameters.support:  # leaves of which not all rows may be summed are fitted to those that are
        kept |= {"whole": whole}
    asked = replace(question, kind="sizes", tree=tree, nodes=(), coefficients=coefficients, held=None)
    return ask(asked, kept)


def _sized(question: Question, memory: dict[str, Any], rows: int, sums: Sums) -> Next | Done:
    """Note this tree's errors; go on with the next number of sets, or to the leaves of the tree that is chosen."""
    parameters = question.parameters
    assert question.coefficients is not None
    found = {
        "knots": [list(line) for line in question.knots],
        "split_features": list(question.split_features),
        "splits": question.tree.to_value()["splits"],
        # All rows' errors of all ways to fit, this run's way of inference.
        "errors": sums["errors"][:, 0 if parameters.inference == "averaged" else 1].astype(np.float64),
        "costs": costs(question.tree, np.count_nonzero(question.coefficients[:, :, 1:], axis=2)),
    }
    held = int(sums["held_out"][0])
    memory = {**memory, "tried": [*memory["tried"], found], "held_out": held}
    tried = memory["tried"]
    if len(tried) < len(parameters.tried_sets):
        return _plant(question, memory)
    tree, splits, variant = 0, len(tried[0]["splits"]), 0
    if held:
        tree, splits, variant = simplest(
            [one["errors"] for one in tried], [one["costs"] for one in tried], parameters.size_tolerance
        )
    chosen = tried[tree]
    knots = tuple(tuple(line) for line in chosen["knots"])
    asked = replace(
        question,
        kind="leaves",
        knots=knots,
        split_features=tuple(chosen["split_features"]),
        tree=Tree.from_value({"splits": chosen["splits"]}, knots).first(splits),
        coefficients=None,
    )
    best = {"variant": variant, "errors": chosen["errors"][variant]}
    kept = {name: memory[name] for name in ("sums_digest", "reference")} | {"held_out": held, "best": best}
    if not parameters.support:
        return ask(asked, kept)
    kept |= {"whole": memory["whole"], "withheld": memory["withheld"]}
    nodes = tuple(sorted(leaf for leaf in asked.tree.leaves if memory["full"][leaf]))
    asked = replace(asked, nodes=nodes)
    return ask(asked, kept) if nodes else _finish(asked, kept, rows, np.zeros((0, asked.width), dtype=np.int64))


def _finish(question: Question, memory: dict[str, Any], rows: int, gram: Ints) -> Done:
    """Fit the final leaves over all rows and build the model; `gram` has the sums of the leaves asked about."""
    parameters, tree = question.parameters, question.tree
    leaves = tree.leaves
    whole = np.zeros((tree.size, question.width), dtype=np.int64)
    if parameters.support:
        whole[leaves] = memory["whole"][leaves]
    whole[question.asked_leaves] = gram
    for index in range(len(tree.splits) - 1, -1, -1):
        whole[tree.splits[index].node] = whole[2 * index + 1] + whole[2 * index + 2]
    variant = _variants(parameters, len(question.regressors))[memory["best"]["variant"]]
    coefficients = fit_nodes(tree, whole, len(question.regressors), [variant])[0]
    wide = np.zeros((len(leaves), question.n_features + 1))
    wide[:, [0, *(feature + 1 for feature in question.regressors)]] = coefficients[leaves]
    rules = rules_of(whole[leaves], coefficients[leaves], wide, rows)
    model = FuzzyModelTree(parameters, Inputs(question.domain, question.levels, question.knots), tree, rules)
    held = int(memory["held_out"])
    summary: dict[str, Value] = {name: memory[name] for name in ("sums_digest", "reference")}
    summary |= {"rows": rows, "held_out": held}
    k = len(question.regressors) + 1
    sums_of = moments(whole[leaves], k + 1)[:k, :k]
    summary["forecasts"] = rule_forecasts(
        question.domain, rows, sums_of, np.ascontiguousarray(coefficients[leaves].T), question.regressors
    )
    if held:
        target = question.domain.target
        assert target is not None
        mean = memory["best"]["errors"] / (float(1 << ERROR_BITS) * held)
        summary["held_out_rmse"] = (np.sqrt(mean) * (target.high - target.low)).tolist()
        summary["ridge"] = variant.ridge
        summary["slopes"] = variant.slopes
    if "withheld" in memory:
        summary["withheld"] = memory["withheld"]
    return Done(model, {**summary, **model.complexity()})
