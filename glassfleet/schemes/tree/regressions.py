"""What one vehicle's answers say of each leaf by itself: for `glassfleet.evaluation.influence`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.schemes.tree.joint import fit_of
from glassfleet.schemes.tree.messages import read_task
from glassfleet.schemes.tree.server import root_sums, taken_in


def regressions(answers: Sequence[tuple[Task, Contribution]]) -> NDArray[np.float64] | None:
    """Return the moment matrices over ``[1, x, y]`` of the leaves of the grown tree, shape (k, k, L), in rows.

    The joint fit's sums, as the server half makes them of all vehicles' answers, over this one's; of each leaf alone,
    as degrees add up to one. None: no tree was grown, or it is one of classes.
    """
    asked = [(read_task(task), dict(answer.sums)) for task, answer in answers]
    (scan, first), *others = [each for each in asked if each[0].kind in {"scan", "bins"}]
    if not others or scan.domain.classes:
        return None
    question = others[0][0]
    columns = [0, *(1 + scan.scanned.index(feature) for feature in question.regressors)]
    memory: dict[str, Any] = root_sums(unpack_symmetric(first["gram"], len(scan.scanned) + 2), columns)
    known = {question.tree.splits: memory}  # a tree that was grown for a trial may be gone on with later
    for question, sums in others:
        if question.latest:
            memory = known[question.tree.splits] = taken_in(
                question, known[question.tree.splits[: -question.latest]], sums
            )
    pairs = map(tuple, memory["pairs"].tolist())
    gram = dict(zip(pairs, memory["gram"].sum(axis=0), strict=True))
    fit = fit_of(
        question.tree,
        len(question.tree.splits),
        gram,
        dict(zip(memory["leaves"], memory["target"].sum(axis=0), strict=True)),
    )
    k = fit.columns
    moments = np.empty((k + 1, k + 1, len(fit.right)))
    moments[:k, :k] = fit.whole.transpose(1, 2, 0)
    moments[:k, k] = moments[k, :k] = fit.right[:, 0].T
    moments[k, k] = fit.own_squares[:, 0]
    return moments
