"""How good a finished model is: the last question of a run, answered with sums over each vehicle's own test rows.

Every run of a cohort for a number asks how far off the model's forecasts are, rule by rule: what its intervals are made
of (:mod:`glassfleet.model.intervals`).

A private run asks more, and all answers are masked. It asks how far off three other forecasts are: the current model's
(if there is one of the same target), a constant's, and those of the model that the vehicle learns alone. It also asks
for how many vehicles the finished model is worse than the current one and than the constant, and by how much it is
worse than the current one and earlier ones, and these than the current one. From these a name's next version is
decided (:mod:`glassfleet.evaluation.paired`). Of other runs each vehicle tells its own scores, once there is a model.

Where there is a current model, it is asked how far that one's rules and inputs moved, too
(:mod:`glassfleet.evaluation.drift`).

Squared errors are told in the target's range, on a grid: one that is larger than twice the range counts as that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Abilities, PrivateRuns
from glassfleet.contract.sums import add_up
from glassfleet.contract.tasks import Remembered
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from glassfleet.evaluation.drift import COLUMNS, GRID, MOST
from glassfleet.evaluation.f1 import MOST_CONFUSED, confusion, macro_f1
from glassfleet.evaluation.paired import MOST_FORMERS, MOST_TOLD, PairedDifference, difference, relative
from glassfleet.model.intervals import BINS, MOST_RULES, WORST, counted, recorded_errors, width_of
from glassfleet.private.chain import SCORES_SCHEME
from schemas.codec import Value, document_digest
from schemas.errors import RunFailedError

KIND: Final = "scores"

MODELS: Final = ("candidate", "champion", "constant", "local")
"""Whose errors are told: the finished model, the current one, a constant, each vehicle's own."""

OTHERS: Final = ("champion", "constant", "local")
"""What the candidate is compared with, vehicle by vehicle."""

FORMERS: Final = tuple(f"former-{place}" for place in range(1, MOST_FORMERS + 1))
"""Earlier models: how much better or worse they are is told, and not their errors."""

FEWEST_ROWS: Final = 3
"""Of a rule, or a class, with fewer test rows at a vehicle nothing is told that is not masked."""

MAX_CLASSES: Final = 64
"""With more labels than that a class's rows would be few in any fleet."""

_PAIRS: Final = ("beside", "before")
_GRID = 2.0**30
_MOST = int(_GRID * WORST**2)
_MOST_ROWS = 2**30


@dataclass(frozen=True)
class ScoresAsked:
    """What is scored.

    Attributes
    ----------
    model : Mapping
        Document of the finished model.
    champion : Mapping or None
        Document of the current model, if its target is the same.
    worse_by : Mapping of str to float
        By member of `OTHERS`: from which relative change of its error on a vehicle counts as worse off; empty: the
        model is compared with nothing.
    lines : int
        Over so many lines the model's errors are counted, see :func:`glassfleet.model.intervals.lines_of`; 0: they are
        not.
    formers : sequence of Mapping
        Documents of earlier models of the same target, at most `MOST_FORMERS`; the champion's must be there, too.
    watched : int
        Over so many lines it is asked how far the champion's errors moved, see `lines`; 0: it is not.
    """

    model: Mapping[str, Any]
    champion: Mapping[str, Any] | None = None
    worse_by: Mapping[str, float] = field(default_factory=dict)
    lines: int = 0
    formers: Sequence[Mapping[str, Any]] = ()
    watched: int = 0


