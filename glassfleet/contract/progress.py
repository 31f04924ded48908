"""A tree that grows, told node by node, for displays: as data, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from schemas.codec import Value

MAX_LINES = 200
"""Most lines of a progress."""


@dataclass(frozen=True)
class OutlineNode:
    """A node.

    Attributes
    ----------
    depth : int
        0 for the root, which comes first; the others follow depth first.
    feature, term : str
        What leads to it: the input that the node above splits on, and its side. Empty for the root.
    open : bool
        The vehicles are asked about it now: it may still grow.
    """

    depth: int
    feature: str = ""
    term: str = ""
    open: bool = False

    @property
    def text(self) -> str:
        """What leads to it, in words."""
        return f"{self.feature} is {self.term}" if self.depth else "everything"


def outlined(nodes: Iterable[OutlineNode], size: int) -> dict[str, Value]:
    """Return the entries ``outline``, ``more`` and ``lines`` of a progress: see ``Server.progress``.

    Parameters
    ----------
    nodes : iterable of OutlineNode
        Only as many are read as are told.
    size : int
        How many there are.
    """
    shown = list(islice(nodes, size if size <= MAX_LINES else MAX_LINES - 1))
    more = size - len(shown)
    lines = [f"{'  ' * node.depth}{node.text}{' ?' * node.open}" for node in shown]
    outline: list[Any] = [asdict(node) for node in shown]
    return {"outline": outline, "more": more, "lines": lines + [f"... {more} more"] * (more > 0)}
