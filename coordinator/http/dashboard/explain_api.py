"""Explanations over HTTP: why a forecast is as it is, what would change it, and a model on one page, as JSON.

Anybody who may read may ask; nothing is changed or kept by it, the row neither. The JSON forms are those of
``glassfleet.explain`` (docs/reference/exports.md).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from coordinator.http.access import QUESTION, READER
from coordinator.http.dashboard.library import Library
from coordinator.http.errors import Whole, checked_row
from glassfleet.data.domain import Domain
from glassfleet.explain import Goal, as_row, counterfactual, explain_row, summary
from glassfleet.model.baseline import GIVEN, ReferenceRow
from schemas.errors import UsageError
from schemas.limits import MAX_FEATURES

SUMMARY_RULES = 10_000
"""Most rules that a summary lists: some MB of JSON."""


def _bounded(row: Any) -> Any:
    if not isinstance(row, dict | list):
        raise ValueError('write values by column, {"speed": 12.5}, or a list of them in the order of the inputs')  # noqa: TRY004 - pydantic takes no other
    most = MAX_FEATURES + 100 if isinstance(row, dict) else MAX_FEATURES
    if len(row) > most:
        raise ValueError(f"at most {most} values, got {len(row)}")
    return row


Row = Annotated[dict[str, Any] | list[Any], BeforeValidator(_bounded)]


class Question(BaseModel):
    """A row to explain.

    Attributes
    ----------
    row : dict or list
        Values by column (a number, or a category's text), or numbers in the order of the model's inputs.
    version : int or None
        Of the model; None: the one in use.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    row: Row
    version: Annotated[Whole, Field(ge=1)] | None = None


class Compared(Question):
    """A row to explain, and what it is compared with.

    Attributes
    ----------
    reference : dict, list or None
        Another row; None: the typical row of the model's record.
    """

    reference: Annotated[
        dict[str, Any] | list[Any] | None, BeforeValidator(lambda row: None if row is None else _bounded(row))
    ] = None


class Otherwise(Question):
    """A row, and the outcome that it shall have.

    Attributes
    ----------
    goal : str
        ``>3.5``, ``<2``, ``+0.5``, ``-10%`` (of the target's range), a class, or ``other`` (class). Empty: any other
        class, or a tenth of the target's range, up or down.
    keep : list of str
        Inputs that cannot be changed.
    only : list of str or None
        The inputs that can be changed, less those of `keep`; None: all of them.
    max_inputs : int or None
        Most inputs that may change.
    """

    goal: Annotated[str, Field(max_length=200)] = ""
    keep: Annotated[list[str], Field(max_length=MAX_FEATURES)] = []
    only: Annotated[list[str], Field(max_length=MAX_FEATURES)] | None = None
    max_inputs: Annotated[Whole, Field(ge=1)] | None = None


def goal_of(text: str, domain: Domain) -> Goal | None:
    """Return the outcome that is asked for, None where the text is empty; raises UsageError when it cannot be meant."""
    return Goal.parse(text, domain) if text.strip() else None


def add_explanations(app: FastAPI, library: Library) -> None:
    """Give an application the JSON addresses."""

    @app.get("/api/models/{name}/summary", dependencies=[READER])
    def _summary(name: str, version: int | None = None, top: int | None = None) -> dict[str, Any]:
        if top is not None and not 0 <= top <= SUMMARY_RULES:
            raise UsageError(f"top must be from 0 to {SUMMARY_RULES}, got {top}")
        return summary(library.get(name, version).model, top=top).to_dict()

    @app.post("/api/models/{name}/explain", dependencies=[QUESTION])
    def _explain(name: str, question: Compared) -> dict[str, Any]:
        loaded = library.get(name, question.version)
        model, reference, asked = loaded.model, loaded.reference, question.reference
        if asked is not None:
            reference = ReferenceRow(as_row(model.domain, checked_row(asked, model.domain, "reference")), GIVEN)
        return explain_row(model, checked_row(question.row, model.domain), reference).to_dict()

    @app.post("/api/models/{name}/counterfactual", dependencies=[QUESTION])
    def _counterfactual(name: str, question: Otherwise) -> dict[str, Any]:
        model = library.get(name, question.version).model
        row, goal = checked_row(question.row, model.domain), goal_of(question.goal, model.domain)
        other = counterfactual(model, row, goal, keep=question.keep, only=question.only, max_inputs=question.max_inputs)
        return other.to_dict()
