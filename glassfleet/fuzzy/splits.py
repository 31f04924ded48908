"""A binary tree as a list of splits, whatever a split cuts by.

The i-th split turns one leaf into the two nodes 2 i + 1 (the lower side) and 2 i + 2 (the upper one); node 0 is the
root. So the first s - 1 splits of a tree are a tree of s leaves: sizes are prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar


class NodeSplit(Protocol):
    """A split of a node."""

    @property
    def node(self) -> int:
        """Which leaf is split."""


S = TypeVar("S", bound=NodeSplit)


@dataclass(frozen=True)
class SplitTree(Generic[S]):
    """The splits, in order.

    Attributes
    ----------
    splits : tuple
        Split i makes the nodes 2 i + 1 and 2 i + 2.
    """

    splits: tuple[S, ...] = ()

    @property
    def size(self) -> int:
        """Number of nodes, the root included."""
        return 2 * len(self.splits) + 1

    @cached_property
    def split_of(self) -> dict[int, int]:
        """Which split cuts a node; leaves are left out."""
        return {split.node: index for index, split in enumerate(self.splits)}

    @cached_property
    def leaves(self) -> list[int]:
        """Nodes that are not cut, from the lower sides to the upper ones."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            index = self.split_of.get(node)
            if index is None:
                found.append(node)
            else:
                stack += [2 * index + 2, 2 * index + 1]
        return found

    def parent(self, node: int) -> int:
        """Return the node above `node`; -1 for the root."""
        return self.splits[(node - 1) // 2].node if node else -1

    def path(self, node: int) -> list[tuple[S, bool]]:
        """Return the splits from the root to `node`, and whether the path takes the upper side."""
        steps = []
        while node > 0:
            split = self.splits[(node - 1) // 2]
            steps.append((split, node % 2 == 0))
            node = split.node
        return steps[::-1]

    @cached_property
    def depth(self) -> int:
        """Length of the longest path."""
        return max(len(self.path(leaf)) for leaf in self.leaves)

    def grown(self, splits: Sequence[S]) -> Self:
        """Return this tree with more splits at the end."""
        return type(self)((*self.splits, *splits))

    def first(self, n_splits: int) -> Self:
        """Return the tree of the first `n_splits` splits."""
        return type(self)(self.splits[:n_splits])
