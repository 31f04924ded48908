"""Which other outcome is asked for."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from glassfleet.data.domain import Domain
from glassfleet.explain.views import View
from schemas.errors import UsageError

_EITHER = re.compile(r"(?:\+/?-|±)\s*")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


class Goal(View):
    """The outcome that a counterfactual is to reach: one of the first four for numbers, or a class.

    Attributes
    ----------
    above, below : float or None
        The forecast is to be at least, or at most, this; in the target's own unit.
    change : float or None
        The forecast is to move by at least this: up when positive, down when negative.
    either : float or None
        The forecast is to move by at least this, up or down; above zero.
    label : str or None
        The class to reach; None: any class but the present one.
    """

    above: float | None = None
    below: float | None = None
    change: float | None = None
    either: float | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Goal:
        if sum(value is not None for value in (*self.of_number, self.label)) > 1:
            raise ValueError("a goal is one of above, below, change, either and label")
        if self.change == 0.0:
            raise ValueError("a change must be above or below zero")
        if self.either is not None and not self.either > 0.0:
            raise ValueError("a change either way must be above zero")
        return self

    @property
    def of_number(self) -> tuple[float | None, ...]:
        """What is said of a number: `above`, `below`, `change`, `either`; all None for a class."""
        return (self.above, self.below, self.change, self.either)

    @classmethod
    def parse(cls, text: str, domain: Domain) -> Goal:
        """Read a goal as people type it: ``>3.5``, ``<2``, ``+0.5``, ``-10%`` (of the range), ``+-0.5``, or a class.

        ``+-`` may be typed ``+/-`` or ``±`` as well, and a minus as the sign of its own that Unicode has (U+2212).

        Raises
        ------
        UsageError
            It is none of these.
        """
        stripped = text.strip()
        if domain.target is None:
            if stripped in ("", "other"):
                return cls()
            if stripped not in domain.classes:
                raise UsageError(f"no class {stripped!r}; write one of: other, {', '.join(domain.classes[:20])}")
            return cls(label=stripped)
        typed = stripped.replace("\N{MINUS SIGN}", "-")
        if match := re.fullmatch(rf"([<>])=?\s*({_NUMBER})", typed):
            number = float(match[2])
            if math.isfinite(number):
                return cls(above=number) if match[1] == ">" else cls(below=number)
        both = _EITHER.match(typed)
        size = typed[both.end() :] if both else typed
        if (match := re.fullmatch(rf"({_NUMBER})\s*(%?)", size)) and (size[0] in "+-") != bool(both):
            number = float(match[1])
            if match[2]:
                number *= (domain.target.high - domain.target.low) / 100.0
            if math.isfinite(number) and number != 0.0:
                return cls(either=number) if both else cls(change=number)
        raise UsageError(
            f"goal {text!r}: write >3.5 or <3.5 (a threshold of {domain.target_name}), +0.5 or -0.5 (a change), "
            "+-0.5 (a change either way), or +10% (of its range)"
        )

    @classmethod
    def default(cls, domain: Domain, prediction: float | str) -> Goal:
        """Return the goal when none is named: any other class, or a tenth of the target's range away, up or down.

        A way that leads out of the range is left out: nobody asks for a share above 1.
        """
        target = domain.target
        if target is None or isinstance(prediction, str):
            return cls()
        step = 0.1 * (target.high - target.low) or 1.0
        up, down = prediction + step <= target.high, prediction - step >= target.low
        return cls(either=step) if up == down else cls(change=step if up else -step)

    def distance(self, before: float, after: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far forecasts, shape (n,), are from the goal (numbers only); 0 where they reach it."""
        if self.either is not None:
            edges = (before - self.either, before + self.either)
            return np.maximum(np.minimum(after - edges[0], edges[1] - after), 0.0)
        low, high = self._limit(before)
        return np.maximum(np.maximum(low - after, after - high), 0.0)

    def reached(self, before: float | str, after: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which forecasts, shape (n,), reach the goal."""
        if isinstance(before, str):
            return np.asarray(after != before if self.label is None else after == self.label, dtype=bool)
        return np.asarray(self.distance(before, after) == 0.0, dtype=bool)

    def words(self, domain: Domain, before: float | str) -> str:
        """Return the goal as text."""
        name = domain.target_name
        if isinstance(before, str):
            return f"{name} is {self.label}" if self.label is not None else f"{name} is not {before}"
        unit = f" {domain.target_unit}" * bool(domain.target_unit)
        if self.either is not None:
            return f"{name} is at least {before + self.either:.6g}{unit} or at most {before - self.either:.6g}{unit}"
        low, high = self._limit(before)
        return f"{name} is at least {low:.6g}{unit}" if math.isfinite(low) else f"{name} is at most {high:.6g}{unit}"

    def _limit(self, before: float) -> tuple[float, float]:
        """Return the lowest and highest forecast that reaches the goal."""
        if self.change is not None:
            edge = before + self.change
            return (edge, math.inf) if self.change > 0 else (-math.inf, edge)
        return (-math.inf if self.above is None else self.above, math.inf if self.below is None else self.below)
