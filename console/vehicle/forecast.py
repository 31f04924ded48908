"""``glassfleet forecast`` and ``glassfleet forecast explain``: live forecasts on a vehicle, and why they were made."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import F, fleet_option, json_file, json_option, print_json, state_dir_option
from console.settings import Given, settings_options
from edge_agent.forecast.config import ForecastConfig
from schemas.errors import NotFoundError, UsageError, VerificationError
from schemas.log import Log, LogWriter
from schemas.text import show_hidden

if TYPE_CHECKING:
    from edge_agent.forecast.verify import Checked, Seen

LOG = "forecasts"
"""A forecaster's log, in its agent's folder."""

SHOWN = 10
"""Most agents that are named where another one was asked for."""


def log_options(function: F) -> F:
    """Add what names a vehicle's log: ``--log DIR``, or ``--id`` and where state is kept."""
    function = fleet_option(state_dir_option(function))
    function = click.option("--id", "agent", metavar="ID", help="The vehicle. Default: the only one with a log here.")(
        function
    )
    return click.option(
        "--log", "log", type=click.Path(path_type=Path), metavar="DIR", help="The log's folder, or a copy of it."
    )(function)


@click.group()
def forecast() -> None:
    """Forecast live on a vehicle, each forecast explained and logged.

    \b
    Examples:
      glassfleet forecast run --id vehicle-07 --source mqtt://127.0.0.1/vehicle/samples
    """


@forecast.command()
@settings_options(ForecastConfig)
@click.option("--json", "as_json", is_flag=True, help="Print each forecast's record, a line of JSON each.")
@click.option("--print/--no-print", "printed", default=True, show_default=True, help="Print a line for each forecast.")
def run(given: Given[ForecastConfig], *, as_json: bool, printed: bool) -> None:
    """Serve the model that the agent keeps, from live samples; a new version is taken over between two forecasts.

    It works beside `glassfleet agent` and needs neither agent nor broker to be there: the last good model on disk is
    enough. SIGTERM and Ctrl-C end it cleanly; killed and started again, its log goes on where it was. Exit code 9: the
    source ended, and there never was a model.

    \b
    Examples:
      glassfleet forecast run --id vehicle-07 --source drive.csv --speed 10 --alert 0.5
      glassfleet forecast run --id vehicle-07 --source kuksa://127.0.0.1 --plan plan.toml --publish kuksa://127.0.0.1
    """
    config = given.load(waits=False)
    from edge_agent.forecast.serve import run as serve  # a wrong flag is told without loading numpy

    _tell_if_strange(config)
    serve(config, None if not printed else _say_json if as_json else _say)


def _tell_if_strange(config: ForecastConfig) -> None:
    """Warn when no such agent was ever here; it may come yet, and its first model with it."""
    if config.models is not None or _was_here(config.directory):
        return
    here = sorted(folder.name for folder in config.directory.parent.glob("*") if _was_here(folder))
    shown = ", ".join([*here[:SHOWN], *([f"{len(here) - SHOWN} more"] if len(here) > SHOWN else [])])
    Log.write = LogWriter(config.log_level, config.log_format)
    Log(agent=config.id).warning(
        "no-such-agent",
        reason=f"no agent {config.id!r} of fleet {config.fleet!r} was ever in {config.state_dir}; "
        f"{f'there are: {shown}' if here else 'there is none yet'}. Waiting for it and its first model",
    )


def _was_here(folder: Path) -> bool:
    """Whether an agent has left something in its folder, beside the log of a forecaster."""
    try:
        return any(each.name != LOG for each in folder.iterdir())
    except OSError:
        return False


def _say(record: dict[str, Any]) -> None:
    value = record["prediction"]
    text = value if isinstance(value, str) else f"{value:.6g}"
    marks = f"{'  fallback' if record['fallback'] else ''}{'  ALERT' if record['alert'] else ''}"
    click.echo(f"{_clock(record['time'])}  {text}  rule {record['rule']}{marks}")


def _say_json(record: dict[str, Any]) -> None:
    click.echo(show_hidden(json.dumps(record, ensure_ascii=False, allow_nan=False)))


@forecast.command()
@log_options
@click.option(
    "--witness",
    metavar="URL|FILE",
    help="The coordinator's HTTP address, or a file with what it answers at /api/agents/ID/forecasts: heads of the log "
    "that it has seen.",
)
@json_option
def verify(
    log: Path | None, agent: str | None, fleet: str, state_dir: Path, witness: str | None, *, as_json: bool
) -> None:
    """Check a log, and say what is vouched for: by the vehicle's secret, and by what the coordinator has seen.

    With the secret, a record that was changed, removed, added or reordered is found. An old copy of the whole log, put
    back in its place, is found only with --witness; so is what was written by somebody who has the secret.

    Exit code 0: nothing wrong was found; what is printed says how far that is proved. 8: something was changed, and
    where, or the witness has seen other or later records, or that the log got shorter. 9: there is no log, or the
    witness has seen none.

    \b
    Examples:
      glassfleet forecast verify --id vehicle-07
      glassfleet forecast verify --id vehicle-07 --log copy --witness http://127.0.0.1:8080
    """
    from edge_agent.forecast.verify import verify as check

    directory = _directory(log, agent, fleet, state_dir)
    seen = [] if witness is None else _seen(witness, agent or (directory.parent.name if log is None else ""), state_dir)
    result = check(directory, seen)
    if as_json:
        print_json({"log": str(directory), **asdict(result)})
        return
    if result.since is None or result.until is None:
        click.echo(f"{directory}: no records yet")
        return
    click.echo(
        f"{directory}: whole{'' if result.keyed else ' in itself'}, records {result.first} to {result.last}, "
        f"{_clock(result.since)} to {_clock(result.until)}, "
        f"{len(result.models)} model{'' if len(result.models) == 1 else 's'}"
    )
    for line in (*_proof(result, asked=witness is not None), *result.notes):
        click.echo(f"  {line}")


