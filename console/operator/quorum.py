"""Whom a run rests on: said when it is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.operator.follow import asked
from console.tables import printable
from schemas.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from console.client import CoordinatorClient

_NAMED = 5


def quorum_lines(api: CoordinatorClient, spec: dict[str, Any], patience: float) -> list[str]:
    """Return how many of the known vehicles are up, and whether they could learn privately, in lines.

    Parameters
    ----------
    api : console.client.CoordinatorClient
    spec : dict
        What is to be started.
    patience : float
        Seconds, at least 0, to wait for the coordinator.

    Raises
    ------
    CoordinatorError
        It is not there.
    """
    vehicles = asked(api, "/api/agents", patience)
    if not vehicles:
        return []
    down = sorted(str(each["agent"]) for each in vehicles if each["status"] != "up")
    up = len(vehicles) - len(down)
    lacks = f" (down: {', '.join(down[:_NAMED])}{f' and {len(down) - _NAMED} more' if len(down) > _NAMED else ''})"
    known = f"{up} of {len(vehicles)} known vehicles {'is' if up == 1 else 'are'} up{lacks if down else ''}"
    lines = [printable(f"{known}: the model will rest on those that answer")]
    if could_be_private(spec, up):
        lines.append("this fleet could learn privately, nobody would see a single vehicle's numbers: --private")
    return lines


def could_be_private(spec: dict[str, Any], vehicles: int) -> bool:
    """Return whether a run that is not private could be, with so many vehicles up."""
    # What is needed to know is loaded when it is asked.
    from pydantic import ValidationError

    from coordinator.engine import Engine
    from coordinator.specification.run import RunSpec
    from glassfleet.private.groups import LEAST_FLOOR

    if spec.get("private") is not None or vehicles < LEAST_FLOOR:
        return False
    try:
        Engine().check_start(RunSpec.from_document({**spec, "private": {}}))
    except (ValidationError, UsageError, NotFoundError):
        return False  # if it cannot be meant as written, the coordinator says why
    return True
