"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

import math
from collections.abc import Iterator

from glassfleet.data.domain import Variable
from glassfleet.outline import OutlineNode, outlined
from glassfleet.schemes.dp_tree.messages import Question
from schemas.codec import Value


def progress_of(question: Question) -> dict[str, Value]:
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


def _nodes(question: Question, open_nodes: set[int]) -> Iterator[OutlineNode]:
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
