"""Whom a run would rest on: said before it starts, and asked about when vehicles that are known are down."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from console.lazy import is_quiet
from console.run.follow import asked
from console.tables import printable
from schemas.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from console.client import Coordinator

_NAMED = 5


def tell_quorum(api: Coordinator, spec: dict[str, Any], patience: float, *, is_sure: bool) -> None:
    """Say on stderr how many of the known vehicles are up; on a terminal, ask whether to start without the others.

    Parameters
    ----------
    api : console.client.Coordinator
    spec : dict
        What is to be started. A run that waits for as many vehicles as are known needs no question.
    patience : float
        Seconds, at least 0, to wait for the coordinator.
    is_sure : bool
        Do not ask.

    Raises
    ------
    CoordinatorError
        It is not there.
    click.Abort
        The answer was no.
    """
    vehicles = asked(api, "/api/agents", patience)
    down = sorted(str(each["agent"]) for each in vehicles if each["status"] != "up")
    waits = spec.get("policy", {}).get("gather_agents", 1) >= len(vehicles)
    asks = bool(down) and not waits and not is_sure and sys.stdin.isatty() and sys.stderr.isatty()
    if not vehicles or (is_quiet() and not asks):
        return
    up = len(vehicles) - len(down)
    lacks = f" (down: {', '.join(down[:_NAMED])}{f' and {len(down) - _NAMED} more' if len(down) > _NAMED else ''})"
    click.echo(
        printable(f"{up} of {len(vehicles)} known vehicles {'is' if up == 1 else 'are'} up{lacks if down else ''}: ")
        + "the model will rest on those that answer",
        err=True,
    )
    if not is_quiet() and could_be_private(spec, up):
        click.echo("this fleet could learn privately, nobody would see a single vehicle's numbers: --private", err=True)
    if asks:
        click.confirm("Start the run without the others?", abort=True, err=True)


def could_be_private(spec: dict[str, Any], vehicles: int) -> bool:
    """Return whether a run that is not private could be, with so many vehicles up."""
    # What is needed to know is loaded when it is asked.
    from pydantic import ValidationError

    from coordinator.runs.defaults import default_engine
    from coordinator.specification.run import RunSpec
    from glassfleet.private.groups import LEAST_FLOOR

    if "private" in spec or vehicles < LEAST_FLOOR:
        return False
    try:
        default_engine().check_start(RunSpec.from_document({**spec, "private": {}}))
    except (ValidationError, UsageError, NotFoundError):
        return False  # if it cannot be meant as written, the coordinator says why
    return True
