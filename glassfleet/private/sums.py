"""The sum of masked answers, and the question that they answer; what a coordinator needs, without any key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from glassfleet.private.groups import Edition

Words = NDArray[np.uint64]


def question_digest(edition: Edition, task_digest: str, layout_digest: str) -> str:
    """Return the identity of "this task, in this edition, with this layout" (SHA-256, hex).

    It stands wherever the digest of a task stands in runs that are not private: in the outbox, in receipts, and in what
    is counted once.
    """
    text = b"glassfleet-question/1\x00" + edition.digest + bytes.fromhex(task_digest) + bytes.fromhex(layout_digest)
    return hashlib.sha256(text).hexdigest()


def add(answers: Iterable[Words]) -> NDArray[np.int64]:
    """Return the sum of masked vectors, shape (L,): modulo 2^64, read as int64.

    It is the sum of the vectors if exactly the members of an edition answered one task in it, and noise otherwise. At
    least one answer; all of one length.
    """
    parts = iter(answers)
    total = next(parts).copy()
    for each in parts:
        total += each
    return total.view(np.int64)
