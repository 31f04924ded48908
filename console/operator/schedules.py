"""``glassfleet run schedule``: runs that are started again and again, while nobody sits at a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from console.common import json_option, options_as, print_json, reason_option, table_lines, tell
from console.operator.connection import coordinator_options
from console.operator.specification import OPENS_ROWS, RunOptions, opens_rows, run_options, spec_of
from schemas.text import printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient


@click.group()
def schedule() -> None:
    """Start a run every night, or whenever it is due; the coordinator keeps the schedule and follows it.

    \b
    Examples:
      glassfleet run schedule add nightly --at "0 2 * * *" --zone Europe/Berlin --model qoe
    """


@dataclass(frozen=True, kw_only=True)
class AddOptions(RunOptions):
    """Of ``glassfleet run schedule add``."""

    schedule_name: str
    at: str
    zone: str
    quiet_hours: str
    vehicles: int
    if_running: str


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@click.option(
    "--at", required=True, metavar="CRON",
    help="Minute, hour, day of the month, month, day of the week, as cron has them: '0 2 * * *' is every night at two.",
)  # fmt: skip
@click.option("--zone", default="UTC", show_default=True, metavar="ZONE", help="Whose clock, such as Europe/Berlin.")
@click.option(
    "--quiet-hours", default="", metavar="FROM-TO",
    help="Start nothing between these times, such as 06:00-22:00; what is due then waits for their end.",
)  # fmt: skip
@click.option(
    "--vehicles", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Fewest vehicles that must be up; until then the start waits.",
)  # fmt: skip
@click.option(
    "--if-running", type=click.Choice(["skip", "wait", "cancel"]), default="skip", show_default=True,
    help="While a run of the same model goes on: skip this time, start when it has ended, or end it.",
)  # fmt: skip
@run_options
@json_option
@options_as(AddOptions)
def add(options: AddOptions) -> None:
    """Add a schedule; the other options say what is learned, as those of `run start`.

    Missed times are made up for once. Where clocks go forward over a time, it is the moment after the gap.

    \b
    Examples:
      glassfleet run schedule add nightly --at "0 2 * * *" --zone Europe/Berlin --model qoe --last 7d
      glassfleet run schedule add sundays --at "30 3 * * 7" --private --vehicles 8 --quiet-hours 06:00-22:00
    """
    spec = spec_of(options)
    wanted: dict[str, Any] = {
        "name": options.schedule_name,
        "at": options.at,
        "zone": options.zone,
        "quiet": options.quiet_hours,
    }
    wanted |= {"vehicles": options.vehicles, "if_running": options.if_running, "spec": spec}
    added = options.api.post("/api/schedules", wanted)
    if opens_rows(spec):
        click.echo(OPENS_ROWS, err=True)
    tell(_line(added), as_json=options.as_json, **added)


@schedule.command("list")
@coordinator_options
@json_option
def list_schedules(api: CoordinatorClient, *, as_json: bool) -> None:
    """List all schedules, each with its next time and what the last night became.

    \b
    Examples:
      glassfleet run schedule list --json
    """
    schedules = api.get("/api/schedules")
    if as_json:
        print_json(schedules)
        return
    if not schedules:
        click.echo("No schedules yet. Add one: glassfleet run schedule add NAME --at '0 2 * * *'")
    for each in schedules:
        click.echo(_line(each))


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@coordinator_options
@json_option
def show(schedule_name: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Show one schedule: when, what it waits for, and what the last nights became.

    \b
    Examples:
      glassfleet run schedule show nightly
    """
    known = api.get(f"/api/schedules/{schedule_name}")
    if as_json:
        print_json(known)
        return
    click.echo(_line(known))
    quiet = f", not in {known['quiet']}" if known["quiet"] else ""
    click.echo(f"  {known['words']}{quiet}; from {known['vehicles']} vehicles on; if one runs: {known['if_running']}")
    if not known["nights"]:
        click.echo("  no night yet")
        return
    rows = [("time", "nights", "became", "run", "why")]
    rows += [
        (_time(each["at"]), str(each["count"]), each["outcome"], each["run"] or "-", printable(each["reason"]))
        for each in known["nights"]
    ]
    for line in table_lines(rows, left=(0, 2, 3, 4)):
        click.echo(f"  {line}")


@schedule.command("next")
@click.argument("schedule_name", metavar="NAME")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N", help="So many.")
@coordinator_options
@json_option
def following(schedule_name: str, count: int, api: CoordinatorClient, *, as_json: bool) -> None:
    """Print the next times of a schedule, by the clock of its zone.

    \b
    Examples:
      glassfleet run schedule next nightly --count 10
    """
    known = api.get(f"/api/schedules/{schedule_name}?following={count}")
    if as_json:
        print_json(known["next"])
        return
    if known["state"] == "paused":
        click.echo(f"{schedule_name} is paused. Go on: glassfleet run schedule resume {schedule_name}")
    for each in known["next"]:
        click.echo(_time(each))


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@reason_option()
@coordinator_options
@json_option
def pause(schedule_name: str, reason: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Start nothing until it is resumed; a run that goes on is not touched.

    \b
    Examples:
      glassfleet run schedule pause nightly --reason "the fleet is in the workshop"
    """
    _act(api, schedule_name, "pause", {"reason": reason}, as_json=as_json)


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@coordinator_options
@json_option
def resume(schedule_name: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Let a paused schedule go on with its next time.

    \b
    Examples:
      glassfleet run schedule resume nightly
    """
    _act(api, schedule_name, "resume", None, as_json=as_json)


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@coordinator_options
@json_option
def remove(schedule_name: str, api: CoordinatorClient, *, as_json: bool) -> None:
    """Remove a schedule; its runs and models stay, and a run that goes on does so.

    \b
    Examples:
      glassfleet run schedule remove nightly
    """
    tell(f"{schedule_name} removed", as_json=as_json, **api.post(f"/api/schedules/{schedule_name}/remove"))


def _act(api: CoordinatorClient, name: str, action: str, body: dict[str, Any] | None, *, as_json: bool) -> None:
    result = api.post(f"/api/schedules/{name}/{action}", body)
    tell(_line(result), as_json=as_json, **result)


def _line(known: dict[str, Any]) -> str:
    """Return one schedule in one line."""
    state, reason = known["state"], known["reason"]
    stands = f"{state} ({reason})" if reason else state
    following = f"  next {_time(known['next'][0])}" if known["next"] else ""
    last = known["nights"][0] if known["nights"] else None
    ended = f"  last {_time(last['at'])} {last['outcome']} {last['run'] or last['reason']}" if last else ""
    return printable(f"{known['name']}  model {known['model']}  {stands}{following}{ended}".rstrip())


def _time(text: str) -> str:
    """Return a time as people read it: ``2026-03-29 03:00 +02:00``."""
    return f"{text[:16] if text[17:19] == '00' else text[:19]} {text[19:]}".replace("T", " ")
