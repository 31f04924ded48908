"""``glassfleet demo``: the whole thing on one machine, with real processes; what it says of it."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from console.common import (
    COMMANDLINE,
    RowsFile,
    broker_kind_option,
    check_kind,
    ended_by_sigterm,
    json_option,
    keep_option,
    options_as,
    policy_option,
    print_json,
    workshop,
)
from glassfleet.schemes import DEFAULT
from lab.demo.display import for_terminal, watching
from lab.demo.options import DemoOptions, Plan, Settings, settings_of
from schemas.errors import VerificationError
from schemas.text import counted

if TYPE_CHECKING:
    from lab.demo.conduct import Result
    from lab.demo.display import Watcher
    from lab.demo.fleet import Fleet
    from lab.demo.reference import Verdict
    from schemas.errors import RunFailedError


TOP_RULES, ALL_RULES = 5, 12
"""How many rules are printed; all of them where they are few enough for one screen."""

LOOK = 0.5
"""Seconds between two looks at the processes that stay up."""


@click.command()
@click.option("--vehicles", type=click.IntRange(1, 200), metavar="N", help="Default: 15; with --data, all files.")
@click.option(
    "--drop", type=click.FloatRange(0, 1), default=0.2, show_default=True, metavar="SHARE",
    help="Of the fleet: killed (SIGKILL). Half of them come back; a tenth of the fleet is too slow.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Simulator, kills, run.")
@click.option("--data", type=RowsFile(), metavar="DIR", help="Real vehicles: a file each. Default: simulated.")
@click.option(
    "--scheme", metavar="NAME",
    help="What to learn; a classifier forecasts Good or Poor. `glassfleet doctor` lists the schemes. Default: "
    f"{DEFAULT}.",
)  # fmt: skip
@policy_option("All else that a run can be told, as in `run start --policy`: target, bounds, parameters, deadline ...")
@broker_kind_option
@click.option(
    "--secure", is_flag=True, help="Everything over mutual TLS, with certificates made for it; needs Mosquitto."
)
@click.option(
    "--private", is_flag=True,
    help="A private run: nobody sees a single vehicle's numbers, only sums over 8 vehicles or more. Kills at two "
    "moments at most, and no more than leave enough.",
)  # fmt: skip
@click.option(
    "--stay", is_flag=True,
    help="Keep everything up after the report, until Ctrl-C: to look at the dashboard, forecast, start more runs.",
)  # fmt: skip
@keep_option
@json_option
@options_as(DemoOptions)
def demo(options: DemoOptions) -> int:
    """Let a fleet learn one explainable model over MQTT while some vehicles vanish, lag and come back.

    Broker, coordinator and every vehicle are processes of their own. At the end the model is compared with the one that
    a central server would have learned from the rows of the vehicles that finished: the digests are equal, bit for bit.
    The first lines tell the address of the dashboard, which is there while the demo runs; with --stay until Ctrl-C.

    Exit codes: 0 the model exists (and, where the scheme promises it, with cohort participation, the digests are
    equal); 8 the digests differ; 6 the run failed.

    \b
    Examples:
      glassfleet demo --drop 0.3 --seed 7 --json
      glassfleet demo --stay
      glassfleet demo --secure
      glassfleet demo --private --drop 0.33
      glassfleet demo --scheme frbc
      glassfleet demo --data my-vehicles --policy policy.toml
    """
    check_kind(options.kind, secure=options.secure)
    with ended_by_sigterm(), workshop(options.keep, "demo") as work, watching() as watcher:
        return _show(options, work, watcher)


def _show(options: DemoOptions, work: Path, watcher: Watcher) -> int:
    from lab.demo.conduct import Result, conduct  # what the demo needs is loaded when it is called

    settings = settings_of(options, work, watcher)
    spec = settings.spec
    watcher.say(f"{spec.scheme}, {counted(len(settings.files), 'vehicles')}: {plan_words(settings.plan)}")
    if spec.private is not None:
        least = spec.private.support
        rests = f", and nothing that rests on fewer than {least} rows" if least else ""
        watcher.say(f"private: each answer is masked; coordinator and broker see sums over 8 vehicles or more{rests}")
    rows = "their own rows, as they are" if settings.is_exact else "condensed rows"
    watcher.say(f"vehicles answer from {rows}; a round waits {settings.deadline:g} s for those who do not answer")

    def stay(outcome: Result | RunFailedError, fleet: Fleet) -> None:
        watcher.stop()
        if isinstance(outcome, Result):
            _report(outcome, settings)
        else:
            watcher.say(f"{outcome}")
        _stay(settings, watcher, fleet)

    result = conduct(settings, watcher, stay if options.stay else None)
    if not options.stay:
        watcher.stop()
        _report(result, settings)
        watcher.say("")
        watcher.say(f"to look at all this in the dashboard, with everything up until Ctrl-C: {staying_command()}")
    keep_promise(result.verdict, participation=result.status["participation"])
    return 0


def _report(result: Result, settings: Settings) -> None:
    """Print what came of it."""
    from lab.demo.report import report_lines, summary

    options = settings.options
    if options.keep is not None:
        (settings.work / "model.json").write_bytes(result.record.to_bytes())
    few = len(result.verdict.model.rules()) <= ALL_RULES
    report = report_lines(result, exact=settings.is_exact, top=ALL_RULES if few else TOP_RULES)
    click.echo("\n".join(for_terminal(report, err=options.as_json)), err=options.as_json)
    if options.as_json:
        print_json(summary(result, settings))


def _stay(settings: Settings, watcher: Watcher, fleet: Fleet) -> None:
    """Return on Ctrl-C (or SIGTERM); raises GlassfleetError when broker or coordinator end before."""
    token = settings.work / "coordinator" / "api-token"
    watcher.say("")
    watcher.say(f"everything stays up until Ctrl-C; dashboard: {fleet.address}")
    watcher.say(f"  to start and cancel runs there, sign in with the token in {token}")
    watcher.say("  in another terminal:")
    watcher.say(f"    source {shlex.quote(str(fleet.write_environment()))}")
    watcher.say(f"    {shlex.quote(program())} model rules {settings.spec.model}")
    said = set[str]()
    try:
        while True:
            fleet.check_services()
            for fault in fleet.ended():
                if str(fault) not in said:
                    watcher.say(f"{fault}")
                said.add(str(fault))
            time.sleep(LOOK)
    except KeyboardInterrupt:
        click.echo(err=True)
        watcher.say("stopping vehicles, coordinator and broker")


def keep_promise(verdict: Verdict, *, participation: str) -> None:
    """Raise VerificationError where fleet and central model differ in a setting that promises that they are equal."""
    if participation == "cohort" and verdict.promised and not verdict.equal:
        raise VerificationError(
            f"the fleet's model {verdict.federated} is not the central one of its cohort, {verdict.central}, which "
            f"{verdict.title} promises in this setting"
        )


# --- what ``glassfleet demo`` says of its plan, and what it tells the reader to type next -----------------------------


def plan_words(plan: Plan) -> str:
    """Return in words how many vehicles are killed, come back and lag."""
    killed, back, slow = len(plan.kills), len(plan.returns), len(plan.slow)
    words = [f"{killed or 'none'} will be killed"]
    if killed == 1:
        words = [f"1 will be killed and {'come back' if back else 'stay away'}"]
    elif killed:
        words.append(f"{back or 'none'} of them {'come' if back > 1 else 'comes'} back")
    words.append(f"{slow or 'none'} {'are' if slow > 1 else 'is'} too slow")
    return ", ".join(words)


def staying_command() -> str:
    """Return what to type for the same demonstration with ``--stay``: the program as it is found, and its options.

    Of the options those that a file of settings gave are repeated too; ``--keep`` is not, as its folder is full now.
    """
    context = click.get_current_context()
    words = [program(), "demo"]
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) not in (COMMANDLINE, ParameterSource.DEFAULT_MAP) or name in (
            "keep",
            "as_json",
            "stay",
        ):
            continue
        value = context.params.get(name)
        if value is True:
            words.append(parameter.opts[0])
        elif value is not None and value is not False:
            words += [parameter.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join([*words, "--stay"])


def program() -> str:
    """Return how this program is started in this shell: make starts what is in .venv, which is on nobody's path."""
    started = sys.argv[0]
    is_found = shutil.which("glassfleet") is not None or Path(started).name != "glassfleet"
    return "glassfleet" if is_found else started
