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
    """What one attack came to: :class:`lab.audit.report.AttackLine` without owners."""

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
    """What the model alone told: :class:`lab.audit.model.ModelLeak`, and how rows were protected."""

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
