"""Reconstruction from a finished tree, after TimberStrike: as many copies of a leaf's mean as it holds rows.

Di Gennaro et al., "TimberStrike: Dataset Reconstruction Attack Revealing Privacy Leakage in Federated Tree-Based
Systems" (arXiv 2506.07605) puts rows where the splits of boosted trees leave room, as many into each leaf as it holds.
Taken from it: so many rows a leaf, and the count of values within 0.319 standard deviations after the best matching of
the made rows with the true ones (`near`). Not taken: its search for rows that fit the leaves of many trees at once,
as a run here ends with one tree, and the labels that gradients tell. In their place stand the means of all columns
at each leaf (rule): sums of products tell them. Who knows nothing but the mean of all rows has about a quarter of the
values near.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from glassfleet.audit.sums import Rows, groups
from glassfleet.audit.transcript import View

NEAR = 0.319
"""Standard deviations of a column within which a value counts as near: the tolerance of the paper."""

MOST_ROWS = 500
"""Rows that are matched; of more, so many are drawn, as in the paper. Matching grows with the cube."""

_LAST = frozenset({"leaves", "sums"})
"""Questions of tree and frt, and of tsk, about the leaves or rules that the model has in the end."""


def leaf_means(view: View) -> Rows:
    """Return the mean row of each leaf or rule, once for each row that it holds by weight, shape (m, F + 1)."""
    result = []
    for some in groups([(task, sums) for task, sums in view if task.kind in _LAST]):
        weights = some.grams[:, -2, -2]
        for gram, weight in zip(some.grams[weights > some.noise], weights[weights > some.noise], strict=True):
            result.append(np.repeat(some.rows_on(gram[-2:-1]), max(1, round(weight)), axis=0))
    return np.concatenate(result) if result else np.empty((0, 0))


def near(made: Rows, rows: Rows) -> tuple[float, float]:
    """Return the share of values of `rows` that the best matching with `made` meets; and that their mean meets.

    Parameters
    ----------
    made, rows : ndarray of float64, shapes (m, F + 1) and (n, F + 1)
        NaN in `made` meets nothing.
    """
    if not len(made) or not len(rows):
        return 0.0, 0.0
    rng = np.random.default_rng(0)
    some = rows[rng.permutation(len(rows))[:MOST_ROWS]]
    made = made[rng.permutation(len(made))[: len(some)]]
    width = NEAR * rows.std(axis=0)
    met = (np.abs(some[:, None] - made[None]) <= width).sum(axis=2)
    first, second = linear_sum_assignment(met, maximize=True)
    guessed = np.abs(some - rows.mean(axis=0)) <= width
    return float(met[first, second].sum() / some.size), float(guessed.mean())
