"""One row from the strengths of rules around it (frbc).

Say one row of a class lies in a cell, and only this row reaches the cell's neighbours. Then the strength of a neighbour
over that of the cell is the ratio of the row's memberships in two neighbouring sets of one input. Memberships of all
inputs are the row. Their product must be the cell's own strength, so the attacker knows when it is right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.schemes.frbc.matching import read
from glassfleet.schemes.frbc.messages import FrbcQuestion
from lab.audit.transcript import Sums, View

Array = NDArray[np.float64]

_SAME = 1e-6
"""Logarithms that agree to this are of one number."""


def rows_behind_strengths(view: View) -> Array:
    """Return candidates, shape (m, F + 1): inputs, scaled, and the number of the class."""
    targets = []
    for task, sums in view:
        question = FrbcQuestion.from_task(task)
        if question.rules is None or "num_high" not in sums:  # asked for the rules, or on how many rows they rest
            continue
        antecedents, strengths, rows = _by_class(question, sums)
        for cell, label in np.argwhere(rows == 1):
            steps = antecedents - antecedents[cell]
            is_near = np.abs(steps).max(axis=1) == 1
            inputs = _solve(
                antecedents[cell], strengths[cell, label], steps[is_near], strengths[is_near, label],
                question.parameters.n_sets,
            )  # fmt: skip
            targets += [np.append(line, label) for line in inputs]
    return np.unique(np.array(targets), axis=0) if targets else np.empty((0, 0))


def _by_class(question: FrbcQuestion, sums: Sums) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    """Return antecedents, summed strengths of each class, and rows, by antecedent; of one class by subtraction."""
    rules, bits = question.rules, question.parameters.limb_bits
    assert rules is not None
    shape = (len(rules.first), question.n_classes)
    strengths, rows = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    at, classes = rules.antecedent_of, rules.classes.astype(np.intp)
    strengths[at, classes] = read(sums["num_high"], sums["num_low"], bits)
    rows[at, classes] = sums["rows"]
    high, low = sums["den_high"].copy(), sums["den_low"].copy()
    np.subtract.at(high, at, sums["num_high"])
    np.subtract.at(low, at, sums["num_low"])
    untold = np.isnan(strengths)
    only = untold & (untold.sum(axis=1) == 1)[:, None]
    strengths[only] = read(high, low, bits)[only.any(axis=1)]
    return rules.antecedents[rules.first].astype(np.int64), strengths, rows


def _solve(cell: NDArray[np.int64], own: float, steps: NDArray[np.int64], near: Array, n_sets: int) -> list[Array]:
    """Return the inputs of the one row, if all that reaches the neighbours, `steps` away, can be one row."""
    direct = np.abs(steps).sum(axis=1) == 1
    silent = [{int(step) for step in steps[direct & (near == 0.0), column] if step} for column in range(len(cell))]
    steps, near = steps[near > 0.0], near[near > 0.0]
    up, down = (steps > 0).any(axis=0), (steps < 0).any(axis=0)
    if (up & down).any():
        return []
    membership = np.full(len(cell), np.nan)
    if len(steps):
        moved, ratios = np.abs(steps).astype(np.float64), np.log(near / own)
        solved = np.linalg.lstsq(moved, ratios, rcond=None)[0]
        if np.abs(moved @ solved - ratios).max() > _SAME:
            return []
        known = np.abs(np.linalg.pinv(moved) @ moved - np.eye(len(cell))).max(axis=0) < _SAME
        membership[known] = 1.0 / (1.0 + np.exp(solved[known]))
    for column, at in enumerate(cell):
        if {step for step in (-1, 1) if 0 <= at + step < n_sets} <= silent[column]:
            membership[column] = 1.0  # at the set's peak: neither neighbour fires
    side: NDArray[np.int64] = np.subtract(up, down, dtype=np.int64)
    sides = [side]
    unknown = np.flatnonzero(np.isnan(membership))
    if len(unknown) == 1:
        membership[unknown] = own / np.nanprod(membership)
        if not side[unknown].any():
            sides = [np.where(np.arange(len(cell)) == unknown, way, side) for way in (-1, 1)]
    if len(unknown) > 1 or abs(np.log(own) - np.log(membership).sum()) > _SAME or (membership < 0.5 - _SAME).any():
        return []
    rows = [(cell + way * (1.0 - membership)) / (n_sets - 1) for way in sides]
    return [row for row in rows if ((row > -_SAME) & (row < 1.0 + _SAME)).all()]
