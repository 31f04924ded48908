"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from glassfleet.schemes.fmt.growth import GrowthQuestion
from schemas.codec import Value


def progress_of(question: GrowthQuestion) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree = question.tree

    def told(node: int) -> tuple[str, str]:
        feature = tree.splits[(node - 1) // 2].feature
        span = tree.span(node, question.n_sets)[feature]
        condition = question.condition(feature, *span)
        return condition.feature, condition.term

    asked = (0,) if question.kind == "scan" else question.nodes
    return {"stage": question.kind, **tree.progress(asked, told)}
