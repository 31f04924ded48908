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
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import BaseModel

from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.model.protocol import Model
from schemas.codec import Value

Participation = Literal["cohort", "elastic"]
Purpose = Literal["regression", "classification"]


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
    """One learning algorithm, as the catalogue knows it.

    More members are optional; :mod:`glassfleet.contract.abilities` says what holds for a scheme without them.

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
      From these a vehicle is named without which the others would gain (:mod:`glassfleet.evaluation.influence`).
    - ``tables(model) -> Tables``: the model as plain tables (:mod:`glassfleet.model.tables`), from which C, Python, FML
    and
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
