"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from glassfleet.fuzzy.ramps import ramp_condition
from glassfleet.schemes.bmt.messages import Question
from schemas.codec import Value


def progress_of(question: Question) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, inputs = question.tree, question.domain.inputs
    about_all = question.kind in ("levels", "scan")
    asked = {0} if about_all else {*question.leaves, *(leaf for leaf, _ in question.candidates)}

    def told(node: int) -> tuple[str, str]:
        feature = tree.splits[(node - 1) // 2].feature
        line = question.levels[feature] if question.levels else ()
        condition = ramp_condition(inputs[feature], *tree.spans(node)[feature], line)
        return condition.feature, condition.term

    return {"stage": question.kind, **tree.progress(asked, told)}
