"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from collections.abc import Iterator

from glassfleet.fuzzy.ramps import ramp_words
from glassfleet.outline import OutlineNode, outlined
from glassfleet.schemes.bmt.messages import Question
from schemas.codec import Value


def progress_of(question: Question) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, asked = question.tree, _asked(question)
    return {
        "stage": question.kind,
        "nodes": tree.size - 1,
        "leaves": len(tree.splits) + 1,
        "open": len(asked),
        "depth": tree.depth,
        **outlined(_nodes(question, asked), tree.size),
    }


def _asked(question: Question) -> set[int]:
    if question.kind == "scan":
        return {0}
    return {*question.leaves, *(leaf for leaf, _ in question.candidates)}


def _nodes(question: Question, asked: set[int]) -> Iterator[OutlineNode]:
    """Yield the nodes; those are open whose sums are asked for."""
    tree, features = question.tree, question.domain.features
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        name = term = ""
        if node:
            feature = tree.splits[(node - 1) // 2].feature
            name, term = features[feature].name, ramp_words(features[feature], *tree.spans(node)[feature])
        yield OutlineNode(depth, name, term, node in asked)
        index = tree.split_of.get(node)
        if index is not None:
            stack += [(2 * index + 2, depth + 1), (2 * index + 1, depth + 1)]
