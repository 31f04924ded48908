"""The coordinator's half: adds noisy counts and grows the tree from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import check_head, check_shapes
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.contract.sums import Sums, add_up, ask, chained_digest
from glassfleet.contract.tasks import check_classes, usage_errors
from glassfleet.crisp import CrispTree, CrispTreeModel
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from lab.schemes.dp_tree.client import grid_edges
from lab.schemes.dp_tree.messages import GRID, MAX_CLASSES, NAME, DpTreeQuestion, Growth, read_task
from lab.schemes.dp_tree.noise import SLACK, deviation, true_epsilon
from lab.schemes.dp_tree.params import DpTreeParameters
from schemas.codec import Value
from schemas.errors import RunFailedError


class DpTreeServer:
    """Turns summed counts into the next question, or into the tree."""

    def start(self, parameters: DpTreeParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG002 - nothing is random here
        """Ask who is there."""
        with usage_errors():
            check_classes(domain, NAME, MAX_CLASSES)
        return ask(DpTreeQuestion("hello", parameters, domain), {"counts": [], "sums_digest": "", "spent": []})

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        question = read_task(task)
        check_head(task, contribution, sums_only=True)
        shapes, rows = question.shapes(), contribution.rows
        check_shapes(contribution.sums, shapes, signed=shapes)
        for name, counts in contribution.sums.items():
            noisy = rows > 0 and question.parameters.noise != "none"
            each = int(SLACK / question.epsilons()[name]) + 1 if noisy else 0
            slack = each * (contribution.vehicles or 1)
            if bool(((counts < -slack) | (counts > rows + slack)).any()):
                raise ContributionError(f"{name} is farther from [0, {rows}] than noise can be")

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task into the next task or the tree.

        Raises
        ------
        RunFailedError
            ``no-rows``: nobody who answered has rows. ``too-few-shares``: with ``noise="aggregate"``, so many
            agents are missing that the noise of the others is too small; the sum is not used.
        """
        question = read_task(Task(NAME, state["kind"], state["body"]))
        present = sum(each.rows > 0 if each.vehicles is None else each.vehicles for each in contributions)
        if not present:
            raise RunFailedError("no agent that answered has any rows", "no-rows")
        state = {**state, "spent": _spent(question, state, contributions)}
        if question.kind == "hello":
            return ask(replace(question, kind="edges", agents=present), state)
        # In a private run each vehicle looks itself how many share the noise with it.
        is_private = contributions[0].summed is not None
        if question.parameters.noise == "aggregate" and not is_private and present < question.agents - 1:
            raise RunFailedError(
                f"{present} of {question.agents} agents answered; their noise does not keep the promised epsilon. Ask "
                "for a larger quorum, or use noise=local",
                "too-few-shares",
            )
        sums = add_up(contributions)
        digest = chained_digest(str(state["sums_digest"]), {"sums": sums})
        if question.kind == "edges":
            asked = replace(
                question,
                kind="level",
                edges=_edges(question, sums["histogram"]),
                growth=Growth.root(),
                nodes=np.zeros(1, dtype=np.intp),
            )
            counts = np.zeros((1, question.n_classes), dtype=np.int64)
            return ask(asked, {"counts": counts, "sums_digest": digest, "spent": state["spent"]})
        noise = 0.0 if question.last else _noise(question, contributions)
        return _grow(question, state, sums, digest, noise)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Return stage, nodes, leaves, open nodes, depth, and the tree drawn in lines."""
        return progress_of(read_task(Task(NAME, state["kind"], state["body"])))


def _spent(question: DpTreeQuestion, state: State, contributions: Sequence[Contribution]) -> list[Value]:
    """Return what each group's answers have spent so far: its number, that of its edition, and epsilon.

    A group that shrank since its last answer was asked again, and who answered has spent that twice. A plain run is one
    group that does not shrink.
    """
    known = {group: (edition, spent) for group, edition, spent in state["spent"]}
    for each in contributions:
        group, edition = (0, 0) if each.summed is None else (each.summed.group, each.summed.edition)
        before, spent = known.get(group, (edition, 0.0))
        known[group] = (edition, spent + (1 + edition - before) * question.cost)
    return [[group, edition, spent] for group, (edition, spent) in sorted(known.items())]


def _noise(question: DpTreeQuestion, contributions: Sequence[Contribution]) -> float:
    """Return the standard deviation of the noise in one cell of a level's sums."""
    parameters = question.parameters
    epsilon, mode = parameters.cell_epsilon(question.n_features), parameters.noise
    groups = [
        deviation(epsilon, mode, each.vehicles or 1, each.summed.honest)
        for each in contributions
        if each.summed is not None
    ]
    return math.hypot(*groups) if groups else deviation(epsilon, mode, question.agents)


