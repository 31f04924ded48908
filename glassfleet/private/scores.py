"""How good a model is that was learned in a private run: test errors of the whole fleet, and nobody's own.

The run's last question. Each vehicle answers with sums over its own test rows, masked like all other answers; the sums
say how far off four forecasts are: the finished model's, the current model's (if there is one of the same target), a
constant's, and those of the model that the vehicle learns alone; and for how many vehicles the finished model is worse
than the current one and than the constant. From these a name's next version is decided.

Squared errors are told in the target's range, on a grid: one that is larger than twice the range counts as that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.numerics.f1 import macro_f1
from glassfleet.private.chain import SCORES_SCHEME
from glassfleet.scheme import Contribution, Done, Next, State, Task
from schemas.codec import Value
from schemas.errors import RunFailedError

KIND: Final = "scores"

MODELS: Final = ("candidate", "champion", "constant", "local")
"""Whose errors are told: the finished model, the current one, a constant, each vehicle's own."""

OTHERS: Final = ("champion", "constant")
"""What the candidate is compared with, vehicle by vehicle."""

MAX_CLASSES: Final = 256
"""With more labels than that a class's rows would be few in any fleet."""

_GRID, _WORST = 2.0**30, 2.0
_MOST = int(_GRID * _WORST**2)


@dataclass(frozen=True)
class Asked:
    """What is scored.

    Attributes
    ----------
    model : Mapping
        Document of the finished model.
    champion : Mapping or None
        Document of the current model, if its target is the same.
    worse_by : Mapping of str to float
        By member of `OTHERS`: from which relative change of its error on a vehicle counts as worse off.
    """

    model: Mapping[str, Any]
    champion: Mapping[str, Any] | None
    worse_by: Mapping[str, float]


class ScoresServer:
    """The half that runs at the coordinator."""

    @staticmethod
    def start(parameters: Asked, domain: Domain, seed: int) -> Next:  # noqa: ARG004 - as all server halves
        """Return the one question."""
        if len(domain.classes) > MAX_CLASSES:
            raise RunFailedError(f"too many classes: scores are summed for {MAX_CLASSES} at most")
        body: dict[str, Value] = {
            "model": dict(parameters.model),
            "champion": parameters.champion and dict(parameters.champion),
            "worse_by": dict(parameters.worse_by),
        }
        return Next({"task": body}, Task(SCORES_SCHEME, KIND, body))

    @staticmethod
    def check(task: Task, contribution: Contribution) -> None:
        """Raise ContributionError unless the sums can be those of so many test rows."""
        shapes, sums = SCORES.layout(task), contribution.sums
        if {name: each.shape for name, each in sums.items()} != shapes or contribution.values:
            raise ContributionError(f"scores have the sums {sorted(shapes)}")
        most = 1 if contribution.vehicles is None else contribution.vehicles
        for name in (each for each in OTHERS if f"worse/{each}" in sums):
            compared, worse = sums[f"worse/{name}"].tolist()
            if not 0 <= worse <= compared <= most:
                raise ContributionError(f"{worse} of {compared} vehicles are worse off, of {most} at most")
        for name in (each for each in MODELS if f"rows/{each}" in sums):
            rows = int(sums[f"rows/{name}"][0])
            if not 0 <= rows <= contribution.rows:
                raise ContributionError(f"{name}: {rows} rows of {contribution.rows}")
            errors = sums[f"errors/{name}"]
            if errors.shape == (1,):
                if not 0 <= errors[0] <= rows * _MOST:
                    raise ContributionError(f"{name}: errors beyond those of {rows} rows")
                continue
            right, true, forecast = errors
            fits = (right >= 0).all() and (right <= np.minimum(true, forecast)).all()
            if not fits or not int(true.sum()) == int(forecast.sum()) == rows:
                raise ContributionError(f"{name}: counts of classes that are not those of {rows} rows")

    @staticmethod
    def reduce(state: State, contributions: Sequence[Contribution]) -> Done:
        """Return the fleet's figures as the summary; there is no model.

        The summary has ``metric`` ("rmse", in the target's unit, or "f1", the mean over the classes that occur),
        ``rows`` and ``vehicles`` (of test rows), the members of `MODELS` that were scored, and by member of `OTHERS`
        ``compared`` and ``worse``: how many vehicles told, and how many of these are worse off.
        """
        task = Task(SCORES_SCHEME, KIND, state["task"])
        domain, shapes = _domain(task), SCORES.layout(task)
        total = {name: np.sum([each.sums[name] for each in contributions], axis=0) for name in shapes}
        summary: dict[str, Value] = {
            "metric": "f1" if domain.target is None else "rmse",
            "rows": sum(each.rows for each in contributions),
            "vehicles": sum(each.vehicles or 0 for each in contributions),
        }
        for name in MODELS:
            rows = int(total[f"rows/{name}"][0]) if f"rows/{name}" in total else 0
            if rows:
                summary[name] = _figure(total[f"errors/{name}"], rows, domain)
        others = [name for name in OTHERS if f"worse/{name}" in total]
        summary["compared"] = {name: int(total[f"worse/{name}"][0]) for name in others}
        summary["worse"] = {name: int(total[f"worse/{name}"][1]) for name in others}
        summary["worse_by"] = {name: float(state["task"]["worse_by"][name]) for name in others}
        return Done(None, summary)

    @staticmethod
    def progress(state: State) -> Mapping[str, Value]:  # noqa: ARG004 - as all server halves
        """Return nothing: one question, and nothing grows."""
        return {}


