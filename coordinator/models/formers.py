"""The best of the versions that were in use: what a new version is compared with, beside the present one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coordinator.journal.port import StoredModel
from coordinator.models.aliases import CURRENT, Aliases
from coordinator.models.registry import Registry
from glassfleet.evaluation.paired import MOST_FORMERS, from_sums
from glassfleet.evaluation.scores import same_target
from schemas.errors import DamagedError, DocumentError, NotFoundError, VerificationError
from schemas.record import ModelRecord

OPERATORS = ("promoted", "rolled-back")
"""Causes by which a version is current because an operator says so: no earlier one counts as better than that."""


def best_known(
    registry: Registry, aliases: Aliases, name: str, known: Mapping[int, float], *, private: bool
) -> list[tuple[StoredModel, ModelRecord]]:
    """Return what a new version of a name is compared with beside the present one, the best first.

    That are versions that were in use since an operator last decided which one is; at most `MOST_FORMERS`, and those
    alone that have the present one's target and can be read.

    Parameters
    ----------
    known : mapping of int to float
        How large the error of versions was when they were scored last, relative to one of them. Others come last.
    private : bool
        Whether a private run asks. Else none of such a run is returned: vehicles tell no scores of these.
    """
    current = aliases.current.get(name)
    present = None if current is None else _read(registry, name, current.version)
    if current is None or present is None:
        return []
    used: dict[int, None] = {}
    for each in registry.decisions(name):
        if each.kind == CURRENT:
            used = {} if each.body["cause"] in OPERATORS else used
            used.pop(each.body["version"], None)
            used[each.body["version"]] = None
    result: list[tuple[StoredModel, ModelRecord]] = []
    latest_first = list(used)[::-1]
    for version in sorted(latest_first, key=lambda version: known.get(version, math.inf)):
        found = None if version == current.version else _read(registry, name, version)
        if found is None or (found[1].is_private and not private) or len(result) == MOST_FORMERS:
            continue
        if same_target(found[1].document, present[1].document):
            result.append(found)
    return result


def scored_last(registry: Registry, name: str) -> dict[int, float]:
    """Return how large the errors of versions were in the last private run of a name, relative to its own version."""
    versions = {each.digest: each.version for each in registry.by_name().get(name, ())}
    newest = _read(registry, name, max(versions.values(), default=0)) if versions else None
    if newest is None:
        return {}
    beside = newest[1].parameters.get("scores", {}).get("beside", {})
    sums = {versions[digest]: each for digest, each in beside.items() if each[0] and digest in versions}
    known = {version: -from_sums(*each).change for version, each in sums.items()}
    return known and known | {newest[0].version: 0.0}


def _read(registry: Registry, name: str, version: int) -> tuple[StoredModel, ModelRecord] | None:
    try:
        model = registry.get(name, version)
        return model, ModelRecord.load(model.record)
    except (NotFoundError, DamagedError, DocumentError, VerificationError):
        return None
