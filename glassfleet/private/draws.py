"""Factors of rows in sums with `support`, so that two sums over nearly the same rows do not tell those they differ in.

In each sum a row has a *draw* of its own as a factor, from a hash of the row and of what is asked. So the rows that two
sums share do not cancel out, as a rule. Only the same question to another edition has the same draws: the rows of
differences of editions are counted (:mod:`glassfleet.private.support`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.mixing import mixed_in
from schemas.codec import Value, digest_of

DRAWS = tuple(draw / 16.0 for draw in range(8, 16))
"""Factors of rows, one for each of three bits of a hash."""

DRAWN = 23 / 32
"""Mean of the draws: sums are so many times what they would be without."""


def draws(hashes: NDArray[np.uint64], about: Value) -> NDArray[np.float64]:
    """Return the factors of rows in sums about something, one of :data:`DRAWS` each, shape (n,).

    Parameters
    ----------
    hashes : ndarray of uint64, shape (n,)
        Of the rows.
    about : Value
        In a form that means the same in every task.
    """
    seed = np.array([int(digest_of(about)[:16], 16)], dtype=np.uint64)
    return np.array(DRAWS)[(mixed_in(hashes, seed) >> np.uint64(61)).astype(np.intp)]
