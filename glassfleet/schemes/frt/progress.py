"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from collections.abc import Iterator

from glassfleet.fuzzy import linguistic_terms
from glassfleet.outline import OutlineNode, outlined
from glassfleet.schemes.frt.messages import Question
from schemas.codec import Value


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
        **outlined(_nodes(question, open_nodes), tree.size),
    }


def _nodes(question: Question, open_nodes: set[int]) -> Iterator[OutlineNode]:
    tree = question.tree
    for node in tree.depth_first():
        depth, name, term = int(tree.depth[node]), "", ""
        if node:
            variable = question.domain.features[tree.feature[node]]
            name, term = variable.name, linguistic_terms(tree.n_sets, variable)[tree.fuzzy_set[node]]
        yield OutlineNode(depth, name, term, node in open_nodes)
