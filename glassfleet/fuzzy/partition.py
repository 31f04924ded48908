"""Strong uniform triangular partitions of [0, 1].

A partition of T sets has its peaks at j / (T - 1), j = 0 .. T - 1; the first and the last set are shoulders. Two
neighbouring sets overlap and their memberships add up to one, so a value is described by the lower of the two sets that
fire and the membership in the upper one. That sparse form is all that the learning and the inference use: work per row
does not grow with T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_SETS = 63
"""Most sets of a partition; set numbers are stored in int8."""


@dataclass(frozen=True)
class Memberships:
    """Memberships of n rows in the sets of F partitions, sparse.

    Attributes
    ----------
    n_sets : int
        Sets per partition, T.
    lower : ndarray of int8, shape (F, n)
        The lower of the two sets that fire, in [0, T - 2]. Features come first, so that one feature is contiguous.
    upper : ndarray of float64, shape (F, n)
        Membership in set ``lower + 1``, in [0, 1]. The membership in set ``lower`` is one minus it.
    """

    n_sets: int
    lower: NDArray[np.int8]
    upper: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.lower.shape[1])

    def degree(self, feature: int, row: int, fuzzy_set: int) -> float:
        """Return the membership of one row in one set of one feature."""
        lower, upper = int(self.lower[feature, row]), float(self.upper[feature, row])
        if fuzzy_set == lower:
            return 1.0 - upper
        return upper if fuzzy_set == lower + 1 else 0.0


def fuzzify(scaled: NDArray[np.float64], n_sets: int) -> Memberships:
    """Return the memberships of rows `scaled`, shape (n, F), in [0, 1] (Eq. 1 of the FRT paper, uniform)."""
    position = np.ascontiguousarray(scaled.T) * float(n_sets - 1)
    lower = np.minimum(np.floor(position), float(n_sets - 2))
    position -= lower
    return Memberships(n_sets, lower.astype(np.int8), position)
