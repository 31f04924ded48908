"""The numbers of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rules:
    """Consequents and weights of the leaves, one line per rule.

    Attributes
    ----------
    node : ndarray of intp, shape (r,)
        Each rule's leaf in the tree.
    coefficients : ndarray of float64, shape (r, F + 1)
        Polynomial over the scaled inputs, intercept last; its value is the scaled target (Eq. 4).
    mean_strength : ndarray of float64, shape (r,)
        Mean strength over the training rows that reach the leaf (Eq. 22), (0, 1].
    weight, support, confidence : ndarray of float64, shape (r,)
        Rule weight, the harmonic mean of the other two; all in [0, 1].
    """

    node: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    mean_strength: NDArray[np.float64]
    weight: NDArray[np.float64]
    support: NDArray[np.float64]
    confidence: NDArray[np.float64]

    def take(self, lines: Sequence[int]) -> Rules:
        """Return the given lines, in that order."""
        at = np.array(lines, dtype=np.intp)
        return Rules(*(getattr(self, one.name)[at] for one in fields(self)))
