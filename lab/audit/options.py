"""What ``glassfleet lab audit leakage`` is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class LeakageOptions:
    """Of ``glassfleet lab audit leakage``."""

    run_id: str | None
    data: Path
    scheme: str | None
    pairs: tuple[str, ...]
    target: str | None
    vehicles: int | None
    journal: str | None
    fleet: str
    state_dir: Path
    shadows: int | None
    save: bool
    as_json: bool