class ScoresServer:
    """The half that runs at the coordinator."""

    @staticmethod
    def start(parameters: ScoresAsked, domain: Domain, seed: int) -> Next:  # noqa: ARG004 - as all server halves
        """Return the one question."""
        if len(domain.classes) > MAX_CLASSES:
            raise RunFailedError(f"too many classes: scores are summed for {MAX_CLASSES} at most")
        body: dict[str, Value] = {
            "model": dict(parameters.model),
            "champion": parameters.champion and dict(parameters.champion),
            "formers": [dict(each) for each in parameters.formers],
            "worse_by": dict(parameters.worse_by),
            "lines": parameters.lines,
            "watched": parameters.watched,
        }
        return Next({"task": body}, Task(SCORES_SCHEME, KIND, body))

    @staticmethod
    def max_rows(parameters: ScoresAsked) -> int:  # noqa: ARG004 - as all server halves
        """Return how many rows the sums are good for."""
        return _MOST_ROWS

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
        for name in (each for each in sums if each.startswith(_PAIRS)):
            _check_difference(sums[name].tolist(), most)
        if "drift" in sums:
            _check_drift(sums["drift"], most)
        if "counts" in sums:
            _check_counts(sums["counts"], int(sums["rows/candidate"][0]))
        for name in (each for each in MODELS if f"rows/{each}" in sums):
            rows = int(sums[f"rows/{name}"][0])
            if not 0 <= rows <= contribution.rows:
                raise ContributionError(f"{name}: {rows} rows of {contribution.rows}")
            if f"errors/{name}" in sums:
                _check_errors(name, sums[f"errors/{name}"], rows)

    @staticmethod
    def reduce(state: State, contributions: Sequence[Contribution]) -> Done:
        """Return the fleet's figures as the summary; there is no model.

        The summary has ``metric`` ("rmse", in the target's unit, or "f1", the mean over the classes that occur),
        ``rows`` and ``vehicles`` (of test rows), the members of `MODELS` that were scored, and of a model of few
        classes its ``confusion``. By member of `OTHERS` it has ``compared`` and ``worse``: how many vehicles told, and
        how many of these are worse off. By digest of champion and former models, ``beside`` says how much worse the
        model is, and ``before`` how much worse a former one is than the champion: vehicles, sum of their changes, sum
        of the variances, see :func:`glassfleet.evaluation.paired.from_sums`. With ``errors``, if they were counted: see
        :func:`glassfleet.model.intervals.recorded_errors`. With ``drift``, if a vehicle told any: the digest ``of`` the
        champion, how many ``rules`` are the first lines, and the ``sums`` by line.
        """
        task = Task(SCORES_SCHEME, KIND, state["task"])
        domain = _domain(task)
        total = add_up(contributions)
        summary: dict[str, Value] = {
            "metric": "f1" if domain.target is None else "rmse",
            "rows": sum(each.rows for each in contributions),
            "vehicles": sum(bool(each.rows) if each.vehicles is None else each.vehicles for each in contributions),
        }
        for name in (each for each in MODELS if f"errors/{each}" in total):
            if rows := int(total[f"rows/{name}"][0]):
                summary[name] = _figure(total[f"errors/{name}"], rows, domain)
        if "counts" in total and (counts := _weighed(contributions)).any():
            summary["errors"] = recorded_errors(counts, width_of(domain))
        if "drift" in total and total["drift"].any():
            watched = {"of": document_digest(state["task"]["champion"]), "rules": state["task"]["watched"]}
            summary["drift"] = {**watched, "sums": total["drift"].tolist()}
        if 0 < len(domain.classes) <= MOST_CONFUSED and "candidate" in summary:
            summary["confusion"] = total["errors/candidate"].tolist()
        others = [name for name in OTHERS if f"worse/{name}" in total]
        summary["compared"] = {name: int(total[f"worse/{name}"][0]) for name in others}
        summary["worse"] = {name: int(total[f"worse/{name}"][1]) for name in others}
        summary["worse_by"] = {name: float(state["task"]["worse_by"][name]) for name in others}
        documents = [state["task"].get("champion"), *_formers(task)]
        digests = dict(
            zip(("champion", *FORMERS), (each and document_digest(each) for each in documents), strict=False)
        )
        for pairs in _PAIRS:
            totals = {name.partition("/")[2]: each.tolist() for name, each in total.items() if name.startswith(pairs)}
            summary[pairs] = {
                digests[name]: [vehicles, *(each / _GRID for each in sums)]
                for name, (vehicles, *sums) in totals.items()
            }
        return Done(None, summary)

    @staticmethod
    def progress(state: State) -> Mapping[str, Value]:  # noqa: ARG004 - as all server halves
        """Return nothing: one question, and nothing grows."""
        return {}


