"""The product sums of a growing tree (fmt): of its nodes, their siblings, and bands between cuts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.audit.transcript import View
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.messages import read_task as read_fmt

Ints = NDArray[np.int64]

TREES: dict[str, Callable[[Any], Any]] = {"fmt": read_fmt}
"""By scheme: returns the question of a task."""


@dataclass(frozen=True)
class Node:
    """The sums of a node, packed triangles over [1, x, y], and of the lower side of each cut, by input and set."""

    path: tuple[Any, ...]  # the splits above it, and on which side of each it is
    whole: Ints
    cuts: dict[tuple[int, int], Ints]

    def bands(self) -> Iterator[tuple[int, list[Ints]]]:
        """Yield each input with cuts, and the sums between neighbouring ones."""
        for feature, line in itertools.groupby(sorted(self.cuts), key=lambda cut: cut[0]):
            sums = [np.zeros_like(self.whole), *(self.cuts[cut] for cut in line), self.whole]
            yield feature, [after - before for before, after in itertools.pairwise(sums)]


def tree_nodes(view: View) -> Iterator[tuple[GrowthQuestion, list[Node]]]:
    """Yield, for each question about growth, its nodes and their siblings (the parent less the node)."""
    known: dict[Any, Node] = {}
    for task, sums in view:
        if task.kind != "grow":
            continue
        question = TREES[task.scheme](task)
        nodes: list[Node] = []
        start = 0
        for line, node in enumerate(question.nodes):
            places = question.cuts_of[node]
            lower = dict(zip(places, sums["lower"][start : start + len(places)], strict=True))
            start += len(places)
            path, whole = tuple(question.tree.path(node)), sums["whole"][line]
            own = Node(path, whole, _all_cuts(question, node, whole, lower))
            above = known.get((question.knots, path[:-1])) if path else None
            nodes += [own] if above is None else [own, _sibling(above, own)]
        known |= {(question.knots, node.path): node for node in nodes}
        yield question, nodes


def tree_triangles(view: View) -> Iterator[tuple[GrowthQuestion, Ints, NDArray[np.bool_]]]:
    """Yield, for each question, the product sums of each group that differences tell apart, and whether it is whole.

    Packed triangles over [1, x, y]: nodes and their siblings, bands between neighbouring cuts in both; of fmt at first
    all rows, and in the end those of a leaf that were held out while it grew.
    """
    grown: dict[Any, Ints] = {}
    for task, sums in view:
        if task.scheme == "fmt" and task.kind == "scan":
            yield read_fmt(task), sums["gram"][None], np.ones(1, dtype=np.bool_)
    for question, nodes in tree_nodes(view):
        grown |= {(question.knots, node.path): node.whole for node in nodes}
        between = [band for node in nodes for _, bands in node.bands() for band in bands]
        whole = [node.whole for node in nodes]
        yield question, np.array([*whole, *between]), np.arange(len(whole) + len(between)) < len(whole)
    for task, sums in view:
        if task.kind == "leaves" and (question := TREES[task.scheme](task)).asked_leaves:
            whole = []
            for leaf, triangle in zip(question.asked_leaves, sums["gram"], strict=True):
                before = grown.get((question.knots, tuple(question.tree.path(leaf))))
                whole += [triangle] if before is None or len(before) != len(triangle) else [triangle, triangle - before]
            yield question, np.array(whole), np.ones(len(whole), dtype=np.bool_)


def _all_cuts(question: GrowthQuestion, node: int, whole: Ints, lower: dict[int, Ints]) -> dict[tuple[int, int], Ints]:
    span = question.tree.span(node, question.n_sets)
    outside = {
        place: whole if cut >= span[feature][1] else np.zeros_like(whole)
        for place, (feature, cut) in enumerate(question.cuts)
        if feature in span and not span[feature][0] <= cut < span[feature][1]
    }
    known = {**outside, **lower}  # a run with support asks about some cuts only
    return {cut: known[place] for place, cut in enumerate(question.cuts) if place in known}


def _sibling(above: Node, own: Node) -> Node:
    *steps, (split, is_upper) = own.path
    cuts = {cut: above.cuts[cut] - sums for cut, sums in own.cuts.items() if cut in above.cuts}
    return Node((*steps, (split, not is_upper)), above.whole - own.whole, cuts)
