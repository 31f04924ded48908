"""``glassfleet agent ledger``: what a vehicle has told, for its owner. Reads the agent's folder, and nothing else."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from console.common import fleet_option, json_option, print_json, state_dir_option
from console.tables import printable
from schemas.errors import NotFoundError
from schemas.topics import check_id


@click.command()
@click.option("--id", "agent", metavar="ID", help="The vehicle. Default: the only one with a ledger here.")
@fleet_option
@state_dir_option
@json_option
def ledger(agent: str | None, fleet: str, state_dir: Path, *, as_json: bool) -> None:
    """List the runs that this vehicle has answered: when, with whom, how protected, how many numbers left it.

    And what learning took of it, month by month.

    In a private run the coordinator and the broker saw sums over the vehicles named; in a plain run they read this
    vehicle's own numbers. The agent may be running.

    \b
    Examples:
      glassfleet agent ledger --id vehicle-07
    """
    from edge_agent.session.accounts import SPENT, TOLD, spent, told

    check_id("fleet", fleet)
    folder = state_dir / "agents" / fleet
    if agent is None:
        agents = sorted(path.parent.name for path in folder.glob(f"*/{TOLD}"))
        if len(agents) != 1:
            raise NotFoundError(f"{len(agents)} vehicles have a ledger in {folder}: name one with --id")
        agent = agents[0]
    check_id("agent", agent)
    entries, months = told(folder / agent / TOLD), spent(folder / agent / SPENT)
    if as_json:
        print_json({"agent": agent, "runs": entries, "months": months})
        return
    if not entries:
        click.echo(f"{agent} has told nothing")
    for each in entries:
        when = dt.datetime.fromtimestamp(each["began"], dt.UTC).isoformat(sep=" ", timespec="seconds")
        protection, members = each["protection"], each["members"]
        how = "plain: coordinator and broker read this vehicle's numbers"
        if protection:
            limits = f"never fewer than {protection['floor']}, company {protection['company']}"
            how = f"private: summed over {len(members)} vehicles ({limits})"
            if not members:
                how = "private: announced itself, and told no numbers"
        line = f"{when}  {each['run']}  {each['scheme']}  {each['answers']} answers, {each['numbers']} numbers  {how}"
        click.echo(printable(line))
        if members:
            click.echo(printable(f"  with {', '.join(name for name in members if name != agent)}"))
    for month in months:
        click.echo("{month}  {megabytes:.3f} MB received and sent, {seconds:.1f} s computed".format(**month))