def _edges(question: DpTreeQuestion, histogram: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the inner edges of about equal shares of the rows, from the noisy histogram; some may coincide."""
    n_bins, grid = question.parameters.n_bins, grid_edges(question.domain)
    edges = np.empty((question.n_features, n_bins - 1))
    for feature, counts in enumerate(np.maximum(histogram, 0)):
        running = np.cumsum(counts)
        ranks = np.arange(1, n_bins) / n_bins * max(1, int(running[-1]))
        edges[feature] = grid[feature, np.minimum(np.searchsorted(running, ranks), GRID - 2)]
    return edges


def _grow(question: DpTreeQuestion, state: State, sums: Sums, digest: str, noise: float) -> Next | Done:
    """Split the open nodes that hold enough rows, and make leaves of the others."""
    parameters = question.parameters
    assert question.growth is not None
    assert question.nodes is not None
    counts = np.array(state["counts"], dtype=np.int64)
    counts[question.nodes] = sums["nodes"]
    chosen: dict[int, tuple[int, int]] = {}
    if not question.last:
        # Friedman and Schuster: splitting needs on average more rows in a cell than noise.
        for line, node in enumerate(question.nodes):
            held = np.maximum(sums["nodes"][line], 0)
            enough = held.sum() > noise * parameters.n_bins * question.n_classes
            if enough and (parameters.noise != "none" or np.count_nonzero(held) > 1):
                cut = _best_cut(np.maximum(sums["cells"][line], 0).astype(np.float64))
                if cut is not None:
                    chosen[int(node)] = cut
    growth = _with_splits(question.growth, chosen)
    memory: dict[str, Value] = {
        "counts": np.concatenate([counts, np.zeros((2 * len(chosen), question.n_classes), dtype=np.int64)])
    }
    if not chosen:
        return _finish(question, state, counts, digest)
    nodes = np.arange(question.growth.size, growth.size)
    memory |= {"sums_digest": digest, "spent": state["spent"]}
    return ask(replace(question, growth=growth, nodes=nodes), memory)


def _best_cut(cells: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return (input, last bin on the left) of the least weighted Gini index, or None when nothing can be cut.

    `cells` has shape (F, B, K). A gain of zero is no cut: it would be paid for with rows.
    """
    left = np.cumsum(cells, axis=1)[:, :-1]
    whole = cells.sum(axis=1)[:, None, :]
    right = whole - left
    n_left, n_right = left.sum(axis=2), right.sum(axis=2)
    possible = (n_left > 0) & (n_right > 0)
    squares = (left**2).sum(axis=2) / np.maximum(n_left, 1.0) + (right**2).sum(axis=2) / np.maximum(n_right, 1.0)
    # Each input has its own noisy total, so gains are compared per row.
    n = np.maximum(whole.sum(axis=2), 1.0)
    gain = np.where(possible, (squares - (whole**2).sum(axis=2) / n) / n, 0.0)
    best = int(gain.argmax())
    if gain.flat[best] <= 1e-12:
        return None
    return best // gain.shape[1], best % gain.shape[1]


def _with_splits(growth: Growth, chosen: Mapping[int, tuple[int, int]]) -> Growth:
    """Return the tree with the nodes `chosen` split; their children come last, in the order of their parents."""
    more = 2 * len(chosen)
    nothing = np.full(more, -1, dtype=np.int32)
    feature, cut, left = (np.concatenate([part, nothing]) for part in (growth.feature, growth.cut, growth.left))
    level = np.concatenate([growth.level, np.zeros(more, dtype=np.int32)])
    for number, (node, (f, c)) in enumerate(sorted(chosen.items())):
        feature[node], cut[node], left[node] = f, c, growth.size + 2 * number
        level[left[node] : left[node] + 2] = level[node] + 1
    return Growth(feature, cut, left, level)


def _finish(question: DpTreeQuestion, state: State, counts: NDArray[np.int64], digest: str) -> Done:
    assert question.growth is not None
    assert question.edges is not None
    parameters = question.parameters
    model = CrispTreeModel(NAME, parameters, question.domain, finished_tree(question.growth, question.edges, counts))
    kept = true_epsilon(parameters.noise, parameters.epsilon, question.agents)
    summary: dict[str, Value] = {
        "sums_digest": digest,
        "agents": question.agents,
        "noise": parameters.noise,
        "epsilon_nominal": parameters.epsilon,
        "epsilon_sum": kept,
        "epsilon_spent": None if kept is None else max(spent for _, _, spent in state["spent"]),
        "epsilon_answer": parameters.epsilon if parameters.noise == "local" else None,
        "private": kept is not None,
        **model.complexity(),
    }
    return Done(model, summary)


def finished_tree(growth: Growth, edges: NDArray[np.float64], counts: NDArray[np.int64]) -> CrispTree:
    """Return the tree in pre-order. Noisy counts below 0 count as 0; a node of which nothing is left answers as its
    parent does.
    """  # noqa: D205 - one sentence
    held = np.maximum(counts, 0).astype(np.float64)
    rows = held.sum(axis=1)
    share = np.where(rows[:, None] > 0, held / np.maximum(rows, 1.0)[:, None], 0.0)
    if rows[0] == 0:
        share[0] = 1.0 / share.shape[1]
    order: list[int] = []
    stack: list[int] = [0]
    while stack:
        node = stack.pop()
        order.append(node)
        left = int(growth.left[node])
        if left >= 0:
            for son in (left, left + 1):
                if rows[son] == 0:
                    share[son] = share[node]
            stack += [left + 1, left]
    at = np.array(order, dtype=np.intp)
    place: NDArray[np.intp] = np.empty(len(at), dtype=np.intp)
    place[at] = np.arange(len(at))
    split = growth.left[at] >= 0
    feature = growth.feature[at].astype(np.int32)
    threshold: Any = np.where(split, edges[np.maximum(feature, 0), np.maximum(growth.cut[at], 0)], 0.0)
    return CrispTree(
        feature=feature,
        threshold=threshold,
        right=np.where(split, place[np.where(split, growth.left[at] + 1, 0)], -1).astype(np.intp),
        value=share[at],
        rows=rows[at],
        impurity=np.maximum(1.0 - (share[at] ** 2).sum(axis=1), 0.0),
    )


def progress_of(question: DpTreeQuestion) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    growth = question.growth
    if growth is None or question.nodes is None or question.edges is None:
        return {"stage": question.kind, "nodes": 0, "leaves": 0, "open": 0, "depth": 0, "lines": []}
    # At the greatest depth the open nodes are leaves: their rows are counted, and they do not grow.
    open_nodes = set() if question.last else set(question.nodes.tolist())
    return {
        "stage": "level",
        "nodes": growth.size - 1,
        "leaves": int((growth.left < 0).sum()) - len(open_nodes),
        "open": len(open_nodes),
        "depth": int(growth.level.max()),
        **outlined(_nodes(question, open_nodes), growth.size),
    }


def _nodes(question: DpTreeQuestion, open_nodes: set[int]) -> Iterator[OutlineNode]:
    growth, edges = question.growth, question.edges
    assert growth is not None
    assert edges is not None
    stack = [(0, "", "")]
    while stack:
        node, name, term = stack.pop()
        yield OutlineNode(int(growth.level[node]), name, term, node in open_nodes)
        left = int(growth.left[node])
        if left >= 0:
            variable = question.domain.features[growth.feature[node]]
            below, above = _sides(variable, float(edges[growth.feature[node], growth.cut[node]]))
            stack += [(left + 1, variable.name, above), (left, variable.name, below)]


def _sides(variable: Variable, edge: float) -> tuple[str, str]:
    """Return the two sides of a cut in words."""
    if not variable.categories:
        return f"at most {edge:.4g}", f"above {edge:.4g}"
    first = max(0, math.floor(edge) + 1)
    return " or ".join(variable.categories[:first]), " or ".join(variable.categories[first:])
