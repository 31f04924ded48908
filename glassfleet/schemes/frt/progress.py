"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from glassfleet.fuzzy import linguistic_terms
from glassfleet.schemes.frt.messages import Question
from schemas.codec import Value

MAX_LINES = 200


def progress_of(question: Question) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, open_nodes = question.tree, set(question.nodes.tolist() if question.kind == "level" else ())
    leaves = int((tree.split < 0).sum()) - len(open_nodes)
    return {
        "stage": question.kind,
        "nodes": tree.size - 1,
        "leaves": leaves,
        "open": len(open_nodes),
        "depth": int(tree.depth.max()),
        "lines": _draw(question, open_nodes),
    }


def _draw(question: Question, open_nodes: set[int]) -> list[str]:
    """Draw the tree, one node a line, depth first; a question mark where it may still grow."""
    tree, features = question.tree, question.domain.features
    lines: list[str] = []
    for node in tree.depth_first():
        if len(lines) == MAX_LINES - 1 and tree.size > MAX_LINES:
            lines.append(f"... {tree.size - len(lines)} more")
            break
        words = "everything"
        if node:
            variable = features[tree.feature[node]]
            words = f"{variable.name} is {linguistic_terms(tree.n_sets, variable)[tree.fuzzy_set[node]]}"
        mark = " ?" if node in open_nodes else ""
        lines.append("  " * int(tree.depth[node]) + words + mark)
    return lines
