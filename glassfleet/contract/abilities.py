"""What a scheme says of itself in its optional members, and what holds where it says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.contract.scheme import Cost, Scheme
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import INPUT_QUANTILES
from glassfleet.model.protocol import Model
from schemas.errors import UsageError


def takes_categories(scheme: object) -> bool:
    """Return whether a scheme takes columns of categories; others take numbers alone."""
    return getattr(scheme, "categorical", False) is True


def takes_missing(scheme: object) -> bool:
    """Return whether a scheme takes rows with empty cells."""
    return getattr(scheme, "missing_cells", False) is True


def takes_excess(scheme: object) -> bool:
    """Return whether a scheme's lines go on beyond the limits of inputs, see :class:`glassfleet.data.domain.Excess`."""
    return getattr(scheme, "excess", False) is True


def promises_central(scheme: Scheme, parameters: Any) -> bool:
    """Return whether `scheme` promises that fleet and central model are equal with `parameters` (promise 1).

    The promise is of cohort participation; the central model is that of the rows that vehicles use: their own, or
    condensed ones. Nothing is promised where `parameters` protect rows otherwise (frt's own nullification, as in its
    paper).
    """
    exact = scheme.exact(parameters)
    if not scheme.equals_central or (parameters != exact and getattr(parameters, "group_rows", 1) == 1):
        return False
    hook = getattr(scheme, "equals_central_with", None)
    return hook is None or bool(hook(exact))


def is_label_scheme(scheme: object) -> bool:
    """Return whether a scheme's target is a class, always."""
    return getattr(scheme, "purpose", None) == {"classification"}


def input_quantiles_of(scheme: object, *, labels: bool = False) -> tuple[float, float]:
    """Return the quantiles, in [0, 1], of an input that become its limits; for a number `scheme` may have its own."""
    return INPUT_QUANTILES if labels else getattr(scheme, "input_quantiles", INPUT_QUANTILES)


def most_told(scheme: object, task: Task) -> int:
    """Return at which number the counts of an answer to a question of :data:`SUPPORT` end; 0: sums have no such end."""
    hook = getattr(scheme, "most_told", None)
    return 0 if hook is None or task.kind != SUPPORT else int(hook(task))


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
    hook = getattr(scheme, "private", None)
    if hook is None:
        raise UsageError(f"{scheme.name} has no private runs: its answers are not sums alone")
    chosen = hook(parameters)
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


def cost_of(scheme: Scheme, task: Task, rows: int) -> Cost | None:
    """Return what an answer to `task` may take; None: the scheme does not say. Raises :class:`TaskError`."""
    hook = getattr(scheme, "cost", None)
    if hook is None:
        return None
    cost: Cost = hook(task, rows)
    return cost


def too_large(scheme: object, parameters: Any, inputs: int, classes: int, room: int) -> str:
    """Return a warning where an answer of a run may have more than `room` bytes; empty where not, or nobody knows."""
    hook = getattr(scheme, "most_bytes", None)
    most, way_out = (0, "") if hook is None else hook(parameters, inputs, classes)
    if most <= room:
        return ""
    sizes = f"{most / 1e6:,.0f} MB where {room / 1e6:,.0f} MB can be sent"
    return f"with {inputs} inputs an answer may have up to {sizes}: ask for {way_out}"


def regressions_of(scheme: object, answers: Sequence[tuple[Task, Contribution]]) -> NDArray[np.float64] | None:
    """Return what one vehicle's answers tell of a model's regressions; None: these are none, or the scheme has none."""
    hook = getattr(scheme, "regressions", None)
    moments: NDArray[np.float64] | None = None if hook is None else hook(answers)
    return moments


def is_personal(scheme: object) -> bool:
    """Return whether vehicles make models of their own of what is published."""
    return getattr(scheme, "personalise", None) is not None


def personal_model(scheme: Scheme, model: Model, data: Dataset) -> Model:
    """Return what the vehicle with the rows `data` predicts with: the model, or what it makes of it.

    Raises
    ------
    TaskError
        The rows are not those of the model's domain.
    """
    hook = getattr(scheme, "personalise", None)
    if hook is None:
        return model
    personal: Model = hook(model, data)
    return personal
