"""Ready plans of inputs, by name: ``qoe``, the case study's."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

from glassfleet.data.lags import Memory
from glassfleet.data.windows import WindowPlan

QOE: Final = "qoe"


def memory(name: str) -> Memory:
    """Return the lagged features of a preset."""
    return Memory.from_document(_read(f"{name}.memory.json"))


def window(name: str) -> WindowPlan:
    """Return the inputs that a preset makes of the last samples."""
    return WindowPlan.from_document(_read(f"{name}.window.json"))


def _read(file: str) -> object:
    return json.loads(resources.files(__name__).joinpath(file).read_text("utf-8"))