class Scoring:
    """The last question of a run, shaped like a scheme; its client half is the vehicle's own software."""

    name: Final = SCORES_SCHEME
    server: Final = ScoresServer()

    @staticmethod
    def layout(task: Task) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums; raises TaskError for a malformed task.

        ``rows/{model}`` (1,); ``errors/{model}``: (1,) squared errors on the grid, or (classes + 1, classes + 1) rows
        by what they are and what is forecast, see :func:`glassfleet.evaluation.f1.confusion`. ``worse/{other}`` (2,): 1
        if this vehicle compared the two, and 1 if it is worse off. ``counts`` (lines, BINS), see
        :func:`glassfleet.model.intervals.counted`; of one vehicle's own answer no line of less than `FEWEST_ROWS` rows.
        ``beside/{other}`` (3,): 1 if this vehicle compared the finished model with the champion or a former one, how
        much worse it is, and the variance of that; ``before/{former}`` (3,): the same of a former one and the champion.
        ``drift`` (lines and inputs of the champion, COLUMNS): :meth:`glassfleet.evaluation.drift.DriftMemory.changes`.
        """
        domain, lines, watched = _domain(task), _lines(task, "lines"), _lines(task, "watched")
        size = len(domain.classes) + 1
        shape = (1,) if domain.target is not None else (size, size)
        asked = [name for name in compared(task) if name != "champion" or task.body.get("champion") is not None]
        shapes: dict[str, tuple[int, ...]] = {"counts": (lines, BINS)} if lines else {}
        if watched:
            shapes["drift"] = (watched + _inputs(task.body.get("champion")), COLUMNS)
        for name in asked:
            shapes[f"rows/{name}"] = (1,)
            if limits := _limits(task):
                shapes[f"errors/{name}"] = shape
                if name in limits:
                    shapes[f"worse/{name}"] = (2,)
        if "rows/champion" in shapes:
            formers = FORMERS[: len(_formers(task))]
            shapes |= {f"beside/{name}": (3,) for name in ("champion", *formers)}
            shapes |= {f"before/{name}": (3,) for name in formers}
        return shapes

    @property
    def abilities(self) -> Abilities:
        """What it can do beside."""
        return Abilities(private=PrivateRuns(self.layout))


SCORES: Final = Scoring()


def compared(task: Task) -> tuple[str, ...]:
    """Return the members of `MODELS` whose errors are asked for, wherever they can be had."""
    return MODELS if task.body.get("worse_by") else MODELS[:1]


def scored(
    task: Task,
    y: NDArray[Any],
    forecasts: Mapping[str, NDArray[Any]],
    deciding: NDArray[np.intp] | None = None,
    drift: NDArray[np.int64] | None = None,
) -> Contribution:
    """Return one vehicle's answer.

    Parameters
    ----------
    task : Task
    y : ndarray, shape (n,)
        The target of its test rows: float64, or labels; n may be 0.
    forecasts : mapping of str to ndarray, shape (n,)
        By member of `MODELS` and `FORMERS`; one that cannot be had here is left out.
    deciding : ndarray of intp, shape (n,), or None
        Which rule of the finished model decides; None: its errors are counted over one line.
    drift : ndarray of int64, shape (lines and inputs of the champion, COLUMNS), or None
        See `glassfleet.evaluation.drift.DriftMemory.changes`; None: nothing is known.

    Raises
    ------
    TaskError
        The task is malformed.
    """
    domain, shapes = _domain(task), SCORES.layout(task)
    worse_by = _limits(task)
    sums = {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}
    figures: dict[str, float] = {}
    for name in (each for each in MODELS if each in forecasts and f"rows/{each}" in shapes and y.size):
        sums[f"rows/{name}"][0] = y.size
        if f"errors/{name}" in sums:
            sums[f"errors/{name}"][...] = errors = _errors(y, forecasts[name], domain)
            figures[name] = _figure(errors, y.size, domain)
    if "counts" in sums and sums["rows/candidate"][0]:
        lines = len(sums["counts"])
        line = np.zeros(y.size, dtype=np.intp) if deciding is None or lines == 1 else deciding
        if line.max() >= lines:
            raise TaskError(f"errors are asked for over {lines} lines; the model has more rules")
        sums["counts"] = counted((y - forecasts["candidate"]) / width_of(domain), line, lines)
        if not worse_by:  # not masked
            sums["counts"] = without_few(sums["counts"])
    if "drift" in sums and drift is not None and drift.shape == shapes["drift"]:
        sums["drift"] = drift
    for name in (each for each in OTHERS if {"candidate", each} <= figures.keys() and f"worse/{each}" in sums):
        change = relative("f1" if domain.target is None else "rmse", figures["candidate"], figures[name])
        sums[f"worse/{name}"][:] = 1, change > worse_by[name]
    for name in (each for each in sums if each.startswith(_PAIRS) and y.size):
        kind, _, other = name.partition("/")
        one, two = ("candidate", other) if kind == _PAIRS[0] else (other, "champion")
        if {one, two} <= forecasts.keys():
            sums[name][:] = _on_grid(_difference(y, forecasts[one], forecasts[two], domain))
    return Contribution(KIND, int(y.size), sums)


def without_few(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return counts, shape (n, m), without those lines that are about fewer than `FEWEST_ROWS` rows."""
    return np.where(counts.sum(axis=1, keepdims=True) < FEWEST_ROWS, 0, counts)


