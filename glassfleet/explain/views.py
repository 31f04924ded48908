"""The JSON form of rules and activations, and what is shared: rows by name, other words, the outcome asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from glassfleet.data.cells import MISSING, as_number, is_empty
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.explanation import Activation
from glassfleet.model.rules import Condition, Forecasts, Rule
from schemas.errors import DataError, UsageError

FORMAT: Final = 1
"""Version of the JSON forms; it grows when a field changes its meaning or goes. New fields do not change it."""

Row = Mapping[str, Any] | Sequence[float] | NDArray[np.float64]


class View(BaseModel):
    """A frozen part of an explanation with a JSON form."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON form: plain dicts, lists, texts and numbers."""
        return self.model_dump(mode="json")

    def _repr_html_(self) -> str:
        """Return what ``print`` shows, for a notebook."""
        return f'<pre style="white-space: pre-wrap">{escape(str(self))}</pre>'


class RuleView(View):
    """A rule in words and numbers: see :class:`~glassfleet.model.rules.Rule`; `text` is the whole rule.

    `weight`, `support` and `confidence` are None where there are none to tell: structures, and what a network says.
    `fitness` is that of a structure, None for rules. `measures` says the others and `forecast` in words. `brief` is the
    rule by the strongest terms of its consequent, and each score by itself.
    """

    index: int
    text: str
    brief: tuple[str, ...] = Field(default=(), validation_alias=AliasChoices("brief", "summary"))
    conditions: tuple[Condition, ...]
    output: str
    weight: float | None
    support: float | None
    confidence: float | None
    otherwise: bool = False
    fitness: float | None = None
    forecast: Forecasts | None = None
    error: float | None = None
    measures: str = ""

    @classmethod
    def of(cls, rule: Rule) -> RuleView:
        """Return the view of a rule."""
        view = cls.model_validate(rule, from_attributes=True)
        return view if rule.measured else view.model_copy(update=dict.fromkeys(("weight", "support", "confidence")))


class ActivationView(View):
    """A rule that fired: see :class:`~glassfleet.model.explanation.Activation`."""

    rule: RuleView
    strength: float
    normalised_strength: float | None
    memberships: tuple[float, ...]

    @classmethod
    def of(cls, item: Activation) -> ActivationView:
        """Return the view of an activation."""
        return cls.model_validate({**vars(item), "rule": RuleView.of(item.rule)})


def as_row(domain: Domain, row: Row) -> NDArray[np.float64]:
    """Return a row's numbers in the domain's order, shape (F,); texts of columns of categories become their numbers.

    Parameters
    ----------
    domain : Domain
    row : mapping of column to value, or sequence of numbers in the order of ``domain.names``
        A mapping may have more columns.

    Raises
    ------
    DataError
        An input is missing, is not a finite number, or is no category of its column. Where the model knows empty
        cells, None, NaN and "" are such.
    """
    if not isinstance(row, Mapping):
        values = np.asarray(row, dtype=object).ravel().tolist()
        if len(values) != len(domain.features):
            raise DataError(f"the row has {len(values)} values, the model takes {len(domain.features)}")
        row = dict(zip(domain.names, values, strict=True))
    missing = [name for name in domain.names if name not in row]
    if missing:
        raise DataError(f"the row has no {missing[0]!r}; the model needs: {', '.join(domain.names)}")
    return np.array([_number(variable, row[variable.name]) for variable in domain.features])


def _number(variable: Variable, value: Any) -> float:
    if value not in variable.categories and variable.may_be_empty and is_empty(value):
        if not variable.categories:
            return np.nan
        value = MISSING
    if isinstance(value, str) and variable.categories:
        if value not in variable.categories:
            known = ", ".join(variable.categories[:10])
            raise DataError(f"{variable.name} has no category {value!r}; known: {known}")
        return float(variable.categories.index(value))
    try:
        number = as_number(value)
    except (TypeError, ValueError):
        raise DataError(f"{variable.name} must be a number, got {value!r}") from None
    if not np.isfinite(number):
        raise DataError(f"{variable.name} must be finite, got {value!r}")
    return number


# --- which other outcome is asked for ---------------------------------------------------------------------------------


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
