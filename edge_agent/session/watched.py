"""What a vehicle remembers of models that it was asked about, on disk: figures of its test rows by night, no rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_agent.storage import explained, replacing
from glassfleet.evaluation.drift import DriftMemory

NAME = "drift.json"
"""In the agent's directory."""


class WatchStore:
    """The memory on disk. A file that cannot be read is begun anew: drift is then told from the next night on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> DriftMemory:
        """Return what is remembered; raises StorageError for a disk that cannot be read."""
        try:
            with explained("read", self._path):
                content = self._path.read_bytes() if self._path.exists() else b"{}"
            return DriftMemory.from_value(json.loads(content))
        except (ValueError, LookupError, TypeError, AttributeError):
            return DriftMemory()

    def take(self, news: Mapping[str, Any]) -> None:
        """Take over what is new, of `Memory.to_value`; raises StorageError."""
        memory = self.load()
        memory.take(DriftMemory.from_value(news))
        with replacing(self._path) as file:
            file.write(json.dumps(memory.to_value()).encode())
