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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import INPUT_QUANTILES, Domain
from glassfleet.model.protocol import Model
from glassfleet.model.tables import Tables
from schemas.codec import Value
from schemas.errors import UsageError

Participation = Literal["cohort", "elastic"]
Purpose = Literal["regression", "classification"]


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
        :func:`glassfleet.contract.progress.outlined` makes the three.
        """


class Scheme(Protocol):
    """One learning algorithm, as the catalogue knows it."""

    @property
    def name(self) -> str:
        """The name of the scheme's folder, or of its entry point."""

    @property
    def title(self) -> str:
        """What the scheme is, for people."""

    @property
    def purpose(self) -> frozenset[Purpose]:
        """What it learns."""

    @property
    def participation(self) -> frozenset[Participation]:
        """How vehicles may take part."""

    @property
    def Parameters(self) -> type[BaseModel]:  # noqa: N802 - it is a class
        """What a run can be told: a frozen pydantic model with defaults, that refuses unknown fields.

        Where clients condense rows (:mod:`glassfleet.data.condense`) its ``group_rows`` says how many are fewest in a
        group.
        """

    @property
    def client(self) -> Client:
        """The client half."""

    @property
    def server(self) -> Server:
        """The server half."""

    @property
    def abilities(self) -> Abilities:
        """What the scheme can do beside."""

    def exact(self, parameters: Any) -> Any:
        """Return `parameters` with which agents use their rows as they are."""

    def from_document(self, document: Mapping[str, Any]) -> Model:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""


def promises_central(scheme: Scheme, parameters: Any) -> bool:
    """Return whether `scheme` promises that fleet and central model are equal with `parameters` (promise 1).

    The promise is of cohort participation; the central model is that of the rows that vehicles use: their own, or
    condensed ones. Nothing is promised where `parameters` protect rows otherwise (frt's own nullification, as in its
    paper).
    """
    exact, promise = scheme.exact(parameters), scheme.abilities.equals_central
    if promise is None or (parameters != exact and getattr(parameters, "group_rows", 1) == 1):
        return False
    return promise(exact)


def is_label_scheme(scheme: Scheme) -> bool:
    """Return whether a scheme's target is a class, always."""
    return scheme.purpose == {"classification"}


def input_quantiles_of(scheme: Scheme, *, labels: bool = False) -> tuple[float, float]:
    """Return the quantiles, in [0, 1], of an input that become its limits; for a number `scheme` may have its own."""
    return INPUT_QUANTILES if labels else scheme.abilities.input_quantiles


def private_parameters(scheme: Any, parameters: Any, support: int | None = None) -> Any:
    """Return the parameters with which `scheme` (or domain discovery) learns in a private run.

    Parameters
    ----------
    scheme : Scheme
    parameters : scheme.Parameters
    support : int or None
        Fewest rows on which a number rests that the run opens, 0: any; None: as `parameters` say. Where the scheme has
        no such parameter, each number rests on all rows of the vehicles, or has noise.

    Raises
    ------
    UsageError
        There are none, with the reason.
    """
    private = scheme.abilities.private
    if isinstance(private, str):
        raise UsageError(f"{scheme.name} has no private runs: {private}")
    chosen = private.parameters(parameters)
    if support is None or "support" not in scheme.Parameters.model_fields:
        return chosen
    try:
        return scheme.Parameters.model_validate({**chosen.model_dump(), "support": support})
    except ValueError as fault:
        raise UsageError(f"{scheme.name} with support {support}: {fault}; or ask for support 0"[:500]) from fault


def alone_parameters(scheme: Scheme, parameters: Any) -> Any:
    """Return the parameters with which a vehicle learns from its own rows: as they are, whatever few of them tell."""
    exact = scheme.exact(parameters)
    return exact.model_copy(update={"support": 0}) if getattr(exact, "support", 0) else exact


def too_large(scheme: Scheme, parameters: Any, inputs: int, classes: int, room: int) -> str:
    """Return a warning where an answer of a run may have more than `room` bytes; empty where not, or nobody knows."""
    most, way_out = scheme.abilities.most_bytes(parameters, inputs, classes)
    if most <= room:
        return ""
    sizes = f"{most / 1e6:,.0f} MB where {room / 1e6:,.0f} MB can be sent"
    return f"with {inputs} inputs an answer may have up to {sizes}: ask for {way_out}"


def personal_model(scheme: Scheme, model: Model, data: Dataset) -> Model:
    """Return what the vehicle with the rows `data` predicts with: the model, or what it makes of it.

    Raises
    ------
    TaskError
        The rows are not those of the model's domain.
    """
    personalise = scheme.abilities.personalise
    return model if personalise is None else personalise(model, data)


# --- what a scheme can do beside what every scheme must, declared in one place, with what holds where it says nothing -


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

    def fits(self, most: Cost) -> bool:
        """Whether it takes no more than `most`, as a rule."""
        return self.seconds <= most.seconds and self.megabytes <= most.megabytes


