"""Ready plans of inputs, by name: ``qoe``, the case study's."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

from glassfleet.data.timeplan import TimePlan

QOE: Final = "qoe"


def time_plan(name: str) -> TimePlan:
    """Return the rows that a preset makes of samples."""
    return TimePlan.from_document(_read(f"{name}.time.json"))


def _read(file: str) -> object:
    return json.loads(resources.files(__name__).joinpath(file).read_text("utf-8"))