class Scoring:
    """The last question of a private run, shaped like a scheme; its client half is the vehicle's own software."""

    name: Final = SCORES_SCHEME
    server: Final = ScoresServer()

    @staticmethod
    def layout(task: Task) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums; raises TaskError for a malformed task.

        ``rows/{model}`` (1,); ``errors/{model}``: (1,) squared errors on the grid, or (3, classes + 1) counts by class
        of rows forecast right, of that class, and forecast as it; ``worse/{other}`` (2,): 1 if this vehicle compared
        the two, and 1 if it is worse off.
        """
        domain = _domain(task)
        shape = (1,) if domain.target is not None else (3, len(domain.classes) + 1)
        asked = [name for name in MODELS if name != "champion" or task.body.get("champion") is not None]
        shapes: dict[str, tuple[int, ...]] = {}
        for name in asked:
            shapes |= {f"rows/{name}": (1,), f"errors/{name}": shape}
            if name in OTHERS:
                shapes[f"worse/{name}"] = (2,)
        return shapes


SCORES: Final = Scoring()


def scored(task: Task, y: NDArray[Any], forecasts: Mapping[str, NDArray[Any]]) -> Contribution:
    """Return one vehicle's answer.

    Parameters
    ----------
    task : Task
    y : ndarray, shape (n,)
        The target of its test rows: float64, or labels; n may be 0.
    forecasts : mapping of str to ndarray, shape (n,)
        By member of `MODELS`; one that cannot be had here is left out.

    Raises
    ------
    TaskError
        The task is malformed.
    """
    domain, shapes = _domain(task), SCORES.layout(task)
    worse_by = task.body.get("worse_by")
    sums = {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}
    figures: dict[str, float] = {}
    for name in (each for each in MODELS if each in forecasts and f"rows/{each}" in shapes and y.size):
        sums[f"rows/{name}"][0] = y.size
        sums[f"errors/{name}"][...] = errors = _errors(y, forecasts[name], domain)
        figures[name] = _figure(errors, y.size, domain)
    for name in (each for each in OTHERS if each in figures and "candidate" in figures):
        try:
            limit = float(worse_by[name])  # type: ignore[index]  # of a peer: whatever it is
        except (TypeError, ValueError, LookupError) as fault:
            raise TaskError("worse_by is malformed") from fault
        change = relative(figures["candidate"], figures[name], higher_is_better=domain.target is None)
        sums[f"worse/{name}"][:] = 1, change > limit
    return Contribution(KIND, int(y.size), sums)


def relative(figure: float, other: float, *, higher_is_better: bool) -> float:
    """Return how much worse a figure is than another, relative to the other; in [-1, 1]."""
    loss = other - figure if higher_is_better else figure - other
    if not loss:
        return 0.0
    return max(-1.0, min(1.0, loss / abs(other))) if other else math.copysign(1.0, loss)


def same_target(model: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two models' documents are of one target, and both of numbers or of the same classes."""
    try:
        one, two = (Domain.from_document(each["domain"]) for each in (model, other))
    except (ValueError, LookupError, TypeError):
        return False
    return one.target_name == two.target_name and one.classes == two.classes


def _domain(task: Task) -> Domain:
    try:
        domain = Domain.from_document(task.body["model"]["domain"])
    except (ValueError, LookupError, TypeError) as fault:
        raise TaskError(f"the model to be scored is malformed: {fault}"[:200]) from fault
    if len(domain.classes) > MAX_CLASSES:
        raise TaskError(f"{len(domain.classes)} classes; scores are summed for {MAX_CLASSES} at most")
    return domain


def _span(domain: Domain) -> float:
    assert domain.target is not None
    return (domain.target.high - domain.target.low) or 1.0


def _errors(y: NDArray[Any], forecast: NDArray[Any], domain: Domain) -> NDArray[np.int64]:
    if domain.target is not None:
        off = np.nan_to_num(np.abs(y - forecast) / _span(domain), nan=_WORST, posinf=_WORST)
        return np.array([np.rint(np.minimum(off, _WORST) ** 2 * _GRID).astype(np.int64).sum()])
    places = {label: place for place, label in enumerate(domain.classes)}
    size = len(places) + 1  # the last is any label that the model does not know
    true, said = (np.array([places.get(str(each), size - 1) for each in labels]) for labels in (y, forecast))
    return np.stack([np.bincount(each, minlength=size) for each in (true[true == said], true, said)])


def _figure(errors: NDArray[np.int64], rows: int, domain: Domain) -> float:
    if domain.target is not None:
        return math.sqrt(int(errors[0]) / (rows * _GRID)) * _span(domain)
    right, true, forecast = errors
    return macro_f1(right, forecast, true)


__all__ = ["KIND", "MODELS", "OTHERS", "SCORES", "Asked", "Scoring", "relative", "same_target", "scored"]
