"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

import math

from glassfleet.data.domain import Variable
from glassfleet.schemes.dp_tree.messages import Question
from schemas.codec import Value

MAX_LINES = 200


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
        "lines": _draw(question, open_nodes),
    }


def _draw(question: Question, open_nodes: set[int]) -> list[str]:
    """Draw the tree, one node a line, depth first; a question mark where it may still grow."""
    growth, edges = question.growth, question.edges
    assert growth is not None
    assert edges is not None
    lines: list[str] = []
    stack = [(0, "everything")]
    while stack:
        node, words = stack.pop()
        if len(lines) == MAX_LINES - 1 and growth.size > MAX_LINES:
            lines.append(f"... {growth.size - len(lines)} more")
            break
        lines.append("  " * int(growth.level[node]) + words + (" ?" if node in open_nodes else ""))
        left = int(growth.left[node])
        if left >= 0:
            feature = int(growth.feature[node])
            variable, edge = question.domain.features[feature], float(edges[feature, growth.cut[node]])
            below, above = _sides(variable, edge)
            stack += [(left + 1, f"{variable.name} is {above}"), (left, f"{variable.name} is {below}")]
    return lines


def _sides(variable: Variable, edge: float) -> tuple[str, str]:
    """Return the two sides of a cut in words."""
    if not variable.categories:
        return f"at most {edge:.4g}", f"above {edge:.4g}"
    first = max(0, math.floor(edge) + 1)
    return " or ".join(variable.categories[:first]), " or ".join(variable.categories[first:])
