"""The scheme contract: a learning algorithm in three parts, client, server and model.

Theory. A run is a sequence of tasks. The server half turns the answers to one task into the next task, or into the
finished model; the client half turns a task and a vehicle's rows into an answer. Both are pure functions: neither reads
a clock, a file or a socket. Three consequences are used everywhere:

- an agent that was away answers the open task from the task alone (the client keeps no memory that matters);
- a coordinator that was killed, or that lost a vehicle, learns the run again by reducing stored answers;
- learning in one process, over MQTT and in a simulation is the same code.

Adding a scheme is adding one folder under ``glassfleet/schemes/`` whose ``__init__`` defines ``SCHEME``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.explanation import Explanation
from glassfleet.rules import Rule
from schemas.codec import Value, digest_of

Participation = Literal["cohort", "elastic"]
Purpose = Literal["regression", "classification"]
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
        """At most so many of a vehicle's rows count (:mod:`glassfleet.draw`); 0: all. Raises TaskError.

        Schemes leave it alone, like `nonce`: their clients are given the drawn rows. It stands in the body, where
        vehicles of former versions do not mind it.
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
class Cost:
    """What an answer may take, known from its task and the number of rows before any work. Rough: within a few times.

    Attributes
    ----------
    seconds : float
        At most, as a rule, on one core of 2020; > 0.
    megabytes : float
        At most, as a rule, beside the rows themselves; >= 0.
    least : float
        Seconds that a fast core needs at least; 0 where it cannot be told (work that may end early).
    """

    seconds: float
    megabytes: float
    least: float = 0.0


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
        :func:`glassfleet.reference.typical_row`, its forecasts are compared with a typical row; with ``forecasts``, see
        :mod:`glassfleet.forecasts`, its rules say what they forecast; with ``why_few``, a sentence, why they are few.
    """

    model: Any
    summary: Mapping[str, Value] = field(default_factory=dict)


class Client(Protocol):
    """The half that runs on a vehicle."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Answer `task` from the rows in `data`.

        The answer depends on `task`, `data` and `rng` alone. `rng` is for privacy noise only; it is seeded from a
        secret of the agent and the task. `data` may have no rows. Raises :class:`TaskError` when it cannot answer.
        """


class Server(Protocol):
    """The half that runs at the coordinator."""

    def start(self, parameters: Any, domain: Domain, seed: int) -> Next:
        """Return the first state and task."""

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `task`."""

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task, in the order of agent id, into the next task or the model. Pure."""

    def progress(self, state: State) -> Mapping[str, Value]:
        """Say in a few numbers and words what has grown so far, for displays: e.g. ``{"nodes": 7, "leaves": 22}``.

        The optional entry ``"lines"`` is a list of texts, at most 200, that draws the model as it stands. Of a tree
        ``"outline"`` says the same as data, and ``"more"`` how many nodes were left out:
        :func:`glassfleet.outline.outlined` makes the three.
        """


@runtime_checkable
class Model(Protocol):
    """A finished model: it predicts, explains itself, and is a document.

    Inputs and outputs are in the data's own units; the model holds its domain and scales by itself. More members are
    optional: ``nature``, of models that are no rules (see :mod:`glassfleet.nature`); ``clips_inputs``, False where
    values outside the domain are not taken to its nearest limit; ``deciding`` and ``forecasts``, with which forecasts
    have intervals (:class:`glassfleet.intervals.TellsRule`, :class:`glassfleet.forecasts.TellsForecasts`).
    """

    @property
    def scheme(self) -> str:
        """Name of the scheme that learned the model."""

    @property
    def domain(self) -> Domain:
        """Features, target and their limits."""

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), raw units; returns shape (n,)."""

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,)."""

    def rules(self) -> Sequence[Rule]:
        """Return the rules in a fixed order."""

    def complexity(self) -> Mapping[str, int | float]:
        """Return size measures by name."""

    def to_document(self) -> dict[str, Any]:
        """Return ``{scheme, format, parameters, domain, model}`` as JSON values; its digest is the model's identity."""


