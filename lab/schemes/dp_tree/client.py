"""The vehicle's half: counts, with noise from the vehicle's own secret."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.crisp import Columns, prepare
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from lab.schemes.dp_tree.messages import GRID, DpTreeQuestion, Growth, read_task
from lab.schemes.dp_tree.noise import draw


class DpTreeClient:
    """Answers with noisy counts alone."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Answer `task`; see :class:`glassfleet.contract.scheme.Client`.

        `rng` belongs to this agent and this task: the same task has the same noise (a repeated answer tells nothing
        new), another task has other noise. A vehicle without rows has nothing to hide and answers zeros.
        """
        question = read_task(task)
        columns = prepare(data, question.domain)
        if question.kind == "hello":
            return Contribution("hello", data.rows)
        counts = _histogram(question, columns) if question.kind == "edges" else _level(question, columns)
        if data.rows:
            for name, epsilon in sorted(question.epsilons().items()):
                mode, agents = question.parameters.noise, question.agents
                counts[name] = counts[name] + draw(rng, counts[name].shape, epsilon, mode, agents)
        return Contribution(question.kind, data.rows, counts)


def grid_edges(domain: Domain) -> NDArray[np.float64]:
    """Return the inner edges of the grid of each input, shape (F, GRID - 1), in its own unit.

    Equal bins between the domain's limits; a bin for each category where there are at most GRID of them.
    """
    steps = np.arange(1, GRID) / GRID
    edges = np.empty((len(domain.features), GRID - 1))
    for line, variable in enumerate(domain.features):
        if variable.categories and len(variable.categories) <= GRID:
            edges[line] = np.minimum(np.arange(GRID - 1) + 0.5, len(variable.categories) - 0.5)
        else:
            edges[line] = variable.low + steps * (variable.high - variable.low)
    return edges


def bin_rows(X: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bin of each value: how many edges are below it; shape of `X`, (n, F)."""
    bins = np.empty(X.shape, dtype=np.intp)
    for feature, line in enumerate(edges):
        bins[:, feature] = np.searchsorted(line, X[:, feature], side="left")
    return bins


def _histogram(question: DpTreeQuestion, columns: Columns) -> dict[str, NDArray[np.int64]]:
    bins = bin_rows(columns.X, grid_edges(question.domain)) + np.arange(question.n_features) * GRID
    counts = np.bincount(bins.ravel(), minlength=question.n_features * GRID)
    return {"histogram": counts.reshape(question.n_features, GRID).astype(np.int64)}


def _level(question: DpTreeQuestion, columns: Columns) -> dict[str, NDArray[np.int64]]:
    assert question.growth is not None
    assert question.nodes is not None
    assert question.edges is not None
    k, features, n_bins, m = question.n_classes, question.n_features, question.parameters.n_bins, len(question.nodes)
    bins = bin_rows(columns.X, question.edges)
    place = np.full(question.growth.size, -1, dtype=np.intp)
    place[question.nodes] = np.arange(m)
    position = place[_descend(question.growth, bins)]
    here = position >= 0
    position, y, bins = position[here], columns.y[here], bins[here]
    counts: dict[str, NDArray[np.int64]] = {}
    counts["nodes"] = np.bincount(position * k + y, minlength=m * k).reshape(m, k).astype(np.int64)
    if not question.last:
        cell = ((position[:, None] * features + np.arange(features)) * n_bins + bins) * k + y[:, None]
        cells = np.bincount(cell.ravel(), minlength=m * features * n_bins * k)
        counts["cells"] = cells.reshape(m, features, n_bins, k).astype(np.int64)
    return counts


def _descend(growth: Growth, bins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the node that each row has reached."""
    node = np.zeros(len(bins), dtype=np.intp)
    moving = np.arange(len(bins))
    while True:
        moving = moving[growth.left[node[moving]] >= 0]
        if not moving.size:
            return node
        at = node[moving]
        node[moving] = growth.left[at] + (bins[moving, growth.feature[at]] > growth.cut[at])
