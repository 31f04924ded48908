"""What schemes of exact sums share: how they ask, add up, and keep a digest of all that a model rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.messages import Contribution, Next, State, Task
from schemas.codec import Value, encode
from schemas.errors import RunFailedError

P = TypeVar("P", bound=BaseModel)
Sums = dict[str, NDArray[np.int64]]


class SumScheme:
    """A scheme whose clients answer with exact sums, over their rows as they are or condensed."""

    equals_central = True

    def exact(self, parameters: P) -> P:
        """Return `parameters` with which rows are neither condensed nor protected otherwise."""
        update = {"min_rows": 1, **({"nullify": False} if hasattr(parameters, "nullify") else {})}
        return parameters.model_copy(update=update)

    def equals_central_with(self, parameters: Any) -> bool:
        """Return whether the fleet's model equals the central one whoever has which rows: where all is asked.

        With `support` it does so under the run's record of what was withheld.
        """
        return not getattr(parameters, "support", 0)

    def private(self, parameters: Any) -> Any:
        """Return the parameters of a private run: all answers are sums."""
        return self.exact(parameters)


class Question(Protocol):
    """A scheme's question."""

    def to_task(self) -> Task:
        """Return the task that asks this."""


def ask(question: Question, memory: Mapping[str, Value]) -> Next:
    """Return the step that asks `question`; the server half keeps `memory`, which :func:`memory_of` returns."""
    task = question.to_task()
    return Next({**memory, "kind": task.kind, "body": task.body}, task)


def memory_of(state: State) -> dict[str, Any]:
    """Return what a server half kept when it asked the open task."""
    return {name: value for name, value in state.items() if name not in ("kind", "body")}


def taken_up(state: State, contributions: Sequence[Contribution], most: int) -> tuple[int, Sums, dict[str, Any]]:
    """Return the rows of all who answered, the sums of all answers, and the memory with ``sums_digest`` chained.

    Raises
    ------
    RunFailedError
        As :func:`count_rows`.
    """
    rows, sums = count_rows(contributions, most), add_up(contributions)
    digest = chained_digest(state["sums_digest"], {"rows": rows, "sums": sums})
    return rows, sums, {**memory_of(state), "sums_digest": digest}


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
        raise RunFailedError(
            "no agent that answered has any rows to use. Bring more rows: where they are condensed, more different "
            "ones than there are columns, and at least min_rows; or use them as they are (min_rows=1)",
            "no-rows",
        )
    if rows > most:
        raise RunFailedError(
            f"{rows} rows in all, the sums are good for {most}; use fewer agents, or let fewer rows of each count "
            "(max_rows_each)",
            "too-many-rows",
        )
    return rows


def chained_digest(before: str, value: Mapping[str, Value]) -> str:
    """Return the digest of all sums so far: SHA-256 of the previous digest and this round's encoded value."""
    return hashlib.sha256(before.encode() + encode(dict(value))).hexdigest()
