"""How good a finished model is in the whole fleet, as sums: no vehicle's score leaves it in a private run.

One question at the end of a run, answered like any other: summed errors on the vehicles' own test rows, of the new
model, of the one in use, of the model that each vehicle learns from its own rows, and of a constant; and how many
vehicles are worse off with the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import add_up
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.chain import SCORES_SCHEME
from glassfleet.scheme import Contribution, Task
from glassfleet.untrusted import check_shapes, task_errors
from schemas import limits

MODELS: Final = ("candidate", "champion", "local", "constant")
"""Whose errors are summed, in this order: the new model, the one in use, the vehicle's own, and a constant."""

ERROR_BITS: Final = 20
"""Squared errors, in squares of the target's range, are rounded to multiples of 2^-20."""

MOST_ERROR: Final = 16.0
"""A larger error, in ranges of the target, counts as this: 2^31 rows of it stay below 2^59."""

KIND: Final = "errors"


@dataclass(frozen=True)
class ScoresQuestion:
    """What is scored.

    Attributes
    ----------
    model, champion : str
        Digests of the new model and of the one in use; `champion` is empty where there is none.
    vehicle_worse : float
        A vehicle is worse off when its error is larger by more than this share, >= 0.
    low, high : float
        Limits of the target, in its unit; 0 and 0 for classes.
    classes : tuple of str
        The run's classes; empty for a numeric target.
    """

    model: str
    champion: str
    vehicle_worse: float
    low: float = 0.0
    high: float = 0.0
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, domain: Domain, model: str, champion: str, vehicle_worse: float) -> ScoresQuestion:
        """Return the question about a model over `domain`."""
        if domain.target is None:
            return cls(model, champion, vehicle_worse, classes=domain.classes)
        return cls(model, champion, vehicle_worse, domain.target.low, domain.target.high)

    @property
    def width(self) -> float:
        """The target's range, in its unit; 1 for a constant target."""
        return self.high - self.low if self.high > self.low else 1.0

    def to_task(self, nonce: str) -> Task:
        """Return the task of the run `nonce` that asks this."""
        body = {
            "model": self.model,
            "champion": self.champion,
            "vehicle_worse": self.vehicle_worse,
            "low": self.low,
            "high": self.high,
            "classes": list(self.classes),
        }
        return Task(SCORES_SCHEME, KIND, body, nonce)

    @classmethod
    def from_task(cls, task: Task) -> ScoresQuestion:
        """Read `task`; raises TaskError with the reason, whatever it holds."""
        if (task.scheme, task.kind) != (SCORES_SCHEME, KIND) or not isinstance(task.body, Mapping):
            raise TaskError(f"not a question for scores: {task.scheme}/{task.kind}")
        with task_errors():
            body: Mapping[str, Any] = task.body
            worse, low, high = (body[name] for name in ("vehicle_worse", "low", "high"))
            classes, model, champion = body["classes"], body["model"], body["champion"]
        if not all(isinstance(each, float) and np.isfinite(each) for each in (worse, low, high)) or worse < 0:
            raise TaskError("vehicle_worse, low and high must be finite numbers")
        if not isinstance(classes, list) or len(classes) > limits.MAX_FEATURES:
            raise TaskError("classes must be a list")
        if not all(isinstance(each, str) for each in (*classes, model, champion)):
            raise TaskError("classes and digests must be texts")
        return cls(model, champion, worse, low, high, tuple(classes))


@dataclass(frozen=True)
class FleetScores:
    """Scores of the whole fleet.

    Attributes
    ----------
    metric : "rmse" or "f1"
        Root of the mean squared error, in the target's unit; or the mean F1 of the classes that occur.
    scores : Mapping[str, float]
        By :data:`MODELS`; the champion's is left out where there is none.
    rows, vehicles : int
        Test rows, and vehicles that have some.
    worse : Mapping[str, int]
        How many vehicles are worse off with the new model than with each of the others.
    cannot : int
        How many vehicles could not score it.
    """

    metric: Literal["rmse", "f1"]
    scores: Mapping[str, float]
    rows: int
    vehicles: int
    worse: Mapping[str, int]
    cannot: int


