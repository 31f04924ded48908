"""dp_tree: a differentially private decision tree, the papers' baseline. See README.md in this folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.contract.scheme import Abilities, Cost, Participation, PrivateRuns, Purpose
from glassfleet.contract.sums import Memory, SumScheme, add_up, ask, chained_digest
from glassfleet.contract.tasks import (
    SchemeQuestion,
    check_array,
    check_classes,
    check_integer,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.crisp import CrispTreeModel, prepare
from glassfleet.crisp.grow import cross_validated_tree
from glassfleet.crisp.tree import TreeBody, read_tree
from glassfleet.data.dataset import Dataset
from glassfleet.data.documents import document_errors, read_document_head
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from lab.schemes.dp_tree.growth import GRID, Growth, best_cut, bin_rows, finished_tree, grid_edges, quantile_edges
from lab.schemes.dp_tree.params import SLACK, DpTreeParameters, deviation, draw, true_epsilon
from schemas.codec import Value
from schemas.errors import RunFailedError, UsageError

NAME = "dp_tree"
MAX_AGENTS = 1_000_000


@dataclass(frozen=True)
class DpTreeQuestion(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Kinds are ``hello``, ``edges`` and ``level``: who is there; how are your inputs spread; what do the open nodes hold.

    Attributes
    ----------
    agents : int
        t, from the first round; 0 in it.
    edges : ndarray of float64, shape (F, n_bins - 1)
        In the inputs' own units, increasing; a value of at most an edge is below it. Of ``level`` alone.
    growth : Growth
        Its open nodes are what is asked about.
    """

    parameters: DpTreeParameters
    agents: int = 0
    edges: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    growth: Growth = field(default_factory=Growth.root)

    @property
    def last(self) -> bool:
        """Whether the open nodes are leaves because of their depth."""
        return self.growth.depth == self.parameters.max_depth

    def sums(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Return shape and budget of each sum of an answer."""
        given, features, k, m = self.parameters, self.n_features, self.n_classes, len(self.growth.open)
        if self.kind == "hello":
            return {}
        if self.kind == "edges":  # every row is in one bin of each input
            return {"histogram": ((features, GRID), given.once * given.edge_share / features)}
        if self.last:
            return {"nodes": ((m, k), 2.0 * given.level_epsilon)}
        cells = (m, features, given.n_bins, k)
        return {"nodes": ((m, k), given.level_epsilon), "cells": (cells, given.level_epsilon / features)}

    @property
    def cost(self) -> float:
        """What one answer spends of the budget: a row is in one cell of each sum, or of each input's part of it."""
        return sum(epsilon * (1 if name == "nodes" else self.n_features) for name, (_, epsilon) in self.sums().items())

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body = task_head(self.parameters, self.domain)
        if self.kind != "hello":
            body["agents"] = self.agents
        if self.kind == "level":
            body |= {"edges": self.edges, "tree": self.growth.to_value(), "nodes": self.growth.open.astype(np.int32)}
        return Task(NAME, self.kind, body)


class DifferentiallyPrivateTree(SumScheme[DpTreeQuestion]):
    """The scheme, as the catalogue knows it: a tree grown from counts with noise from each vehicle's own secret."""

    name = NAME
    title = "Differentially private decision tree"
    purpose = frozenset[Purpose]({"classification"})
    participation = frozenset[Participation]({"elastic"})
    Parameters = DpTreeParameters
    kinds = ("hello", "edges", "level")
    signed = frozenset({"histogram", "nodes", "cells"})
    is_exact = False

    @cached_property
    def abilities(self) -> Abilities:
        """What the scheme can do beside; in private runs vehicles share the noise, and keep account of their budget."""
        private = PrivateRuns(self.layout, self.private, openly=_openly, among=self.among, spent=self.spent)
        return replace(super().abilities, categories=True, tables=CrispTreeModel.tables, alone=_alone, private=private)

    def read(self, task: Task) -> DpTreeQuestion:
        """Read a task without trust; raises TaskError."""
        kind, parameters, domain = read_task_head(task, NAME, self.kinds, DpTreeParameters)
        body, n_bins = task.body, parameters.n_bins
        with task_errors():
            check_classes(domain, NAME, self.max_classes)
            if kind == "hello":
                return DpTreeQuestion(kind, parameters, domain)
            agents = check_integer("agents", body["agents"], 1, MAX_AGENTS)
            if kind == "edges":
                return DpTreeQuestion(kind, parameters, domain, agents)
            growth = Growth.from_value(body["tree"], len(domain.features), n_bins, parameters.max_depth)
            edges = check_array("edges", body["edges"], np.float64, (len(domain.features), n_bins - 1))
            if (edges[:, 1:] < edges[:, :-1]).any():
                raise ValueError("edges must be increasing")
            if not np.array_equal(check_array("nodes", body["nodes"], np.int32, (None,)), growth.open):
                raise ValueError("the open nodes are not those of the tree's last level")
        return DpTreeQuestion(kind, parameters, domain, agents, edges, growth)

    def first(self, parameters: DpTreeParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - nothing is random
        """Ask who is there."""
        return ask(DpTreeQuestion("hello", parameters, domain), {"counts": [], "sums_digest": "", "spent": []})

    def shapes(self, question: DpTreeQuestion) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer."""
        return {name: shape for name, (shape, _) in question.sums().items()}

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Answer `task`; see :class:`glassfleet.contract.scheme.Client`.

        `rng` belongs to this agent and this task: the same task has the same noise (a repeated answer tells nothing
        new), another task has other noise. A vehicle without rows has nothing to hide and answers zeros.
        """
        question = self._read(task)
        given = self.answer(question, data)
        for name, (shape, epsilon) in sorted(question.sums().items() if data.rows else ()):
            given.sums[name] += draw(rng, shape, epsilon, question.parameters.noise, question.agents)
        return given

    def answer(self, question: DpTreeQuestion, data: Dataset) -> Contribution:
        """Count, without noise."""
        columns, features, k = prepare(data, question.domain), question.n_features, question.n_classes
        places = []
        if question.kind == "edges":
            places.append(bin_rows(columns.X, grid_edges(question.domain)) + np.arange(features) * GRID)
        if question.kind == "level":
            bins, growth = bin_rows(columns.X, question.edges), question.growth
            position = growth.reached(bins) - growth.open[0]
            here = position >= 0
            position, y, bins = position[here], columns.y[here], bins[here]
            places.append(position * k + y)
            cell = (position[:, None] * features + np.arange(features)) * question.parameters.n_bins + bins
            places.append(cell * k + y[:, None])
        counts = {
            name: np.bincount(place.ravel(), minlength=math.prod(shape)).reshape(shape).astype(np.int64)
            for (name, shape), place in zip(self.shapes(question).items(), places, strict=False)
        }
        return Contribution(question.kind, data.rows, counts)

    def check_sums(self, question: DpTreeQuestion, contribution: Contribution) -> None:
        """Raise ContributionError where counts are farther from what can be true than noise is."""
        rows, is_noisy = contribution.rows, contribution.rows > 0 and question.parameters.noise != "none"
        for name, (_, epsilon) in question.sums().items():
            counts, each = contribution.sums[name], int(SLACK / epsilon) + 1 if is_noisy else 0
            slack = each * (contribution.vehicles or 1)
            if ((counts < -slack) | (counts > rows + slack)).any():
                raise ContributionError(f"{name} is farther from [0, {rows}] than noise can be")

    def step(self, question: DpTreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to a question into the next one or the tree.

        Raises
        ------
        RunFailedError
            ``no-rows``: nobody who answered has rows. ``too-few-shares``: with ``noise="aggregate"``, so many
            agents are missing that the noise of the others is too small; the sum is not used.
        """
        present = sum(each.rows > 0 if each.vehicles is None else each.vehicles for each in contributions)
        if not present:
            raise RunFailedError("no agent that answered has any rows", "no-rows")
        memory = {**memory, "spent": _spent(question, memory, contributions)}
        if question.kind == "hello":
            return ask(replace(question, kind="edges", agents=present), memory)
        # In a private run each vehicle looks itself how many share the noise with it.
        is_private = contributions[0].summed is not None
        if question.parameters.noise == "aggregate" and not is_private and present < question.agents - 1:
            raise RunFailedError(
                f"{present} of {question.agents} agents answered; their noise does not keep the promised epsilon. Ask "
                "for a larger quorum, or use noise=local",
                "too-few-shares",
            )
        sums = add_up(contributions)
        memory["sums_digest"] = chained_digest(str(memory["sums_digest"]), {"sums": sums})
        if question.kind == "edges":
            edges = quantile_edges(question.domain, question.parameters.n_bins, sums["histogram"])
            memory["counts"] = np.zeros((1, question.n_classes), dtype=np.int64)
            return ask(replace(question, kind="level", edges=edges), memory)
        counts = np.array(memory["counts"], dtype=np.int64)
        counts[question.growth.open] = sums["nodes"]
        chosen = {} if question.last else _cuts(question, sums, contributions)
        if not chosen:
            return _finish(question, memory, counts)
        new = np.zeros((2 * len(chosen), question.n_classes), dtype=np.int64)
        memory["counts"] = np.concatenate([counts, new])
        return ask(replace(question, growth=question.growth.split(chosen)), memory)

    def shown(self, question: DpTreeQuestion, memory: Memory) -> Mapping[str, Value]:  # noqa: ARG002
        """Return stage, nodes, leaves, open nodes, depth, and the tree drawn in lines."""
        growth = question.growth
        if question.kind != "level":
            return {"stage": question.kind, "nodes": 0, "leaves": 0, "open": 0, "depth": 0, "lines": []}
        # At the greatest depth the open nodes are leaves: their rows are counted, and they do not grow.
        open_nodes = set() if question.last else set(growth.open.tolist())
        return {
            "stage": "level",
            "nodes": growth.size - 1,
            "leaves": int((growth.left < 0).sum()) - len(open_nodes),
            "open": len(open_nodes),
            "depth": growth.depth,
            **outlined(_nodes(question, open_nodes), growth.size),
        }

    def exact(self, parameters: Any) -> Any:
        """Return `parameters` without noise: nothing is hidden then, for models that stay where the rows are."""
        return parameters.model_copy(update={"noise": "none"})

    def private(self, parameters: DpTreeParameters) -> DpTreeParameters:
        """Return the parameters of a private run; raises UsageError."""
        if parameters.noise == "paper":
            raise UsageError(
                'a private run of dp_tree needs noise="aggregate" or "local": what the paper\'s hides is not known'
            )
        return parameters.model_copy(update={"losses": 3 if parameters.losses is None else parameters.losses})

    def among(self, task: Task, honest: int) -> Task:
        """Return `task` for a group: the shares of those of it who are honest are the whole noise."""
        question = self._read(task)
        return task if question.kind == "hello" else replace(question, agents=honest + 1).to_task()

    def spent(self, task: Task) -> tuple[float, float]:
        """Return what an answer spends of the run's budget, and that."""
        question = self._read(task)
        return (0.0 if question.parameters.noise == "none" else question.cost), question.parameters.epsilon

    def cost(self, question: DpTreeQuestion, rows: int) -> Cost:
        """Return what an answer may take: each row is counted once for each input, and each sum gets its noise."""
        entries, sums = rows * question.n_features, sum(map(math.prod, self.shapes(question).values()))
        return Cost(2e-7 * (entries + sums), (entries * 80 + sums * 40) / 1e6)

    def from_document(self, document: Mapping[str, Any]) -> CrispTreeModel:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        parameters, domain, body = read_document_head(document, NAME, CrispTreeModel.format, DpTreeParameters)
        with document_errors():
            check_classes(domain, NAME, self.max_classes)
            return CrispTreeModel(NAME, parameters, domain, read_tree(TreeBody.model_validate(body), domain))


def _alone(parameters: DpTreeParameters, domain: Domain, data: Dataset, seed: int = 0) -> CrispTreeModel:
    """Return what the papers compare with: the vehicle's own CART, its depth chosen by cross-validation."""
    columns = prepare(data, domain)
    if not columns.rows:
        raise RunFailedError("a tree needs rows", "no-rows")
    positive = 1 if len(domain.classes) == 2 else None
    tree = cross_validated_tree(columns, np.random.default_rng([seed % 2**63, 1]), positive=positive)
    return CrispTreeModel(NAME, parameters, domain, tree)


def _openly(parameters: DpTreeParameters) -> None:
    if parameters.noise == "aggregate":
        raise UsageError(
            'noise="aggregate" hides rows in the sum of all answers alone, and in this run each answer is seen by '
            'itself: make it a private run, or use noise="local"'
        )


def _spent(question: DpTreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> list[Value]:
    """Return what each group's answers have spent so far: its number, that of its edition, and epsilon.

    A group that shrank since its last answer was asked again, and who answered has spent that twice. A plain run is one
    group that does not shrink.
    """
    known = {group: (edition, spent) for group, edition, spent in memory["spent"]}
    for each in contributions:
        group, edition = (0, 0) if each.summed is None else (each.summed.group, each.summed.edition)
        before, spent = known.get(group, (edition, 0.0))
        known[group] = (edition, spent + (1 + edition - before) * question.cost)
    return [[group, edition, spent] for group, (edition, spent) in sorted(known.items())]


def _cuts(
    question: DpTreeQuestion, sums: Mapping[str, NDArray[np.int64]], contributions: Sequence[Contribution]
) -> dict[int, tuple[int, int]]:
    """Return where to cut the open nodes that hold enough rows: more on average in a cell than noise.

    The rule is Friedman and Schuster's.
    """
    parameters, (_, epsilon) = question.parameters, question.sums()["cells"]
    groups = [
        deviation(epsilon, parameters.noise, each.vehicles or 1, each.summed.honest)
        for each in contributions
        if each.summed is not None
    ]
    noise = math.hypot(*groups) if groups else deviation(epsilon, parameters.noise, question.agents)
    chosen = {}
    for node, counts, cells in zip(question.growth.open.tolist(), sums["nodes"], sums["cells"], strict=True):
        held = np.maximum(counts, 0)
        enough = held.sum() > noise * parameters.n_bins * question.n_classes
        if enough and (parameters.noise != "none" or np.count_nonzero(held) > 1):
            cut = best_cut(np.maximum(cells, 0).astype(np.float64))
            if cut is not None:
                chosen[node] = cut
    return chosen


def _finish(question: DpTreeQuestion, memory: Memory, counts: NDArray[np.int64]) -> Done:
    parameters = question.parameters
    model = CrispTreeModel(NAME, parameters, question.domain, finished_tree(question.growth, question.edges, counts))
    kept = true_epsilon(parameters.noise, parameters.epsilon, question.agents)
    summary: dict[str, Value] = {
        "sums_digest": memory["sums_digest"],
        "agents": question.agents,
        "noise": parameters.noise,
        "epsilon_nominal": parameters.epsilon,
        "epsilon_sum": kept,
        "epsilon_spent": None if kept is None else max(spent for _, _, spent in memory["spent"]),
        "epsilon_answer": parameters.epsilon if parameters.noise == "local" else None,
        "private": kept is not None,
        **model.complexity(),
    }
    return Done(model, summary)


def _nodes(question: DpTreeQuestion, open_nodes: set[int]) -> Iterator[OutlineNode]:
    growth = question.growth
    stack = [(0, "", "")]
    while stack:
        node, name, term = stack.pop()
        yield OutlineNode(int(growth.level[node]), name, term, node in open_nodes)
        left = int(growth.left[node])
        if left >= 0:
            variable = question.domain.features[growth.feature[node]]
            below, above = _sides(variable, float(question.edges[growth.feature[node], growth.cut[node]]))
            stack += [(left + 1, variable.name, above), (left, variable.name, below)]


def _sides(variable: Variable, edge: float) -> tuple[str, str]:
    """Return the two sides of a cut in words."""
    if not variable.categories:
        return f"at most {edge:.4g}", f"above {edge:.4g}"
    first = max(0, math.floor(edge) + 1)
    return " or ".join(variable.categories[:first]), " or ".join(variable.categories[first:])


SCHEME = DifferentiallyPrivateTree()

__all__ = ["SCHEME", "DifferentiallyPrivateTree", "DpTreeParameters"]
