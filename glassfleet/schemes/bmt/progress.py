"""The growing tree in a few numbers and lines, for displays."""

from __future__ import annotations

from glassfleet.fuzzy.ramps import ramp_words
from glassfleet.schemes.bmt.messages import Question
from schemas.codec import Value


def progress_of(question: Question) -> dict[str, Value]:
    """Return the stage, the size so far and a drawing, from the question that is open."""
    tree, features = question.tree, question.domain.features
    asked = {*question.leaves, *(leaf for leaf, _ in question.candidates)} if question.kind != "scan" else {0}

    def told(node: int) -> tuple[str, str]:
        feature = tree.splits[(node - 1) // 2].feature
        return features[feature].name, ramp_words(features[feature], *tree.spans(node)[feature])

    return {"stage": question.kind, **tree.progress(asked, told)}
