"""Sliding windows over measurements, declared: which statistic of which metric makes which input.

The same object summarises whole recordings, for training files, and the last seconds of a live vehicle.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas import limits
from schemas.errors import UsageError
from schemas.validation import first_fault

FloatArray = NDArray[np.float64]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Statistic = Literal["mean", "min", "max", "last", "slope"]


class Summary(BaseModel):
    """One input of a window.

    Attributes
    ----------
    metric : str
    statistic : "mean", "min", "max", "last" or "slope"
        The slope is that of the least-squares line, per sample.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Name
    statistic: Statistic


class WindowPlan(BaseModel):
    """What is measured, and what becomes of the last samples of it.

    Attributes
    ----------
    samples : int
        In a window, 1 to 3600; at least 2 for slopes.
    inputs : dict of str to Summary
        Input -> what it is, in column order.
    drive, time : str
        Fields of a sample that tell its drive and its time; passed on as they are. Empty: there are none.
    step : float or None
        Time from a sample to the next, > 0; one that is off by more than half of it, or of another drive, starts the
        window anew: with a gap it would be another input than the one that was learned. Needs `time`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: int = Field(ge=1, le=3600)
    inputs: dict[Name, Summary] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    drive: str = Field(default="", max_length=200)
    time: str = Field(default="", max_length=200)
    step: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> WindowPlan:
        if self.samples < 2 and any(part.statistic == "slope" for part in self.inputs.values()):
            raise ValueError("a slope needs at least two samples")
        twice = sorted(set(self.keep) & set(self.inputs))
        if twice:
            raise ValueError(f"{twice[0]!r} is both kept and made")
        if self.step is not None and not self.time:
            raise ValueError("step is the time between two samples: name the time too")
        return self

    @property
    def keep(self) -> tuple[str, ...]:
        """Fields of a sample that are passed on as they are."""
        return tuple(name for name in (self.drive, self.time) if name)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that a sample must have, in the order of their first use."""
        return tuple(dict.fromkeys(part.metric for part in self.inputs.values()))

    def summarise(self, block: FloatArray) -> FloatArray:
        """Return the inputs of windows.

        Parameters
        ----------
        block : ndarray of float64, shape (..., samples, metrics)
            Oldest first, metrics in the order of `metrics`.

        Returns
        -------
        ndarray of float64, shape (..., inputs)
        """
        place = {name: index for index, name in enumerate(self.metrics)}
        centred = np.arange(self.samples) - (self.samples - 1) / 2.0
        weights = centred / ((centred**2).sum() or 1.0)
        # One order of additions, whatever the block's layout in memory: learning and serving agree to the last bit.
        mean = block.mean(axis=-2)

        def column(part: Summary) -> FloatArray:
            index = place[part.metric]
            match part.statistic:
                case "mean":
                    return np.asarray(mean[..., index])
                case "min":
                    return np.asarray(block[..., index].min(axis=-1))
                case "max":
                    return np.asarray(block[..., index].max(axis=-1))
                case "last":
                    return np.asarray(block[..., -1, index])
                case _:
                    return np.asarray((block[..., index] * weights).sum(axis=-1))

        return np.stack([column(part) for part in self.inputs.values()], axis=-1)

    @classmethod
    def from_document(cls, document: Any) -> WindowPlan:
        """Read a declaration; raises UsageError naming the first fault."""
        try:
            return cls.model_validate(document)
        except ValidationError as fault:
            raise UsageError(f"windows: {first_fault(fault)}") from fault


class SlidingWindow:
    """The last samples of one vehicle.

    Parameters
    ----------
    plan : WindowPlan

    Examples
    --------
    >>> plan = WindowPlan(samples=2, inputs={"speed_mean": Summary(metric="speed", statistic="mean")})
    >>> window = SlidingWindow(plan)
    >>> window.push({"speed": 2.0}), window.push({"speed": 4.0})
    (None, {'speed_mean': 3.0})
    """

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan
        self._samples: deque[list[float]] = deque(maxlen=plan.samples)
        self._last: dict[str, float] | None = None

    def push(self, sample: Mapping[str, Any]) -> dict[str, float] | None:
        """Take a sample; return the inputs, and what is kept, once the window is full.

        Raises
        ------
        KeyError
            A metric is missing.
        ValueError
            A value is no finite number. The sample is not taken.
        """
        plan = self._plan
        values = [_number(sample, name) for name in plan.metrics]
        kept = {name: _number(sample, name) for name in plan.keep}
        if self._last is not None and self._is_new(self._last, kept):
            self.clear()
        self._last = kept
        self._samples.append(values)
        if len(self._samples) < plan.samples:
            return None
        row = plan.summarise(np.array(self._samples))
        return {**kept, **dict(zip(plan.inputs, row.tolist(), strict=True))}

    def clear(self) -> None:
        """Forget what was measured: a new drive, or a gap."""
        self._samples.clear()
        self._last = None

    def _is_new(self, last: Mapping[str, float], now: Mapping[str, float]) -> bool:
        plan = self._plan
        if plan.drive and now[plan.drive] != last[plan.drive]:
            return True
        if not plan.time:
            return False
        gap = now[plan.time] - last[plan.time]
        if gap <= 0:
            raise ValueError(f"a sample of time {now[plan.time]:g} after one of {last[plan.time]:g}: not in order")
        return plan.step is not None and abs(gap - plan.step) > plan.step / 2


def _number(sample: Mapping[str, Any], name: str) -> float:
    value = float(sample[name])
    if not math.isfinite(value):
        raise ValueError(f"{name!r} is {value}, not a finite number")
    return value
