"""The engine as it is deployed: the catalogue's schemes, and domain discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from coordinator.engine import Engine
from coordinator.engine.learning import Learner
from coordinator.specification.run import Bounds, limits_of
from glassfleet import catalogue
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.scheme import Server, input_quantiles_of, is_label_scheme


def discover(
    features: Sequence[str], target: str, bounds: Mapping[str, tuple[float, float] | Bounds], scheme: Learner
) -> tuple[Server, Any]:
    """Give discovery's server half, and its parameters for these columns; a classifier's classes are found too.

    Raises ValueError (pydantic's) when `bounds` name a column that the run does not have.
    """
    purposes = getattr(scheme, "purpose", None)
    words = {column: known for column, known in bounds.items() if isinstance(known, Bounds)}
    parameters = DiscoveryParameters(
        features=tuple(features),
        target=target,
        bounds=limits_of(bounds),
        input_quantiles=input_quantiles_of(scheme),
        units={column: known.unit for column, known in words.items() if known.unit},
        terms={column: known.terms for column, known in words.items() if known.terms},
        labels=is_label_scheme(scheme),
        either=purposes == {"classification", "regression"},
        categories=getattr(scheme, "categorical", False) is True,
        missing=getattr(scheme, "missing_cells", False) is True,
        guarded=False,  # the engine says whether: runs that a former version began go on as they were
    )
    return cast("Server", DISCOVERY.server), parameters


def default_engine() -> Engine:
    """Return the engine over ``glassfleet.catalogue`` and ``glassfleet.discovery``."""
    return Engine(cast("Any", catalogue.load), discover)
