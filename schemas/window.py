"""Which rows of a vehicle count in a run: its last ones. Part of what is asked, of every request, and of the record."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DAY = 86_400.0


class Window(BaseModel):
    """The last rows of each vehicle, or those of the last days; one of the two.

    Attributes
    ----------
    rows : int or None
        At most so many of its training rows count, the last in their order.
    days : float or None
        Those count whose time is after `until` less so many days, and not after `until`.
    time : str
        With `days`: the column that tells when a row was, in seconds since 1970. Empty: each vehicle's only column that
        is called so; a window of ``data collect`` has ``at``.
    until : float or None
        Seconds since 1970. The coordinator sets it when a run of `days` starts; what is given is replaced.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rows: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    days: Annotated[float, Field(gt=0, le=36_525)] | None = None
    time: Annotated[str, Field(max_length=200)] = ""
    until: Annotated[float, Field(ge=0, lt=1e12)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.rows is None) == (self.days is None):
            raise ValueError("give rows or days, one of the two")
        if self.rows is not None and (self.time or self.until is not None):
            raise ValueError("time and until go with days: the last rows are those at the end of the table")
        return self

    @property
    def since(self) -> float:
        """With `days`, once `until` is set: rows after this time count; seconds since 1970."""
        assert self.days is not None
        assert self.until is not None
        return self.until - self.days * DAY

    def started(self, now: float) -> Window:
        """Return the window of a run that starts now."""
        return self if self.days is None else self.model_copy(update={"until": float(int(now))})