def same_target(model: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two models' documents are of one target, and both of numbers or of the same classes."""
    try:
        one, two = (Domain.from_document(each["domain"]) for each in (model, other))
    except (ValueError, LookupError, TypeError):
        return False
    return one.target_name == two.target_name and one.classes == two.classes


def _read_domain(task: Task) -> Domain:
    try:
        domain = Domain.from_document(task.body["model"]["domain"])
    except (ValueError, LookupError, TypeError) as fault:
        raise TaskError(f"the model to be scored is malformed: {fault}"[:200]) from fault
    if len(domain.classes) > MAX_CLASSES:
        raise TaskError(f"{len(domain.classes)} classes; scores are summed for {MAX_CLASSES} at most")
    return domain


_domain = Remembered(_read_domain)
"""The domain of the model that a task asks about; read once for all answers."""


def _limits(task: Task) -> dict[str, float]:
    """Return from which change on a vehicle is worse off, by what the model is compared with."""
    try:
        return {name: float(limit) for name, limit in dict(task.body.get("worse_by") or {}).items() if name in OTHERS}
    except (TypeError, ValueError) as fault:
        raise TaskError("worse_by is malformed") from fault


def _formers(task: Task) -> Sequence[Mapping[str, Any]]:
    """Return the documents of earlier models that are compared."""
    formers = task.body.get("formers") or ()
    if not isinstance(formers, list | tuple) or len(formers) > len(FORMERS):
        raise TaskError(f"a model is compared with at most {len(FORMERS)} earlier ones")
    return formers


def _inputs(document: Any) -> int:
    try:
        return len(Domain.from_document(document["domain"]).features)
    except (ValueError, LookupError, TypeError) as fault:
        raise TaskError(f"the model in use is malformed: {fault}"[:200]) from fault


def _lines(task: Task, what: str) -> int:
    lines = task.body.get(what, 0)
    if type(lines) is not int or not 0 <= lines <= MOST_RULES:
        raise TaskError(f"errors are counted over at most {MOST_RULES} lines, asked for {lines!r}"[:200])
    return lines


def _check_errors(name: str, errors: NDArray[np.int64], rows: int) -> None:
    if errors.shape == (1,) and not 0 <= errors[0] <= rows * _MOST:
        raise ContributionError(f"{name}: errors beyond those of {rows} rows")
    if errors.shape != (1,) and ((errors < 0).any() or int(errors.sum()) != rows):
        raise ContributionError(f"{name}: counts of classes that are not those of {rows} rows")


def _check_difference(totals: Sequence[int], most: int) -> None:
    vehicles, change, variance = totals
    limit = vehicles * MOST_TOLD * _GRID + most
    if not (0 <= vehicles <= most and abs(change) <= limit and 0 <= variance <= MOST_TOLD * limit + most):
        raise ContributionError(
            f"{vehicles} vehicles, of {most} at most, cannot differ by sums of {change}, {variance}"
        )


def _check_drift(sums: NDArray[np.int64], most: int) -> None:
    vehicles, change, square, since, moved, of_moved = sums.T
    if (vehicles < 0).any() or (vehicles > most).any() or (moved < 0).any() or (moved > vehicles).any():
        raise ContributionError(f"drift is told by more than {most} vehicles, or moved on more than told")
    if (np.abs(np.stack([change, since, of_moved])) > MOST * vehicles).any() or (square > MOST**2 * vehicles).any():
        raise ContributionError(f"a vehicle's line moves by {MOST / GRID:g} at most")
    if (change**2 > square * vehicles).any():
        raise ContributionError("changes whose squares are less than their mean's")


def _check_counts(counts: NDArray[np.int64], rows: int) -> None:
    if not 0 <= counts.min() <= counts.max() <= rows or counts.sum() > rows:
        raise ContributionError(f"counts of errors that are not those of {rows} rows")


def _weighed(contributions: Sequence[Contribution]) -> NDArray[np.int64]:
    """Return the sum of all counts; of vehicles' own answers none weighs more than a few usual ones."""
    from glassfleet.discovery.guard import usual_rows  # noqa: PLC0415  vehicles import this module, and not that one

    usual = usual_rows(each.rows for each in contributions if each.vehicles is None)
    total = np.zeros_like(contributions[0].sums["counts"])
    for each in contributions:
        counts = each.sums["counts"]
        total += counts * usual // each.rows if 0 < usual < each.rows else counts
    return total


def _errors(y: NDArray[Any], forecast: NDArray[Any], domain: Domain) -> NDArray[np.int64]:
    if domain.target is not None:
        off = np.nan_to_num(np.abs(y - forecast) / width_of(domain), nan=WORST, posinf=WORST)
        return np.array([np.rint(np.minimum(off, WORST) ** 2 * _GRID).astype(np.int64).sum()])
    return confusion(y, forecast, domain.classes)


def _difference(y: NDArray[Any], forecast: NDArray[Any], other: NDArray[Any], domain: Domain) -> PairedDifference:
    def figure(truth: NDArray[Any], answers: NDArray[Any]) -> float:
        return _figure(_errors(truth, answers, domain), truth.size, domain)

    return difference("rmse" if domain.target is not None else "f1", figure, y, forecast, other)


def _on_grid(one: PairedDifference) -> tuple[int, int, int]:
    change, variance = max(-MOST_TOLD, min(MOST_TOLD, one.change)), min(one.variance, MOST_TOLD**2)
    return 1, round(change * _GRID), round(variance * _GRID)


def _figure(errors: NDArray[np.int64], rows: int, domain: Domain) -> float:
    if domain.target is not None:
        return math.sqrt(int(errors[0]) / (rows * _GRID)) * width_of(domain)
    return macro_f1(errors.diagonal(), errors.sum(axis=0), errors.sum(axis=1))