def _seen(witness: str, agent: str, state_dir: Path) -> list[Seen]:
    """Return the heads that a witness has seen of a vehicle's log."""
    from edge_agent.forecast.verify import Seen

    if "://" not in witness:
        heads = json_file(Path(witness), "witness")
    else:
        from console.client import CoordinatorClient  # extra operator

        if not agent:
            raise UsageError("--witness: whose log is it? Name the vehicle with --id")
        heads = CoordinatorClient(witness, None, state_dir).get(f"/api/agents/{agent}/forecasts")
    try:
        seen = [Seen(int(head["n"]), str(head["hash"]), float(head["at"])) for head in heads]
        for each in seen:
            _clock(each.at)
    except (TypeError, KeyError, ValueError, OverflowError, OSError) as fault:
        raise UsageError(f"--witness {witness}: these are no heads of a log") from fault
    if not seen:
        raise NotFoundError(f"the witness {witness} has seen no head of this log: is --id the agent's?")
    return seen


def _proof(result: Checked, *, asked: bool) -> list[str]:
    """Say who vouches for which records."""
    seen, first = result.witnessed, result.first
    lines = []
    if seen is not None and seen.n >= first:
        lines.append(f"records {first} to {seen.n}: vouched for by the head that the witness saw at {_clock(seen.at)}")
        first = seen.n + 1
    if first > result.last:
        return lines
    by = (
        "written with the vehicle's secret"
        if result.keyed
        else "the vehicle's secret is not here, so nothing is proved"
    )
    lines.append(f"records {first} to {result.last}: {by}{', but seen by no witness' if result.keyed else ''}")
    if not asked:
        lines.append("an old copy put back in place of the log looks like this, too: --witness asks the coordinator")
    return lines


@forecast.command()
@click.option("--at", "at", required=True, metavar="TIME", help="ISO 8601, such as 2026-03-01T14:05:09, or `last`.")
@click.option(
    "--within",
    type=click.FloatRange(0, 86400),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How far the nearest forecast may be.",
)
@log_options
@json_option
def explain(  # noqa: PLR0917 - its options
    at: str, within: float, log: Path | None, agent: str | None, fleet: str, state_dir: Path, *, as_json: bool
) -> None:
    """Say why a vehicle forecast what it did at a time: rule, memberships and shares, from its log.

    The chain is verified first, and the model of that time, kept beside the log, must give the same forecast again.
    Times without an offset are this machine's.

    \b
    Examples:
      glassfleet forecast explain --at 2026-03-01T14:05:09 --id vehicle-07
    """
    from console.operator.words import explanation_lines
    from edge_agent.forecast.model import vector
    from edge_agent.forecast.verify import at_time, model_of
    from edge_agent.forecast.verify import verify as check
    from glassfleet.explain import explain_row, explained

    directory = _directory(log, agent, fleet, state_dir)
    result = check(directory)
    if result.until is None:
        raise NotFoundError(f"{directory}: no forecasts yet")
    time, within = (float("inf"), float("inf")) if at == "last" else (_time(at), within)
    record = at_time(directory, time, within=within)
    served = model_of(directory, record["model"]["digest"])
    domain = served.model.domain
    inputs = record["inputs"]  # null: an empty cell
    row = vector({name: float("nan") if inputs[name] is None else float(inputs[name]) for name in domain.names})
    explanation = explained(served.model, row, served.reference)
    again = explanation.prediction if isinstance(explanation.prediction, str) else float(explanation.prediction)
    if again != record["prediction"] or explanation.fired.rule.index != record["rule"]:
        raise VerificationError(
            f"record {record['n']} says {record['prediction']} by rule {record['rule']}, its model gives {again} by "
            f"rule {explanation.fired.rule.index}"
        )
    if as_json:
        print_json({"record": record, "explanation": explain_row(served.model, row, served.reference).to_dict()})
        return
    model = record["model"]
    whole = "chain whole" if result.keyed else "nothing is proved without the vehicle's secret"
    click.echo(f"record {record['n']} of {result.first} to {result.last}, {whole}; {_clock(record['time'])}")
    click.echo(
        f"model {model['name']} v{model['version']} {model['digest'][:12]}{'; ALERT' if record['alert'] else ''}"
    )
    click.echo("\n".join(explanation_lines(explanation, domain, row.tolist(), keep=8)))
    click.echo("inputs:")
    for variable, value in zip(domain.features, row, strict=True):
        click.echo(f"  {variable.name} = {variable.text(value)}")


def _directory(log: Path | None, agent: str | None, fleet: str, state_dir: Path) -> Path:
    if log is not None:
        return log
    agents = state_dir / "agents" / fleet
    if agent is not None:
        return agents / agent / LOG
    result = sorted(agents.glob(f"*/{LOG}"))
    if len(result) > 1:
        names = ", ".join(path.parent.name for path in result)
        raise UsageError(f"several vehicles have a log here ({names}): name one with --id, or a folder with --log")
    if not result:
        raise NotFoundError(f"no vehicle has a log of forecasts in {agents}: name its folder with --log")
    return result[0]


def _time(text: str) -> float:
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"--at {text!r}: write a time as 2026-03-01T14:05:09, or seconds since 1970, or last"
        ) from None


def _clock(time: float) -> str:
    from edge_agent.forecast.verify import clock

    return clock(time)
