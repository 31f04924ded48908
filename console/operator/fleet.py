"""``glassfleet fleet``: who is there, and who needs somebody, asked of the coordinator over HTTP."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from console.common import json_option, print_json
from console.operator.connection import coordinator_options
from schemas.text import printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient

NEED = {0: "nobody is known to need", 1: "1 needs"}


@click.command()
@coordinator_options
@click.option("--all", "is_all", is_flag=True, help="Those too that need nobody.")
@json_option
def fleet(api: CoordinatorClient, *, is_all: bool, as_json: bool) -> None:
    """List the vehicles that need somebody, with the cause first: as the dashboard does. --json has all vehicles.

    Times are UTC; of a vehicle that is down it is when it was last known to be up.

    \b
    Examples:
      glassfleet fleet
      glassfleet fleet --json | jq -r '.[] | select(.causes[].kind == "stands-out") | .agent'
    """
    vehicles = sorted(api.get("/api/agents"), key=_urgency)
    if as_json:
        print_json(vehicles)
        return
    shown = [each for each in vehicles if is_all or each["causes"]]
    status = Counter(each["status"] for each in vehicles)
    needs = sum(bool(each["causes"]) for each in vehicles)
    note = f"{status['up']} up, {status['down']} down; {NEED.get(needs, f'{needs} need')} attention"
    for each in shown:
        click.echo("  ".join(printable(cell) for cell in _cells(each)).rstrip())
    click.echo(note)


def _urgency(vehicle: dict[str, Any]) -> tuple[Any, ...]:
    causes = vehicle["causes"]
    return not causes, causes and causes[0]["rank"], -len(causes), -(vehicle["worse"] or 0.0), vehicle["agent"]


def _cells(vehicle: dict[str, Any]) -> tuple[str, ...]:
    since = datetime.fromtimestamp(vehicle["since"], tz=UTC)
    words = "; ".join(each["words"] for each in vehicle["causes"])
    return vehicle["agent"], vehicle["status"], f"{since:%Y-%m-%d %H:%M:%S}", words
