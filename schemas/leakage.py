"""A leakage report as it is handed on: counts alone, no row and no vehicle's name, so that others may see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_BYTES = 1 << 20
"""A longer file is none of these."""

Text = Annotated[str, Field(max_length=400)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Counts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class SavedLine(_Counts):
    """What one attack came to on one kind of sums.

    Attributes
    ----------
    protection : str
        How vehicles protected their rows.
    seen : str
        What the attacker sees: ``each vehicle``; in private runs the sums of ``each group``, ``who left`` (the
        difference of two of these), and ``all that was opened``, with one another; ``all vehicles together``.
    attack : str
    read : int
        Different rows read whole: every input and the target, to a thousandth of their ranges.
    parts : int
        Other rows of which some columns were read; one column by itself, to the last digits.
    rows : int
        Rows that there are.
    false : int
        Candidates that are nobody's row.
    chance : int
        Rows that the same candidates read of rows whose columns were shuffled: near by chance.
    near, guessed : float or None
        Of ``trees``: share of the values within 0.319 standard deviations, and of a guess by means.
    """

    protection: Text
    seen: Text
    attack: Text
    read: Count
    parts: Count
    rows: Count
    false: Count
    chance: Count
    near: Share | None = None
    guessed: Share | None = None


class SavedModel(_Counts):
    """What the model alone told.

    Attributes
    ----------
    protection : str
        How vehicles protected their rows.
    auc : float or None
        Membership: how well small errors tell the rows that were learned from; 0.5 is nothing. None: there are no other
        rows to tell them from.
    met, met_others : float
        Share of the rows learned from, and of the others, whose target the forecast is.
    rows, others : int
    """

    protection: Text
    auc: Share | None
    met: Share
    met_others: Share
    rows: Count
    others: Count


class SavedReport(_Counts):
    """What ``glassfleet lab audit leakage --json`` prints, less the names of vehicles.

    Attributes
    ----------
    run : str
        Its id; empty for a simulated fleet.
    scheme : str
    vehicles, rows : int
    left_out : mapping of str to str
        What was not measured, and why.
    lines : tuple of SavedLine
    models : tuple of SavedModel
    """

    run: Text
    scheme: Text
    vehicles: Count
    rows: Count
    left_out: Mapping[Text, Text] = Field(default_factory=dict)
    lines: tuple[SavedLine, ...]
    models: tuple[SavedModel, ...]


def place_of(run: str) -> str:
    """Return where the report of a run is, below the coordinator's state folder."""
    return f"leakage/{run}.json"


def read_report(text: bytes, run: str) -> SavedReport:
    """Return a report; raises ValueError unless it is one of `run`."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    report = SavedReport.model_validate_json(text)
    if report.run != run:
        raise ValueError(f"it is of the run {report.run!r}")
    return report
