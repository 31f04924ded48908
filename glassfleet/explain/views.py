"""The JSON form of rules and activations, and what the three functions share: rows by name, other words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from glassfleet.data.cells import MISSING, as_number, is_empty
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.explanation import Activation
from glassfleet.model.rules import Condition, Forecasts, Rule
from schemas.errors import DataError

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
