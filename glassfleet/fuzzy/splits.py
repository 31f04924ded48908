"""A binary tree as a list of splits, whatever a split cuts by.

The i-th split turns one leaf into the two nodes 2 i + 1 (the lower side) and 2 i + 2 (the upper one); node 0 is the
root. So the first s - 1 splits of a tree are a tree of s leaves: sizes are prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

from glassfleet.contract.progress import OutlineNode, outlined
from schemas.codec import Value


class NodeSplit(Protocol):
    """A split of a node."""

    @property
    def node(self) -> int:
        """Which leaf is split."""


S = TypeVar("S", bound=NodeSplit)


@dataclass(frozen=True)
class BinaryTree(Generic[S]):
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
        return [node for node, _ in self.walk() if node not in self.split_of]

    def walk(self) -> Iterator[tuple[int, int]]:
        """Yield all nodes and their depths: depth first, lower sides first."""
        stack = [(0, 0)]
        while stack:
            node, depth = stack.pop()
            yield node, depth
            index = self.split_of.get(node)
            if index is not None:
                stack += [(2 * index + 2, depth + 1), (2 * index + 1, depth + 1)]

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
        return max(depth for _, depth in self.walk())

    def grown(self, splits: Sequence[S]) -> Self:
        """Return this tree with more splits at the end."""
        return type(self)((*self.splits, *splits))

    def first(self, n_splits: int) -> Self:
        """Return the tree of the first `n_splits` splits."""
        return type(self)(self.splits[:n_splits])

    def progress(self, asked: Collection[int], words: Callable[[int], tuple[str, str]]) -> dict[str, Value]:
        """Return the size so far and a drawing, for displays.

        Parameters
        ----------
        asked : collection of int
            Nodes that the vehicles are asked about.
        words : callable
            Returns what leads to a node below the root: an input's name, and its side in words.
        """
        nodes = (OutlineNode(depth, *(words(node) if node else ("", "")), node in asked) for node, depth in self.walk())
        return {
            "nodes": self.size - 1,
            "leaves": len(self.splits) + 1,
            "open": len(asked),
            "depth": self.depth,
            **outlined(nodes, self.size),
        }
