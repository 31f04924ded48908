"""What moved since a version was learned: written down with each later version, and read from the newest."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from coordinator.models.registry import Registry
from schemas.errors import DamagedError, DocumentError, NotFoundError, VerificationError
from schemas.record import ModelRecord

LOOKS: Final = 10
"""Later versions that are looked at: of an elastic run none tells of a drift."""


def moved_since(registry: Registry, record: ModelRecord) -> list[str]:
    """Return a sentence for each rule and input of a version that has moved; from any thread."""
    later = [each.version for each in registry.heads(record.name) if each.version > record.version]
    for version in later[: -LOOKS - 1 : -1]:
        with suppress(NotFoundError, DamagedError, DocumentError, VerificationError):
            drift = ModelRecord.load(registry.get(record.name, version).record).parameters.get("drift", {})
            if drift.get("of") == record.digest:
                return list(drift["moved"])
    return []
