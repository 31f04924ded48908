"""Evaluator "highest_score": the class whose score is highest in the mean of the rules that fire."""

from glassfleet.export.device.common import Fired, Values, polynomial, strongest


def answer(m: Values, z: list[float], fired: Fired) -> tuple[float, int]:
    """Return the class number and the strongest rule. Of two classes the second has a score; the first one's is 0."""
    scores = [0.0] * (len(m["constants"]) // len(m["votes"]))
    for number, strength in fired:
        for at in range(len(scores)):
            scores[at] = scores[at] + strength * polynomial(m, number * len(scores) + at, z)
    if len(scores) == 1:
        scores.insert(0, 0.0)
    return scores.index(max(scores)), strongest(m, fired)
