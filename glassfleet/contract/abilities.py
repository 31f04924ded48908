"""What a scheme can do beside what every scheme must, declared in one place, with what holds where it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import INPUT_QUANTILES, Domain
from glassfleet.model.protocol import Model
from glassfleet.model.tables import Tables


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
