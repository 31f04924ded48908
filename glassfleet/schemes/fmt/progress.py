"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from glassfleet.fuzzy.spans import span_words
from glassfleet.schemes.fmt.messages import Question
from schemas.codec import Value

MAX_LINES = 200


def progress_of(question: Question) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, asked = question.tree, len(question.nodes)
    return {
        "stage": question.kind,
        "nodes": tree.size - 1,
        "leaves": len(tree.splits) + 1,
        "open": asked,
        "depth": tree.depth,
        "lines": _draw(question),
    }


def _draw(question: Question) -> list[str]:
    """Draw the tree, one node a line, depth first; a question mark where its sums are being asked for."""
    tree, features = question.tree, question.domain.features
    if question.kind == "scan":
        return ["everything ?"]
    lines: list[str] = []
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        words = "everything"
        if node:
            feature = tree.splits[(node - 1) // 2].feature
            span = tree.span(node, question.n_sets)[feature]
            words = f"{features[feature].name} is {span_words(features[feature], question.knots[feature], *span)}"
        if len(lines) == MAX_LINES - 1 and tree.size > MAX_LINES:
            lines.append(f"... {tree.size - len(lines)} more")
            break
        lines.append("  " * depth + words + (" ?" if node in question.nodes else ""))
        index = tree.split_of.get(node)
        if index is not None:
            stack += [(2 * index + 2, depth + 1), (2 * index + 1, depth + 1)]
    return lines
