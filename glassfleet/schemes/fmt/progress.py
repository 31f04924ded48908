"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from collections.abc import Iterator

from glassfleet.outline import OutlineNode, outlined
from glassfleet.schemes.fmt.growth import GrowthQuestion
from schemas.codec import Value


def progress_of(question: GrowthQuestion) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, asked = question.tree, len(question.nodes)
    return {
        "stage": question.kind,
        "nodes": tree.size - 1,
        "leaves": len(tree.splits) + 1,
        "open": asked,
        "depth": tree.depth,
        **outlined(_nodes(question), tree.size),
    }


def _nodes(question: GrowthQuestion) -> Iterator[OutlineNode]:
    """Yield the nodes; those are open whose sums are asked for."""
    tree, features, scan = question.tree, question.domain.features, question.kind == "scan"
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        name = term = ""
        if node:
            feature = tree.splits[(node - 1) // 2].feature
            span = tree.span(node, question.n_sets)[feature]
            name, term = features[feature].name, question.words(feature, *span)
        yield OutlineNode(depth, name, term, scan or node in question.nodes)
        index = tree.split_of.get(node)
        if index is not None:
            stack += [(2 * index + 2, depth + 1), (2 * index + 1, depth + 1)]
