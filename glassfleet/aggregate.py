"""What the server halves do with sums: add them up, and keep a digest of all that a model rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.condense import NO_ROWS
from glassfleet.scheme import Contribution
from schemas.codec import Value, encode
from schemas.errors import RunFailedError

Sums = dict[str, NDArray[np.int64]]


def add_up(contributions: Sequence[Contribution]) -> Sums:
    """Return the sums of all contributions, which have the same names and shapes, by name."""
    total = {name: array.copy() for name, array in contributions[0].sums.items()}
    for contribution in contributions[1:]:
        for name, array in contribution.sums.items():
            total[name] += array
    return total


def count_rows(contributions: Sequence[Contribution], most: int) -> int:
    """Return the rows of all who answered.

    Raises
    ------
    RunFailedError
        ``no-rows``; or ``too-many-rows``: more than `most`, for which the sums are good.
    """
    rows = sum(contribution.rows for contribution in contributions)
    if rows == 0:
        raise RunFailedError(NO_ROWS)
    if rows > most:
        raise RunFailedError(
            f"too-many-rows: {rows} rows in all, the sums are good for {most}; use fewer agents, or fewer fraction bits"
        )
    return rows


def chained_digest(before: str, value: Mapping[str, Value]) -> str:
    """Return the digest of all sums so far: SHA-256 of the previous digest and this round's encoded value."""
    return hashlib.sha256(before.encode() + encode(dict(value))).hexdigest()