class Scheme(Protocol):
    """One learning algorithm, as the catalogue knows it.

    More members are optional; :mod:`glassfleet.traits` says what holds for a scheme without them.

    - ``personalise(model, data) -> Model``: what a vehicle makes of the published model with its own rows, which then
      stays at the vehicle and is what it predicts with (fedga: a tree, of the published structures).
    - ``alone(parameters, domain, data, seed) -> Model``: what "local learning" means for the scheme, where that is not
      a run with one vehicle.
    - ``categorical = True``: the scheme takes columns of categories (``Variable.categories``).
    - ``missing_cells = True``: rows may have empty cells (NaN) in columns whose ``Variable.missing`` says what they are
      taken for.
    - ``excess = True``: its lines go on beyond the limits of inputs (:class:`glassfleet.data.domain.Excess`).
    - ``input_quantiles = (low, high)``: which quantiles of an input become its limits where the target is a number.
    - ``trial``: parameters of a short run, for the conformance suite; without it the defaults are tried.
    - ``parameters.group_rows``: fewest rows of a group where the clients condense rows
      (:mod:`glassfleet.data.condense`).
    - ``cost(task, rows) -> Cost``: what an answer from so many rows may take; raises :class:`TaskError` as the client
      does. A vehicle computes answers that cost little in its own process, and all others, also those of a scheme
      without ``cost``, in a process of its own that can be ended and has bounds.
    - ``most_bytes(parameters, inputs, classes) -> (int, str)``: how many bytes the largest answer of a run can have,
      and what makes it smaller, in words; `classes` is 0 where a number is learned. A run whose answers may be too
      large says so when it is started.
    - ``regressions(answers) -> ndarray or None``: of one vehicle's tasks and answers, in their order, the moment
      matrices over ``[1, x, y]`` of the model's rules, shape (k, k, m), in rows; None where they are not among them.
      From these a vehicle is named without which the others would gain (:mod:`glassfleet.numerics.influence`).
    - ``tables(model) -> Tables``: the model as plain tables (:mod:`glassfleet.tables`), from which C, Python, FML and
      pictures of trees are written; raises ``UsageError`` for a model that has none.
    - ``equals_central_with(parameters) -> bool``: whether promise 1 holds with these parameters, where it does not hold
      with all.
    - ``private(parameters) -> Parameters``: the parameters of a private run, in which vehicles use their rows as they
      are; raises ``schemas.errors.UsageError`` with the reason where these cannot be used in one. A scheme without it
      has no private runs. With the parameter ``support`` it asks nothing that rests on fewer rows
      (:mod:`glassfleet.private.support`), and its summary has the record ``withheld``.
    - ``layout(task) -> Mapping[str, tuple of int]``: names and shapes of all sums of an answer to `task`, a function of
      the task alone; raises :class:`TaskError` for a task whose answers are no sums. With ``private``.
    - ``openly(parameters) -> None``: raises ``UsageError`` with the reason where `parameters` promise what only a
      private run keeps.
    - ``among(task, honest) -> Task``: the task as the members of a group answer it, of whom at least so many are
      honest (:class:`Summed`). For noise of which each adds a share: no coordinator is believed about how large.
    - ``spent(task) -> (float, float)``: of schemes with noise, what an answer to `task` spends of the run's privacy
      budget (epsilon), and the whole budget, the same for all tasks with the same parameters. In a private run a
      vehicle answers no more than the budget has.
    """

    name: str
    title: str
    purpose: frozenset[Purpose]
    participation: frozenset[Participation]
    equals_central: bool
    """Whether promise 1 (FL = CL of the rows used, bit for bit) holds for some setting of the parameters; for
    all of them, unless ``equals_central_with`` says for which."""
    Parameters: type[BaseModel]

    @property
    def client(self) -> Client:
        """The client half."""

    @property
    def server(self) -> Server:
        """The server half."""

    def exact(self, parameters: Any) -> Any:
        """Return `parameters` with which agents use their rows as they are."""

    def from_document(self, document: Mapping[str, Any]) -> Model:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
