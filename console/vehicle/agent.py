"""``glassfleet agent``: the process on a vehicle, its certificate, what it has told. Imports core packages only."""

from __future__ import annotations

import datetime as dt
import shlex
from pathlib import Path
from typing import Any

import click

from console.common import fleet_option, json_option, print_json, state_dir_option, tell
from console.progress import progress
from console.settings import Given, settings_options
from edge_agent.config import AgentConfig
from schemas.errors import DataError, NotFoundError, UsageError
from schemas.text import printable
from schemas.topics import check_id


@click.group(invoke_without_command=True)
@settings_options(AgentConfig)
@click.pass_context
def agent(context: click.Context, given: Given[AgentConfig]) -> None:
    """Start the agent of one vehicle: it answers rounds, and its rows never leave it.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it goes on where it was. With a broker at mqtts:// and
    no --identity, it uses the one that `glassfleet agent enrol` stored.

    \b
    Examples:
      glassfleet agent --id vehicle-07 --broker mqtt://127.0.0.1 --data vehicle-07.csv.gz
    """
    if context.invoked_subcommand is not None:
        return
    config = given.load()
    enrolled = config.directory / "identity"
    if config.identity is None and config.broker.startswith("mqtts:") and enrolled.is_dir():
        config = config.model_copy(update={"identity": enrolled})
    from edge_agent.runner import run_agent  # a wrong flag is told without loading numpy first

    try:
        run_agent(config)
    except DataError as fault:
        plan = f"glassfleet data import {shlex.quote(str(config.data))} --plan plan.toml --out drive.parquet"
        advice = f". Look at it, and decide, with: {plan}" if Path(config.data).is_file() else ""
        raise DataError(f"{fault}{advice}") from fault


def _options(function: Any) -> Any:
    function = click.option(
        "--identity", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
        help="Identity folder. Default: in STATE_DIR, where the agent finds it.",
    )(function)  # fmt: skip
    function = fleet_option(state_dir_option(function))
    return click.option("--id", "name", required=True, metavar="ID", help="The vehicle's id.")(function)


def _authority(function: Any, *, required: bool) -> Any:
    return click.option(
        "--authority", "--coordinator", "authority", envvar="GLASSFLEET_AUTHORITY", metavar="URL", required=required,
        help="https://host[:port] of `glassfleet ca serve`.",
    )(function)  # fmt: skip


def _folder(identity: Path | None, state_dir: Path, fleet: str, name: str) -> Path:
    check_id("agent", name)
    check_id("fleet", fleet)
    return identity or state_dir / "agents" / fleet / name / "identity"


@agent.command()
@_options
@click.option(
    "--token", envvar="GLASSFLEET_ENROL_TOKEN", metavar="TOKEN",
    help="What `glassfleet ca token` printed. In the environment it is not seen by other users.",
)  # fmt: skip
@lambda function: _authority(function, required=False)
@json_option
def enrol(  # noqa: PLR0917 - click passes options by name
    name: str,
    fleet: str,
    state_dir: Path,
    identity: Path | None,
    token: str | None,
    authority: str | None,
    *,
    as_json: bool,
) -> None:
    """Get this vehicle's certificate, once. The key is made here and never leaves.

    The token names the authority by its fingerprint, so nobody can stand between.

    \b
    Examples:
      glassfleet agent enrol --id vehicle-07 --token gft1... --authority https://ca.example.org:8443
    """
    from edge_agent import enrol as way
    from schemas.trust.identity import Token

    folder = _folder(identity, state_dir, fleet, name)
    if token is None or authority is None:
        raise UsageError("give --token (from `glassfleet ca token`) and --authority (from `glassfleet ca serve`)")
    parsed = Token.parse(token)
    if parsed.agent != name:
        raise UsageError(f"the token is for {parsed.agent}, not for {name}")
    with progress("asking the authority"):
        ends = way.enrol(folder, parsed, authority)
    text = f"enrolled as {name} until {ends:%Y-%m-%d}; identity in {folder}"
    tell(text, as_json=as_json, agent=name, until=ends.isoformat(), identity=str(folder))


@agent.command()
@_options
@lambda function: _authority(function, required=True)
@click.option("--within", type=click.FloatRange(0), metavar="DAYS", help="Only if it ends within so many days.")
@json_option
def renew(  # noqa: PLR0917 - click passes options by name
    name: str,
    fleet: str,
    state_dir: Path,
    identity: Path | None,
    authority: str,
    within: float | None,
    *,
    as_json: bool,
) -> None:
    """Get this vehicle a new key and certificate, by its current ones, and the revocation list. For a daily timer.

    A running agent uses it from its next connection on.

    \b
    Examples:
      glassfleet agent renew --id vehicle-07 --authority https://ca.example.org:8443 --within 30
    """
    import datetime as dt  # next to its only use

    from broker.identity import load_identity
    from edge_agent import enrol as way

    folder = _folder(identity, state_dir, fleet, name)
    ends = load_identity(folder).ends
    due = within is None or ends - dt.datetime.now(dt.UTC) <= dt.timedelta(days=within)
    if due:
        with progress("asking the authority"):
            ends = way.renew(folder, authority)
    text = f"renewed until {ends:%Y-%m-%d}" if due else f"good until {ends:%Y-%m-%d}: nothing to do"
    tell(text, as_json=as_json, agent=name, until=ends.isoformat(), renewed=due)


@agent.command()
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