class ScoresSum:
    """Both halves of the question for scores, shaped like a scheme's."""

    def layout(self, task: Task) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        question = ScoresQuestion.from_task(task)
        count = len(MODELS)
        shapes: dict[str, tuple[int, ...]] = {"worse": (count - 1,), "cannot": (1,)}
        if question.classes:
            classes = len(question.classes)
            return {**shapes, "right": (count, classes), "told": (count, classes), "true": (classes,)}
        return {**shapes, "squares": (count,)}

    def answer(self, task: Task, y: NDArray[Any], predicted: Mapping[str, NDArray[Any]] | None) -> Contribution:
        """Return a vehicle's answer.

        Parameters
        ----------
        task : Task
        y : ndarray, shape (n,)
            The target of its test rows, float64 or text; n may be 0.
        predicted : mapping of str to ndarray, shape (n,), or None
            By :data:`MODELS`; without the champion where there is none. None: it cannot score the model.

        Raises
        ------
        TaskError
            The task is malformed.
        """
        question, shapes = ScoresQuestion.from_task(task), self.layout(task)
        sums = {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}
        if predicted is None:
            sums["cannot"][0] = 1
            return Contribution(KIND, 0, sums)
        if len(y) == 0:
            return Contribution(KIND, 0, sums)
        errors: dict[str, float] = {}
        for line, name in enumerate(MODELS):
            if name not in predicted:
                continue
            if question.classes:
                parts = _class_counts(question, y, predicted[name])
                sums["right"][line], sums["told"][line], sums["true"] = parts
                errors[name] = 1.0 - _macro_f1(*parts)
            else:
                off = np.minimum(np.abs(predicted[name] - y) / question.width, MOST_ERROR)
                sums["squares"][line] = int(np.rint(off * off * (1 << ERROR_BITS)).astype(np.int64).sum())
                errors[name] = float(np.sqrt(np.mean(off * off)))
        for line, name in enumerate(MODELS[1:]):
            if name in errors:
                sums["worse"][line] = errors["candidate"] > errors[name] * (1.0 + question.vehicle_worse)
        return Contribution(KIND, len(y), sums)

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise ContributionError unless `contribution`, of one vehicle or a group, can be true."""
        sums, rows = contribution.sums, contribution.rows
        if contribution.kind != KIND or contribution.values or contribution.nullified:
            raise ContributionError("an answer about scores is sums only")
        check_shapes(sums, self.layout(task))
        vehicles = int(rows > 0) if contribution.vehicles is None else contribution.vehicles
        if (sums["worse"] > vehicles).any():
            raise ContributionError(f"more than {vehicles} vehicles are worse off")
        if "squares" in sums and (sums["squares"] > rows * (int(MOST_ERROR**2) << ERROR_BITS)).any():
            raise ContributionError("an error is larger than counts")
        if "true" in sums:
            if int(sums["true"].sum()) > rows or (sums["told"].sum(axis=1) > rows).any():
                raise ContributionError("more rows are of a class than there are")
            if (sums["right"] > np.minimum(sums["true"], sums["told"])).any():
                raise ContributionError("more rows are right than are of the class")

    def read(self, task: Task, contributions: Sequence[Contribution]) -> FleetScores | None:
        """Return the fleet's scores from the sums of all groups; None where nobody has test rows."""
        question = ScoresQuestion.from_task(task)
        total = add_up(contributions)
        rows = sum(each.rows for each in contributions)
        if not rows:
            return None
        if question.classes:
            found = [
                _macro_f1(right, told, total["true"]) for right, told in zip(total["right"], total["told"], strict=True)
            ]
        else:
            mean = total["squares"].astype(np.float64) / (float(rows) * float(1 << ERROR_BITS))
            found = (np.sqrt(mean) * question.width).tolist()
        known = {
            name: score for name, score in zip(MODELS, found, strict=True) if name != "champion" or question.champion
        }
        worse = {name: int(count) for name, count in zip(MODELS[1:], total["worse"], strict=True) if name in known}
        vehicles = sum(each.vehicles or 0 for each in contributions)
        metric: Literal["rmse", "f1"] = "f1" if question.classes else "rmse"
        return FleetScores(metric, known, rows, vehicles, worse, int(total["cannot"][0]))


SCORES: Final = ScoresSum()
"""The halves of the question for scores."""


def _class_counts(
    question: ScoresQuestion, y: NDArray[Any], predicted: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return, by class, the rows that are right, that are said to be of it, and that are; each of shape (C,)."""
    counts = [((y == name) & (predicted == name), predicted == name, y == name) for name in question.classes]
    right, told, true = (np.array([int(each[k].sum()) for each in counts], dtype=np.int64) for k in range(3))
    return right, told, true


def _macro_f1(right: NDArray[np.int64], told: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """Mean F1 over the classes that occur; 0 where none does."""
    there = true > 0
    if not there.any():
        return 0.0
    return float(np.mean(2.0 * right[there] / (true[there] + told[there])))
