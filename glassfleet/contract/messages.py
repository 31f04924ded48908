"""What travels between the halves of a scheme: tasks, contributions, and the steps that a server half takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError, TaskError
from schemas.codec import Value, digest_of

SUPPORT: Final = "support"
COLUMNS: Final = "columns"
COUNTS: Final = frozenset({COLUMNS, SUPPORT})
"""Kinds of the questions on how many rows statistics would rest; their answers have the sum ``rows`` alone.

`COLUMNS` comes first: which inputs may be columns of products.
"""

State = Mapping[str, Value]
"""A server half's memory between rounds. Made of codec values only, so that it can be stored and compared."""


@dataclass(frozen=True)
class Task:
    """What a round asks of every agent; an agent needs nothing else to answer.

    Attributes
    ----------
    scheme : str
        Name of the scheme (or ``"domain"`` for domain discovery).
    kind : str
        Which of the scheme's questions this is, e.g. ``"level"``.
    body : Mapping[str, Value]
        Everything the client needs: parameters, domain, and the state of growth.
    nonce : str
        Of the run, drawn anew for each; empty where there is no run. It makes the digests of two runs' tasks differ
        though they ask the same, so that an answer to one can never be taken for an answer to the other. Schemes leave
        it alone: who conducts the run puts it in.
    """

    scheme: str
    kind: str
    body: Mapping[str, Value]
    nonce: str = ""

    def to_value(self) -> dict[str, Value]:
        """Return the task as a codec value."""
        value: dict[str, Value] = {"scheme": self.scheme, "kind": self.kind, "body": dict(self.body)}
        return value | {"nonce": self.nonce} if self.nonce else value

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Task:
        """Rebuild a task from :meth:`to_value`."""
        return cls(str(value["scheme"]), str(value["kind"]), value["body"], str(value.get("nonce", "")))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the encoded task: its identity within a run."""
        return digest_of(self.to_value())

    @property
    def max_rows_each(self) -> int:
        """At most so many of a vehicle's rows count (:mod:`glassfleet.data.sampling`); 0: all. Raises TaskError.

        Schemes leave it alone, like `nonce`: their clients are given the drawn rows.
        """
        most = self.body.get("max_rows_each", 0)
        if type(most) is not int or most < 0:
            raise TaskError(f"max_rows_each must be an integer of at least 0, got {most!r}"[:200])
        return most

    def limited(self, max_rows_each: int) -> Task:
        """Return this task with `max_rows_each`; itself for 0."""
        if not max_rows_each:
            return self
        return Task(self.scheme, self.kind, {**self.body, "max_rows_each": max_rows_each}, self.nonce)


@dataclass(frozen=True)
class Summed:
    """Over whom a sum of a private run is.

    Attributes
    ----------
    group : int
        Number of the group.
    edition : int
        How often the group has become smaller.
    honest : int
        So many of its members do not work together against the others, where no more do than the run's company is for.
    """

    group: int
    edition: int
    honest: int


@dataclass(frozen=True)
class Contribution:
    """An agent's answer to a task.

    Attributes
    ----------
    kind : str
        Repeats the task's kind.
    rows : int
        Number of training rows at the agent, >= 0.
    sums : Mapping[str, ndarray of int64]
        The additive part: exact fixed-point sums, added over agents modulo 2^64. Kept apart from `values` so that it
        can be masked later.
    values : Mapping[str, Value]
        The part that is not a sum (rules, structures, votes). Empty for purely additive schemes.
    nullified : int
        How many statistics the agent set to zero.
    agent : str
        Who sent it. Does not travel here: the envelope says it, and who collects answers notes it before it reduces
        them. Empty where nobody did; a scheme must then do without.
    vehicles : int or None
        None: one vehicle's own answer. In a private run: the sums of a whole group, so many of whose vehicles have
        rows, and `rows` those of all. Does not travel: who opens a group's sum notes it.
    summed : Summed or None
        In a private run: over whom the sums are. Does not travel.
    former : tuple of (Task, Contribution)
        In a private run: what was opened of the group's earlier editions about questions of :data:`COUNTS`, in the
        order of editions. Does not travel. With it a scheme sees on how many rows a difference of editions rests.
    decided : ndarray of bool or None
        Of the central model of a run with support: what the run decided from the answers to this question.
    """

    kind: str
    rows: int
    sums: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    nullified: int = 0
    agent: str = ""
    vehicles: int | None = None
    summed: Summed | None = None
    former: tuple[tuple[Task, Contribution], ...] = ()
    decided: NDArray[np.bool_] | None = None

    def to_value(self) -> dict[str, Value]:
        """Return the contribution as a codec value."""
        return {
            "kind": self.kind,
            "rows": self.rows,
            "sums": dict(self.sums),
            "values": dict(self.values),
            "nullified": self.nullified,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Contribution:
        """Rebuild a contribution from :meth:`to_value`; raises ``ContributionError`` when it is malformed."""
        try:
            kind, rows, nullified = value["kind"], value["rows"], value["nullified"]
            sums, values = value["sums"], value["values"]
        except (KeyError, TypeError) as fault:
            raise ContributionError(f"contribution lacks {fault}") from fault
        if not isinstance(kind, str) or not isinstance(sums, Mapping) or not isinstance(values, Mapping):
            raise ContributionError("contribution fields have the wrong types")
        for name, count in (("rows", rows), ("nullified", nullified)):
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
                raise ContributionError(f"{name} must be an integer in [0, 2^31), got {count!r}")
        for name, array in sums.items():
            if not isinstance(array, np.ndarray) or array.dtype != np.int64:
                raise ContributionError(f"sum {name!r} must be an int64 array")
        return cls(kind, rows, sums, values, nullified)


@dataclass(frozen=True)
class Next:
    """The run goes on: the server half's new state, and the task of the next round."""

    state: State
    task: Task


@dataclass(frozen=True)
class Done:
    """The run is finished.

    Attributes
    ----------
    model : Any
        The finished :class:`Model` (for domain discovery: a ``Domain``).
    summary : Mapping[str, Value]
        What the scheme wants recorded beside the model, e.g. ``{"sums_digest": "..."}``. With ``reference``, see
        :func:`glassfleet.model.baseline.typical_row`, its forecasts are compared with a typical row; with
        ``forecasts``, see
        :mod:`glassfleet.model.intervals`, its rules say what they forecast; with ``why_few``, a sentence, why they are
        few.
    """

    model: Any
    summary: Mapping[str, Value] = field(default_factory=dict)
