"""The engine as it is deployed: the catalogue's schemes, and domain discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from coordinator.engine import Engine
from coordinator.engine.learning import Learner
from glassfleet import catalogue
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.scheme import Server


def discover(
    features: Sequence[str], target: str, bounds: Mapping[str, tuple[float, float]], scheme: Learner
) -> tuple[Server, Any]:
    """Give discovery's server half, and its parameters for these columns; a classifier's classes are found too.

    Raises ValueError (pydantic's) when `bounds` name a column that the run does not have.
    """
    labels = getattr(scheme, "purpose", None) == {"classification"}
    parameters = DiscoveryParameters(features=tuple(features), target=target, bounds=dict(bounds), labels=labels)
    return cast("Server", DISCOVERY.server), parameters


def default_engine() -> Engine:
    """Return the engine over ``glassfleet.catalogue`` and ``glassfleet.discovery``."""
    return Engine(cast("Any", catalogue.load), discover)
