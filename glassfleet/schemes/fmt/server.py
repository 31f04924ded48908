"""The coordinator's half: knots, growth, size, rules - all from sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import Sums, ask
from glassfleet.forecasts import rule_forecasts
from glassfleet.fuzzy.levels import with_levels
from glassfleet.fuzzy.linear_rules import LinearRules, widened
from glassfleet.numerics.sparse import ranked
from glassfleet.private.columns import common_of, most_columns
from glassfleet.private.support import noted
from glassfleet.reference import sums_of_cells, typical_row
from glassfleet.scheme import SUPPORT, Contribution, Done, Next
from glassfleet.schemes.fmt.checks import check_sums
from glassfleet.schemes.fmt.grow import UNIT, Variant, fit_nodes, moments, residual_moments
from glassfleet.schemes.fmt.growth import best_first, costs, simplest, split, started, taken_in
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.model import FuzzyModelTree
from glassfleet.schemes.fmt.params import ERROR_BITS, Parameters
from glassfleet.schemes.fmt.partition import find_knots
from glassfleet.schemes.fmt.support import decide
from glassfleet.schemes.fmt.tree import Inputs, Tree
from glassfleet.training import Memory, TrainingServer, check_trained, of_support
from schemas.codec import Value

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RIDGES = (0.1, 0.01, 0.001, 1.0)
"""Pulls towards the node above that the held-out rows choose from, in rows; the first where there are none."""

SPARSE_RIDGES = RIDGES[:3]
"""Those for sparse rules: a strong pull mostly punishes them for the slopes that they leave out."""

SLOPES = (12, 8, 6, 4, 2)
"""Numbers of slopes of a rule that the held-out rows choose from, beside `max_slopes` and below it."""


def _step(question: Question, memory: Memory, rows: int, sums: Sums) -> Next | Done:
    if question.kind == "scan":
        return _scanned(question, memory, sums)
    if question.kind == "grow":
        return _grown(question, memory, sums)
    if question.kind == "sizes":
        return _sized(question, memory, rows, sums)
    return _finish(question, memory, rows, sums["gram"])


def _scanned(question: Question, memory: Memory, sums: Sums) -> Next:
    """Place the knots, choose the regressors, and ask for the root's cuts."""
    parameters, histogram, training = question.parameters, sums["histogram"], int(sums["training"][0])
    check_trained(training, int(sums["gram"][0]))
    columns, most, means = question.columns, parameters.max_regressors, sums["gram"][: 1 + question.n_inputs]
    if parameters.support:
        most, means = most_columns(most, training), sums_of_cells(histogram)
    root = moments(sums["gram"][None], len(columns) + 2)[:, :, 0]
    kept = {
        **memory,
        "training": training,
        "histogram": histogram,
        "reference": typical_row(question.domain, means),
        "regressors": [columns[place] for place in ranked(root, most)],
        "tried": [],
    }
    return _start_tree(question, kept)


def _start_tree(question: Question, memory: Memory) -> Next:
    """Start the tree of the next number of sets: ask for the root's cuts."""
    parameters, f = question.parameters, question.n_inputs
    n_sets = parameters.tried_sets[len(memory["tried"])]
    asked = Question(
        "grow",
        parameters,
        question.domain,
        knots=with_levels(find_knots(memory["histogram"], n_sets, parameters.partition), question.levels),
        regressors=tuple(memory["regressors"]),
        split_features=tuple(range(f)),
        nodes=(0,),
        levels=question.levels,
    )
    return _ask_nodes(asked, started(memory))


# --- support --------------------------------------------------------------------------------------------------------


def _ask_nodes(question: Question, memory: Memory) -> Next:
    """Ask about the cuts of some nodes; with `support` first which of them rest on enough rows."""
    if not question.parameters.support:
        return ask(question, memory)
    common = common_of(memory["values"], question.regressors)
    return ask(replace(question, kind=SUPPORT, held=None, common=common), memory)


def _supported(question: Question, memory: Memory, contributions: Sequence[Contribution]) -> Next:
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
        "withheld": [*memory["withheld"], noted(enough.flat())],
    }
    asked = [line for line, family in enumerate(enough.cuts) if family.any() or not question.nodes[line]]
    nodes = tuple(question.nodes[line] for line in asked)
    grow = replace(question, kind="grow", nodes=nodes, held=~enough.cuts[asked])
    return ask(grow, memory) if nodes else _grown(grow, memory, {})


# --- growing --------------------------------------------------------------------------------------------------------


def _grown(question: Question, memory: Memory, sums: Sums) -> Next:
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


def _compare(question: Question, memory: Memory) -> Next:
    """Put the splits in best-first order and ask how well each number of rules does on held-out rows."""
    tree, whole, kept = best_first(question, memory)
    variants = _variants(question.parameters, len(question.regressors))
    coefficients = fit_nodes(tree, whole, len(question.regressors), variants)
    if question.parameters.support:  # leaves of which not all rows may be summed are fitted to those that are
        kept |= {"whole": whole}
    asked = replace(question, kind="sizes", tree=tree, nodes=(), coefficients=coefficients, held=None)
    return ask(asked, kept)


def _sized(question: Question, memory: Memory, rows: int, sums: Sums) -> Next | Done:
    """Note this tree's errors; go on with the next number of sets, or to the leaves of the tree that is chosen."""
    parameters = question.parameters
    assert question.coefficients is not None
    entry = {
        "knots": [list(line) for line in question.knots],
        "split_features": list(question.split_features),
        "splits": question.tree.to_value()["splits"],
        # All rows' errors of all ways to fit, this run's way of inference.
        "errors": sums["errors"][:, 0 if parameters.inference == "averaged" else 1].astype(np.float64),
        "costs": costs(question.tree, np.count_nonzero(question.coefficients[:, :, 1:], axis=2)),
    }
    held = int(sums["held_out"][0])
    memory = {**memory, "tried": [*memory["tried"], entry], "held_out": held}
    tried = memory["tried"]
    if len(tried) < len(parameters.tried_sets):
        return _start_tree(question, memory)
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


def _finish(question: Question, memory: Memory, rows: int, gram: Ints) -> Done:
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
    k, lines = len(question.regressors) + 1, coefficients[leaves]
    sums, columns = moments(whole[leaves], k + 1), np.ascontiguousarray(lines.T)
    strength, error = whole[leaves, 0].astype(np.float64) / UNIT, residual_moments(sums, columns)[k, k]
    wide = widened(lines, question.regressors, question.n_inputs)
    rules = LinearRules.of(wide, strength, error, float(rows))
    model = FuzzyModelTree(parameters, Inputs(question.domain, question.levels, question.knots), tree, rules)
    held = int(memory["held_out"])
    summary: dict[str, Value] = {name: memory[name] for name in ("sums_digest", "reference")}
    summary |= {"rows": rows, "held_out": held}
    summary["forecasts"] = rule_forecasts(question.domain, rows, sums[:k, :k], columns, question.regressors)
    if held:
        target = question.domain.target
        assert target is not None
        mean = memory["best"]["errors"] / (float(1 << ERROR_BITS) * held)
        summary["held_out_rmse"] = (np.sqrt(mean) * (target.high - target.low)).tolist()
        summary["ridge"] = variant.ridge
        summary["slopes"] = variant.slopes
    if "withheld" in memory:
        summary |= of_support(question, memory)
    return Done(model, {**summary, **model.complexity()})


SERVER = TrainingServer(Question, read_task, check_sums, _step, _supported)
"""Turns summed answers into the next question, or into the model."""
