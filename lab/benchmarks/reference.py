"""The fuzzy regression tree in plain numpy: dense memberships, floating-point sums, no exactness, one machine.

What somebody would write first, for comparison. It grows the same trees up to the rounding of its sums; the sizes that
the benchmark prints show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Path = tuple[tuple[int, int], ...]
"""(feature, set) pairs from the root."""


def memberships(X: Array, n_sets: int) -> Array:
    """Return the memberships of scaled rows in a strong uniform partition, shape (F, n, T)."""
    centres = np.linspace(0.0, 1.0, n_sets)
    return np.clip(1.0 - np.abs(X.T[:, :, None] - centres) * (n_sets - 1), 0.0, None)


def node_statistics(w: Array, mu: Array, y: Array, depth: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return count, strong count, WS, WLS and WSS of one node per feature and set, each of shape (F, T)."""
    strength = w[None, :, None] * mu
    return (
        (strength > 0).sum(axis=1),
        (strength >= 0.5 ** (depth + 1)).sum(axis=1),
        strength.sum(axis=1),
        (strength * y[None, :, None]).sum(axis=1),
        (strength * (y * y)[None, :, None]).sum(axis=1),
    )


def strength_of(mu: Array, path: Path) -> Array:
    """Return the strength of every row at the end of `path`, shape (n,)."""
    w = np.ones(mu.shape[1])
    for feature, j in path:
        w = w * mu[feature, :, j]
    return w


@dataclass
class PlainTree:
    """A grown tree: how many nodes, and each leaf's path and polynomial."""

    nodes: int = 0
    leaves: dict[Path, Array] = field(default_factory=dict)


def grow(X: Array, y: Array, n_sets: int = 5, fraction: float = 0.1, min_gain: float = 1e-4) -> PlainTree:
    """Grow a first-order tree on scaled rows, centrally."""
    n = len(X)
    mu = memberships(X, n_sets)
    tree = PlainTree()
    Z = np.column_stack([X, np.ones(n)])
    frontier: list[tuple[Path, int]] = [((), n)]
    while frontier:
        following: list[tuple[Path, int]] = []
        for path, strong in frontier:
            w = strength_of(mu, path)
            children = _split((w, mu, y), path, strong, np.floor(fraction * n), min_gain)
            if children:
                following += children
                tree.nodes += len(children)
            else:
                root = np.sqrt(w)
                tree.leaves[path] = np.linalg.lstsq(root[:, None] * Z, root * y, rcond=None)[0]
        frontier = following
    return tree


def _split(
    rows: tuple[Array, Array, Array], path: Path, strong: int, least: float, min_gain: float
) -> list[tuple[Path, int]]:
    w, mu, y = rows
    features = mu.shape[0]
    free = [feature for feature in range(features) if feature not in {used for used, _ in path}]
    if not free or strong < least:
        return []
    count, strong_count, ws, wls, wss = node_statistics(w, mu[free], y, len(path))
    total = w.sum()
    variance = (w * y * y).sum() / total - ((w * y).sum() / total) ** 2
    safe = np.where(ws > 0, ws, 1.0)
    spread = np.where(ws > 0, wss / safe - (wls / safe) ** 2, 0.0)
    share = ws / ws.sum(axis=1, keepdims=True)
    gains = variance - (share * spread).sum(axis=1)
    best = int(np.argmax(gains))
    if gains[best] < min_gain:
        return []
    sets = [j for j in range(mu.shape[2]) if count[best, j] >= features + 1]
    return [((*path, (free[best], j)), int(strong_count[best, j])) for j in sets]