@dataclass(frozen=True)
class PrivateRuns:
    """How a scheme whose answers are sums alone learns in private runs.

    Attributes
    ----------
    layout : callable
        ``layout(task)`` returns names and shapes of all sums of an answer, from the task alone; raises
        :class:`~glassfleet.errors.TaskError` for a task whose answers are no sums.
    parameters : callable
        ``parameters(given)`` returns the parameters of a private run, in which vehicles use their rows as they are;
        raises ``schemas.errors.UsageError`` with the reason where these cannot be used in one. With the parameter
        ``support`` the scheme asks nothing that rests on fewer rows (:mod:`glassfleet.private.support`), and its
        summary has the record ``withheld``.
    most_told : callable
        ``most_told(task)`` returns at which number the counts of an answer to a question of
        :data:`~glassfleet.contract.messages.SUPPORT` end; > 0.
    openly : callable
        ``openly(parameters)`` raises ``UsageError`` with the reason where they promise what only a private run keeps.
    among : callable
        ``among(task, honest)`` returns the task as the members of a group answer it, of whom at least so many are
        honest. For noise of which each adds a share: no coordinator is believed about how large.
    spent : callable or None
        Of schemes with noise: ``spent(task)`` returns what an answer spends of the run's privacy budget (epsilon), and
        the whole budget, the same for all tasks with the same parameters. A vehicle answers no more than it has.
    """

    layout: Callable[[Task], Mapping[str, tuple[int, ...]]]
    parameters: Callable[[Any], Any] = lambda given: given
    most_told: Callable[[Task], int] = lambda _: 0
    openly: Callable[[Any], None] = lambda _: None
    among: Callable[[Task, int], Task] = lambda task, _: task
    spent: Callable[[Task], tuple[float, float]] | None = None


@dataclass(frozen=True)
class Abilities:
    """What a scheme can do beside what every scheme must.

    Attributes
    ----------
    categories : bool
        It takes columns of categories (``Variable.categories``); others take numbers alone.
    missing_cells : bool
        Rows may have empty cells (NaN) in columns whose ``Variable.missing`` says what they are taken for.
    excess : bool
        Its lines go on beyond the limits of inputs, see :class:`glassfleet.data.domain.Excess`.
    input_quantiles : (float, float)
        Which quantiles of an input, in [0, 1], become its limits where the target is a number.
    trial : parameters or None
        Of a short run, for the conformance suite; None: the defaults are tried.
    equals_central : callable or None
        ``equals_central(parameters)``: whether promise 1 (FL = CL of the rows used, bit for bit) holds with
        parameters that :meth:`~glassfleet.contract.scheme.Scheme.exact` returns; None: with none.
    cost : callable
        ``cost(task, rows)`` returns what an answer from so many rows may take (:class:`Cost`); raises ``TaskError`` as
        the client does. A vehicle computes answers that cost little in its own process, and all others, also those of
        which nobody knows (None), in a process of its own that can be ended and has bounds.
    most_bytes : callable
        ``most_bytes(parameters, inputs, classes)`` returns how many bytes the largest answer of a run can have, and
        what makes it smaller, in words; `classes` is 0 where a number is learned. A run whose answers may be too large
        says so when it is started.
    regressions : callable
        ``regressions(answers)`` returns, of one vehicle's tasks and answers in their order, the moment matrices over
        ``[1, x, y]`` of the model's rules, shape (k, k, m), in rows; None where they are not among them. From these a
        vehicle is named without which the others would gain (:mod:`glassfleet.evaluation.influence`).
    tables : callable or None
        ``tables(model)`` returns the model as plain tables (:mod:`glassfleet.model.tables`), from which code, FML and
        pictures of trees are made; raises ``UsageError`` for a model that has none.
    personalise : callable or None
        ``personalise(model, data)`` returns what a vehicle makes of the published model with its own rows, which then
        stays at the vehicle and is what it predicts with.
    alone : callable or None
        ``alone(parameters, domain, data, seed)`` returns the model of "local learning", where that is not a run with
        one vehicle.
    private : PrivateRuns or str
        How it learns in private runs, or why it does not.
    """

    categories: bool = False
    missing_cells: bool = False
    excess: bool = False
    input_quantiles: tuple[float, float] = INPUT_QUANTILES
    trial: BaseModel | None = None
    equals_central: Callable[[Any], bool] | None = None
    cost: Callable[[Task, int], Cost | None] = lambda *_: None
    most_bytes: Callable[[Any, int, int], tuple[int, str]] = lambda *_: (0, "")
    regressions: Callable[[Sequence[tuple[Task, Contribution]]], NDArray[np.float64] | None] = lambda _: None
    tables: Callable[[Any], Tables] | None = None
    personalise: Callable[[Any, Dataset], Model] | None = None
    alone: Callable[[Any, Domain, Dataset, int], Model] | None = None
    private: PrivateRuns | str = "its answers are not sums alone"
